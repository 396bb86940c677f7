"""How good a policy is: return, length and distance over seeded episodes."""

from collections.abc import Callable

import attrs
import numpy as np

from labkit.sac.collector import play_episode
from labkit.sac.policies import Policy


@attrs.frozen
class Evaluation:
    """Per episode: return (the environment's own reward, unscaled, undiscounted), length, distance.

    Each field holds one float per episode; lengths are env steps, distances metres, NaN where
    the environment has no base that moves forward.
    """

    returns: tuple[float, ...]
    lengths: tuple[float, ...]
    distances: tuple[float, ...]

    @property
    def mean_return(self) -> float:
        """Mean of the returns."""
        return float(np.mean(self.returns))

    def __str__(self) -> str:
        spread = f" ± {np.std(self.returns, ddof=1):.2f}" if len(self.returns) > 1 else ""
        text = (
            f"mean return {self.mean_return:+.2f}{spread} over {len(self.returns)} episodes, "
            f"mean length {np.mean(self.lengths):.0f} steps"
        )
        if np.isfinite(self.distances).all():
            text += f", mean forward distance {np.mean(self.distances):.2f} m"
        return text


def evaluate(
    env,
    policy: Policy,
    episodes: int,
    seed: int,
    after_episode: Callable[[int], None] = lambda done: None,
) -> Evaluation:
    """Plays `episodes` episodes, from the same seed the same ones.

    Args:
        env: a TF-Agents `PyEnvironment`, seeded anew here; training must not share it.
        policy: maps an observation `[obs]` to an action `[act]`; greedy for a final score.
        episodes: how many.
        seed: seed of the environment's randomness.
        after_episode: told how many episodes are done, for a progress display.
    """
    env.seed(seed)
    rows = []
    for done in range(1, episodes + 1):
        rows.append(play_episode(env, policy))
        after_episode(done)
    returns, lengths, distances = zip(*rows, strict=True)
    return Evaluation(returns, tuple(float(n) for n in lengths), distances)
