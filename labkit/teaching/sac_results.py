"""What a finished training of notebook 03 learned: a sentence, and the critics' estimates."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pandas as pd

from labkit.parameters import grouped
from labkit.plotting.video import MAX_BYTES, Recording, record_episode
from labkit.sac.rollout import play
from labkit.teaching.sac_checks import estimated_q

if TYPE_CHECKING:
    from tf_agents.environments.py_environment import PyEnvironment

    from labkit.config import SACConfig
    from labkit.sac.agent import SeededSacAgent
    from labkit.sac.rollout import Policy

EVALUATED_STEPS = 5_000  # the longest evaluated episode that is recorded to its end
UNSEEN = 0.05  # share of a reward that may lie beyond the end of the episode


def summary(metrics: pd.DataFrame, seed: int) -> str:
    """The last evaluation in one sentence, such as `13.0 ± 2.3 over 20 episodes, …`.

    Columns used of a run's metrics: `gradient_step`, `env_step`, `eval_return`, `eval_returns`,
    `eval_lengths` and `eval_distances`. ± is the standard deviation of the episodes' returns.
    """
    evaluated = metrics[metrics.eval_return.notna()]
    if evaluated.empty:
        return "no score: the run was stopped before its first evaluation"
    last = evaluated.iloc[-1]
    returns = np.asarray(last.eval_returns, float)
    spread = f" ± {returns.std(ddof=1):.1f}" if returns.size > 1 else ""
    words = [f"{returns.mean():.1f}{spread} over {returns.size} episodes"]
    words += [f"worst {returns.min():.1f}, best {returns.max():.1f}"]
    distances = np.asarray(last.eval_distances, float)
    if distances.size and np.isfinite(distances).all():
        words.append(f"{distances.mean():.1f} m forward in {np.mean(last.eval_lengths):.0f} steps")
    steps = f"{grouped(int(last.gradient_step))} gradient steps"
    words.append(f"after {steps} ({grouped(int(last.env_step))} env steps), seed {seed}")
    return ", ".join(words)


def worst_and_best(returns: Sequence[float]) -> dict[str, int]:
    """The places of these two episodes; a single episode is the best."""
    places = {"worst": int(np.argmin(returns)), "best": int(np.argmax(returns))}
    return places if len(returns) > 1 else {"best": 0}


def record_evaluated(
    env: "PyEnvironment",
    policy: "Policy",
    episodes: Mapping[str, int],
    folder: Path,
    *,
    seed: int,
    max_bytes: int = MAX_BYTES,
) -> dict[str, Recording]:
    """Records episodes of an evaluation again, with the same seed, policy and environment.

    An evaluation seeds its environment once. The episodes before the last recorded one are
    therefore played, too. An episode of more than `EVALUATED_STEPS` env steps is cut.

    Args:
        env: see `record_episode`.
        policy: the deterministic policy that was evaluated.
        episodes: the place of each episode in the evaluation, from 0, by name.
        folder: of the videos `<name>.mp4`.
        seed: of the evaluation.
        max_bytes: size limit of each file.

    Returns:
        The recordings by name, in the order of `episodes`.
    """
    names, found = {place: name for name, place in episodes.items()}, {}
    env.seed(seed)
    for place in range(max(names, default=-1) + 1):
        if place in names:
            path = folder / f"{names[place]}.mp4"
            found[names[place]] = record_episode(
                env, policy, path, max_steps=EVALUATED_STEPS, max_bytes=max_bytes
            )
        else:
            for _ in play(env, policy, env.reset()):
                pass
    return {name: found[name] for name in episodes}


def estimates(
    agent: "SeededSacAgent",
    env: "PyEnvironment",
    policy: "Policy",
    config: "SACConfig",
    episodes: int,
    seed: int,
) -> pd.DataFrame:
    """The critics' estimates next to the returns that followed (Monte Carlo).

    The return is the discounted sum of scaled rewards until the end of the episode. A step is left
    out if a reward just beyond a time limit would still count more than 5 % in its return; at most
    the second half of an episode is left out.

    Returns:
        One row per action, with the columns episode, step, estimated (the lower of both critics)
        and returned, the last two in units of the scaled return.
    """
    env.seed(seed)
    parts = []
    for episode in range(episodes):
        played = [transition for transition, _ in play(env, policy, env.reset())]
        observations = np.stack([t.observation for t in played])
        actions = np.stack([t.action for t in played])
        following, returned = 0.0, np.zeros(len(played))
        for step in reversed(range(len(played))):
            reward = config.reward_scale_factor * float(played[step].reward)
            following = reward + config.gamma * float(played[step].discount) * following
            returned[step] = following
        table = pd.DataFrame({"episode": episode, "step": np.arange(len(played))})
        table["estimated"] = estimated_q(agent, observations, actions)
        table["returned"] = returned
        complete = _complete_steps(len(played), float(played[-1].discount), config)
        parts.append(table[table.step < complete])
    return pd.concat(parts, ignore_index=True)


def _complete_steps(length: int, last_discount: float, config: "SACConfig") -> int:
    """How many steps of an episode have a return that its end hardly cuts."""
    if last_discount == 0:  # a termination: nothing follows
        return length
    if not 0 < config.gamma < 1:
        return max(1, length // 2)
    return max(length - int(np.log(UNSEEN) / np.log(config.gamma)), max(1, length // 2))
