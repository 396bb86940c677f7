"""Evaluation of a policy: return, length and distance over seeded episodes."""

from collections.abc import Callable
from typing import TYPE_CHECKING

import attrs
import numpy as np

from labkit.environments.make import MAX_SEED
from labkit.environments.physics import forward_position
from labkit.environments.seeding import seeded_env
from labkit.parameters import MANY, check_int, grouped, invalid
from labkit.sac.collector import play
from labkit.sac.policies import Policy

if TYPE_CHECKING:
    from tf_agents.environments.py_environment import PyEnvironment

EPISODE_LIMIT = 100_000  # env steps, in an environment without a time limit


@attrs.frozen
class Evaluation:
    """The results of some episodes; each field holds one float per episode.

    Attributes:
        returns: undiscounted sums of the environment's own, unscaled reward.
        lengths: env steps.
        distances: metres forward; NaN where the environment has no base that moves forward.
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
        text = f"mean return {self.mean_return:+.2f}{spread} over {len(self.returns)} episodes"
        text += f", mean length {np.mean(self.lengths):.0f} steps"
        if np.isfinite(self.distances).all():
            text += f", mean forward distance {np.mean(self.distances):.2f} m"
        return text


def evaluate(
    env: "PyEnvironment",
    policy: Policy,
    episodes: int,
    seed: int,
    after_episode: Callable[[int], None] = lambda done: None,
    after_step: Callable[[], None] = lambda: None,
) -> Evaluation:
    """Plays `episodes` episodes; the same seed gives the same episodes.

    The environment is seeded here: training must not share it. The policy maps an observation
    `[obs]` to an action `[act]` and is deterministic for a final score. `after_episode` receives
    the number of finished episodes, for a progress display; `after_step` may raise to stop.

    In an environment without a time limit an episode is cut after `EPISODE_LIMIT` env steps, with a
    message.

    Raises:
        ParameterError: `env` is of another kind, such as a Gym environment; `policy` is no
            function, or its actions have another shape; `episodes` or `seed` is not allowed.
        DivergedError: an action is not finite.
        BrokenEnvironmentError: an observation or a reward is not finite, or of another kind.
    """
    if not (hasattr(env, "time_step_spec") and hasattr(env, "gym")):
        raise invalid("env", env, "what labkit.make_environment(id or MyEnv) returns")
    if not callable(policy):
        raise invalid("policy", policy, "a function from an observation to an action")
    episodes = check_int("episodes", episodes, 1, MANY, "episodes")
    seed = check_int("seed", seed, 0, MAX_SEED, "seed of the episodes")
    env.seed(seed)
    rows = []
    for done in range(1, episodes + 1):
        rows.append(play_episode(env, policy, after_step))
        after_episode(done)
    returns, lengths, distances = zip(*rows, strict=True)
    return Evaluation(returns, tuple(float(n) for n in lengths), distances)


def play_episode(
    env: "PyEnvironment", policy: Policy, after_step: Callable[[], None] = lambda: None
) -> tuple[float, int, float]:
    """One episode: its return, its length in env steps, its forward distance in metres.

    The distance is NaN where the environment has no base that moves forward.
    """
    first, total, length = env.reset(), 0.0, 0
    start = forward_position(env)
    limited = getattr(seeded_env(env), "max_episode_steps", None) is not None
    for transition, over in play(env, policy, first):
        total += float(transition.reward)
        length += 1
        after_step()
        if length == EPISODE_LIMIT and not limited and not over:
            print(
                f"an evaluation episode was cut after {grouped(length)} env steps: this "
                "environment has no time limit; `max_episode_steps` sets one"
            )
            break
    end = forward_position(env)
    moved = float("nan") if start is None or end is None else end - start
    return total, length, moved
