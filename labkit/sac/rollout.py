"""Policies and env steps: the one episode loop, the collector of transitions, the evaluation."""

import contextlib
from collections import deque
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import attrs
import numpy as np

from labkit.environments.make import MAX_SEED, forward_position
from labkit.errors import DivergedError, ParameterError, first_line
from labkit.parameters import MANY, check_int, check_no_wildcards, echo, grouped, invalid
from labkit.replay.transitions import NStepWriter, Transition, Write
from labkit.runtime import in_forks, quiet
from labkit.sac.actor import Actor

if TYPE_CHECKING:
    from tf_agents.environments.py_environment import PyEnvironment
    from tf_agents.trajectories.time_step import TimeStep
    from tf_agents.typing.types import BoundedArraySpec

EPISODE_LIMIT = 100_000  # env steps of an evaluation episode without a time limit
Policy = Callable[[np.ndarray], np.ndarray]  # observation [obs] → action [act], both float32
Row = tuple[float, float, float]  # of an episode: its return, length, distance; see `Evaluation`
Check = Callable[[], Any]  # may raise, to stop


def random_policy(action_spec: "BoundedArraySpec", seed: int) -> Policy:
    """Draws each action uniformly between the bounds of `action_spec`."""
    generator = np.random.default_rng(seed)
    low, high, shape = action_spec.minimum, action_spec.maximum, action_spec.shape
    return lambda _: generator.uniform(low, high, shape).astype(np.float32)


def load_actor(folder: Path, observation_scale: tuple[float, ...]) -> Actor:
    """The deterministic policy in `folder`, the `policy/` of a run with this observation scale.

    Only its weights are read; nothing of the SavedModel is executed. A damaged one is rejected.
    """
    check_no_wildcards("policy", folder)
    with quiet():
        import tensorflow as tf
        from tf_agents.specs import tensor_spec

        try:
            reader = tf.train.load_checkpoint(str(folder / "variables/variables"))
            variables = reader.get_variable_to_shape_map()
            names = [name for name in variables if name.startswith("model_variables/")]
            names.sort(key=lambda name: (len(name), name))  # the tenth is not before the second
            specs = tensor_spec.from_pbtxt_file(str(folder / "policy_specs.pbtxt"))
            action = specs["collect_data_spec"].action
            low, high = (np.full(action.shape, b) for b in (action.minimum, action.maximum))
            return Actor([reader.get_tensor(n) for n in names], low, high, observation_scale)
        except Exception as error:  # TensorFlow has many types for a damaged file
            reason = f"is missing or damaged ({first_line(error)})"
            raise ParameterError(f"the saved policy in {folder} {reason}") from None


def play(
    env: "PyEnvironment", policy: Policy, time_step: "TimeStep"
) -> Iterator[tuple[Transition, bool]]:
    """Plays an episode to its end, from what `env.reset()` returned.

    Yields:
        After each env step its transition, and whether the episode is over.

    Raises:
        ParameterError: an action has another shape than those of the environment.
        DivergedError: an action is infinite or not a number.
        BrokenEnvironmentError: an observation or a reward is not finite, or of another kind.
    """
    shape, step = env.action_spec().shape, 0
    while not time_step.is_last():
        before, step = time_step.observation, step + 1
        action = policy(before)
        if np.shape(action) != shape:
            raise invalid("policy", action, f"a function that returns actions of shape {shape}")
        if not np.isfinite(action).all():
            found = f"the action at step {step} of the episode is {echo(action)}"
            raise DivergedError(f"{found}: the policy's weights are infinite or not numbers")
        _, reward, discount, after = time_step = env.step(action)
        yield Transition(before, action, reward, discount, after), bool(time_step.is_last())


@attrs.define(eq=False)
class Collector:
    """Steps an environment, from a new episode on, and hands each transition to `write`."""

    env: "PyEnvironment"  # shared with nobody else
    policy: Policy  # may be replaced at any time
    write: Write  # takes each transition; see `NStepWriter`
    before_episode: Callable[[], None] = lambda: None  # called before each reset
    n_step: int = 1  # env steps of a transition
    gamma: float = 1.0  # discount per env step
    env_steps: int = attrs.field(default=0, init=False)  # so far
    # Undiscounted, of the last ten finished episodes
    recent_returns: deque[float] = attrs.field(factory=lambda: deque(maxlen=10), init=False)
    _episode: Iterator[tuple[Transition, bool]] | None = attrs.field(default=None, init=False)
    _return: float = attrs.field(default=0.0, init=False)
    _windows: NStepWriter = attrs.field(init=False)

    def __attrs_post_init__(self) -> None:
        self._windows = NStepWriter(self.write, self.n_step, self.gamma)

    def run(self, steps: int) -> None:
        """Takes `steps` env steps; resets between episodes do not count."""
        for _ in range(steps):
            if self._episode is None:
                self.before_episode()
                first, self._return = self.env.reset(), 0.0
                self._episode = play(self.env, lambda s: self.policy(s), first)
            transition, over = next(self._episode)
            self._windows.write(transition)
            self._return += float(transition.reward)
            self.env_steps += 1
            if over:
                self._windows.end()
                self.recent_returns.append(self._return)
                self._episode = None

    def end(self) -> None:
        """Writes the n-step windows that are still open; no step may follow."""
        self._windows.end()

    def get_state(self) -> dict[str, Any]:
        """What a new collector needs to resume, for JSON; not the unfinished episode."""
        return {"env_steps": self.env_steps, "recent_returns": list(self.recent_returns)}

    def set_state(self, state: dict[str, Any]) -> None:
        """Restores what `get_state` returned; no step may come before."""
        self.env_steps = state["env_steps"]
        self.recent_returns.extend(state["recent_returns"])

    def mean_return(self) -> float:
        """Mean return of the last ten finished episodes; NaN before the first."""
        return float(np.mean(self.recent_returns)) if self.recent_returns else float("nan")


@attrs.frozen
class Evaluation:
    """The results of some episodes; each field holds one float per episode."""

    returns: tuple[float, ...]  # undiscounted sums of the environment's own, unscaled reward
    lengths: tuple[float, ...]  # env steps
    distances: tuple[float, ...]  # metres forward; NaN without a base that moves forward

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
    env: "PyEnvironment", policy: Policy, episodes: int, seed: int, processes: int = 1
) -> Evaluation:
    """Plays `episodes` episodes; the same seed gives the same episodes. For errors see `play`.

    Each episode is seeded by itself: training must not share the environment. `policy` maps an
    observation `[obs]` to an action `[act]`, and is deterministic for a final score. In an
    environment without a time limit an episode is cut after `EPISODE_LIMIT` env steps. More
    `processes` than one play the same episodes in less time, where the environment allows that; the
    policy must be deterministic, and not use TensorFlow.
    """
    forks = processes if processes > 1 else 0
    with begin_evaluation(env, policy, episodes, seed, forks, lambda: None) as rows:
        return Evaluation(*zip(*rows, strict=True))


@contextlib.contextmanager
def begin_evaluation(
    env: "PyEnvironment", policy: Policy, episodes: int, seed: int, forks: int, check: Check
) -> Iterator[Iterator[Row]]:
    """Begins what `evaluate` does, in up to `forks` processes; yields an iterator over the rows.

    Without forks, an episode is played when its row is asked for. While it waits, `check` is called
    again and again; it may raise to stop.
    """
    if not hasattr(env, "gym"):
        raise invalid("env", env, "what labkit.make_environment(id or MyEnv) returns")
    episodes = check_int("episodes", episodes, 1, MANY, "episodes")
    words = np.random.SeedSequence(check_int("seed", seed, 0, MAX_SEED, "seed of the episodes"))
    seeds, forks = (words.generate_state(episodes) % 2**31).tolist(), forks * env.gym.can_fork
    if env.gym.can_fork:
        env.reset()  # the first episode of a new robot of PyBullet differs from all others
    with in_forks(lambda one: _episode(env, policy, one, check), seeds, forks, check) as rows:
        yield rows


def _episode(env: "PyEnvironment", policy: Policy, seed: int, check: Check) -> Row:
    env.seed(seed)
    first, total, start = env.reset(), 0.0, forward_position(env)
    limit = env.gym.max_episode_steps or EPISODE_LIMIT
    for length, (transition, over) in enumerate(play(env, policy, first), start=1):
        total += float(transition.reward)
        check()
        if length == limit and not over:
            told = f"an evaluation episode was cut after {grouped(limit)} env steps"
            print(f"{told}: this environment has no time limit; `max_episode_steps` sets one")
            break
    end = forward_position(env)
    distance = np.nan if start is None or end is None else end - start
    return total, float(length), distance
