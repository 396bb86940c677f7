"""Notebook 03: the data-flow diagram, TF-Agents' losses on the reader's networks, tables, figures.

`net` is what the notebook calls its networks: an object with `actor`, `critics` and `targets` (two
each), all of them Keras models, and the variable `log_alpha`.
"""

import textwrap
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import tensorflow as tf
from IPython import display
from matplotlib.figure import Figure
from tf_agents.agents.ddpg import critic_network
from tf_agents.agents.sac import sac_agent, tanh_normal_projection_network
from tf_agents.environments.py_environment import PyEnvironment
from tf_agents.networks import actor_distribution_network
from tf_agents.train.utils import spec_utils

import labkit
from labkit.config import SACConfig
from labkit.parameters import brief, grouped
from labkit.plotting import video
from labkit.plotting.curves import NothingToDraw
from labkit.plotting.style import BLUE, GREEN, GREY, ORANGE, PURPLE, subplots
from labkit.sac.agent import SeededSacAgent, create_agent
from labkit.sac.rollout import Evaluation, Policy, play
from labkit.training import checkpoint
from labkit.training.records import read_config, read_metrics
from labkit.training.run import TRACKED_POLICY, Run

RESULTS = Path(labkit.__file__).parents[1] / "results" / "minitaur"  # only in the repository
POLICY = RESULTS / TRACKED_POLICY.name
CLIP = "one episode of the trained robot: it walks forward"
BOXES = {  # name: (x, y of the centre, colour)
    "environment": (0.0, 1.0, GREY),
    "replay": (1.2, 1.0, ORANGE),
    "actor π": (0.0, 0.0, BLUE),
    "two critics Q₁, Q₂": (1.2, 0.0, GREEN),
    "two targets Q̄₁, Q̄₂": (2.4, 0.0, GREEN),
    "temperature α": (0.6, -0.9, PURPLE),
}
ARROWS = (  # (start, end, place of the label, label, colour)
    ((0.25, 1.0), (1.02, 1.0), (0.63, 1.14), "transition (s, a, r, d, s′)", GREY),
    ((0.0, 0.15), (0.0, 0.85), (-0.17, 0.5), "action a", BLUE),
    ((1.2, 0.85), (1.2, 0.15), (1.42, 0.5), "batch: (s, a)\nfor the critic loss", ORANGE),
    ((1.35, 0.95), (2.4, 0.15), (2.17, 0.64), "batch: r, d, s′\nfor the target y", ORANGE),
    ((0.9, 0.0), (0.16, 0.0), (0.53, 0.2), "gradient of Q\nfor the actor loss", GREEN),
    ((2.1, 0.05), (1.5, 0.05), (1.8, 0.17), "target y", GREEN),
    ((1.5, -0.05), (2.1, -0.05), (1.8, -0.22), "Polyak average", GREEN),
    ((0.08, -0.15), (0.47, -0.75), (0.1, -0.55), "entropy", BLUE),
    ((0.6, -0.75), (0.14, -0.12), (0.62, -0.45), "price of entropy", PURPLE),
)


def data_flow() -> Figure:
    """Draws what flows where in SAC, on a white ground that any theme can carry."""
    with subplots(9, 4, grid=False) as (figure, axes):
        axes.set(xlim=(-0.4, 2.8), ylim=(-1.1, 1.25), title="One iteration of Soft Actor-Critic")
        axes.set_axis_off()
        box: dict[str, Any] = {"boxstyle": "round,pad=0.5", "facecolor": "white", "lw": 2}
        for name, (x, y, color) in BOXES.items():
            axes.text(x, y, name, ha="center", va="center", bbox={**box, "edgecolor": color})
        for start, end, place, label, color in ARROWS:
            look = {"arrowstyle": "-|>", "color": color, "lw": 1.6, "shrinkA": 0, "shrinkB": 0}
            axes.annotate("", end, start, arrowprops=look)
            axes.text(*place, label, ha="center", va="center", fontsize=9)
    return figure


def live_curve(episodes: int, solved: float) -> Callable[[Sequence[float]], None]:
    """Displays an empty curve; the function that it returns draws the returns so far.

    `episodes` sets the width, and a dashed line shows the return from which the task is solved.
    """
    with subplots(8, 2.8) as (figure, axes):
        (line,) = axes.plot([], [], "o-", color=BLUE, ms=4, label="return of an episode")
        axes.axhline(solved, color=GREY, linestyle="--", label="solved above")
        axes.set(xlim=(0, episodes + 1), ylim=(-1800, 50), xlabel="episode", ylabel="return")
        axes.legend(loc="lower right")
    screen = display.display(figure, display_id=True)

    def draw(returns: Sequence[float]) -> None:
        line.set_data(range(1, len(returns) + 1), returns)
        if screen:  # there is none outside of IPython
            screen.update(figure)

    return draw


def in_tf_agents(net: Any, env: PyEnvironment, noise: tf.Tensor, **options: Any) -> Any:
    """TF-Agents' `SacAgent` with the weights of `net`, whose losses use `noise`.

    Both sides then compute with the same numbers. log π is that of TensorFlow Probability. `env`
    gives the shapes, `noise` is standard normal `[batch, act] float32`, `options` are `SacAgent`'s.
    """

    class SameNoise(sac_agent.SacAgent):
        def _actions_and_log_probs(self, time_steps: Any, training: bool = False) -> Any:
            distribution = self.policy.distribution(time_steps, ()).action
            normal = distribution.input_distribution
            squash = distribution._squashed_distribution.bijector
            action = squash.forward(normal.mean() + normal.stddev() * noise)
            return action, distribution.log_prob(action)

    observation, action, time_step = spec_utils.get_tensor_specs(env)
    units = [layer.units for layer in net.actor.layers[:-1]]
    squashed = tanh_normal_projection_network.TanhNormalProjectionNetwork
    actor = actor_distribution_network.ActorDistributionNetwork(
        observation, action, fc_layer_params=units, continuous_projection_net=squashed
    )
    critic = critic_network.CriticNetwork((observation, action), joint_fc_layer_params=units)
    optimizers = {f"{name}_optimizer": tf.keras.optimizers.legacy.Adam() for name in PARTS}
    agent = SameNoise(time_step, action, critic, actor, **optimizers, **options)
    agent.initialize()
    copies = [agent._actor_network, agent._critic_network_1, agent._critic_network_2]
    copies += [agent._target_critic_network_1, agent._target_critic_network_2]
    for mine, copy in zip((net.actor, *net.critics, *net.targets), copies, strict=True):
        copy.set_weights(mine.get_weights())
    agent._log_alpha.assign(net.log_alpha)
    return agent


PARTS = ("critic", "actor", "alpha")


def _trained(critics: Any, actor: Any, log_alpha: tf.Variable) -> tuple[Any, Any, Any]:
    both = [v for q in critics for v in q.trainable_variables]
    return both, actor.trainable_variables, [log_alpha]


def compare(
    net: Any, mine: Mapping[str, Callable], agent: Any, theirs: Mapping[str, Callable]
) -> pd.DataFrame:
    """The losses of `net` and of `in_tf_agents(net, …)` next to each other.

    Both mappings have a function without arguments for each of critic, actor and alpha. A row has
    both values, both gradients' norms, and the norm of their difference over that of the second.
    """
    critics = (agent._critic_network_1, agent._critic_network_2)
    own = _trained(net.critics, net.actor, net.log_alpha)
    library = _trained(critics, agent._actor_network, agent._log_alpha)
    rows = {}
    for name, our_variables, their_variables in zip(PARTS, own, library, strict=True):
        value, gradient = value_and_gradient(mine[name], our_variables)
        expected, reference = value_and_gradient(theirs[name], their_variables)
        norm = float(np.linalg.norm(reference))
        rows[name] = {
            "your loss": value,
            "TF-Agents": expected,
            "your ‖gradient‖": float(np.linalg.norm(gradient)),
            "TF-Agents' ‖gradient‖": norm,
            "relative difference": float(np.linalg.norm(gradient - reference)) / norm,
        }
    return pd.DataFrame.from_dict(rows, orient="index")


def value_and_gradient(loss: Callable[[], tf.Tensor], variables: Any) -> tuple[float, np.ndarray]:
    """A loss and its gradient by `variables`, as one vector `[parameters] float32`."""
    with tf.GradientTape() as tape:
        value = loss()
    parts = tape.gradient(value, variables)
    return float(value), np.concatenate([np.ravel(part) for part in parts])


def choices(reasons: Mapping[str, str]) -> pd.DataFrame:
    """What differs for the Minitaur, and the mean return without it after 60 000 env steps.

    `reasons` is by the name of a parameter; `learning_rates` stands for the three rates. A row a
    choice, the largest effect first; without the repository's results the means are NaN.
    """
    plain, tuned = SACConfig(env_name="Pendulum-v1"), SACConfig()
    means: Any = {}
    if (file := RESULTS / "scores.csv").exists():
        scores = pd.read_csv(file)
        means = scores[scores.env_steps == 60_000].groupby("setting")["return"].mean()
    rows = [
        ("all of these", "", "", "the tutorial's values", means.get("source")),
        ("none of these", "", "", "the defaults of this notebook", means.get("defaults")),
    ]
    for name, reason in reasons.items():
        field = {"learning_rates": "critic_learning_rate"}.get(name, name)
        theirs, ours = (brief(getattr(config, field)) for config in (plain, tuned))
        if name in ("replay_buffer_capacity", "initial_collect_steps"):  # not labkit's defaults
            theirs = "10000"
        if name == "observation_scale":
            theirs, ours = "none", "per sensor"
        rows.append((name, theirs, ours, reason, means.get(f"no-{name}")))
    columns = ["choice", "tutorial", "here", "reason", "mean return without it"]
    table = pd.DataFrame(rows, columns=columns).set_index("choice")
    return table.sort_values(columns[-1], kind="stable").round(1)


def show_clip(folder: Path = POLICY) -> None:
    """Displays the tracked clip of a trained robot, its film strip and how it was made."""
    if not (folder / "after.mp4").exists():
        print("no clip: the tracked results are in the repository only")
        return
    display.display(display.HTML(video.video_html([folder / "after.mp4"], [CLIP])))
    strip = (folder / "strip.png").read_bytes()
    display.display(display.Image(strip, alt=f"Film strip of {CLIP}"))
    last = read_metrics(folder).dropna(subset="eval_return").iloc[-1]
    score = Evaluation(last.eval_returns, last.eval_lengths, last.eval_distances)
    seed, steps = read_config(folder).seed, grouped(int(last.env_step))
    text = f"Training seed {seed} after {steps} env steps, deterministic: {score}."
    print(textwrap.fill(text, 95))


def trained_agent(run: Run, env: PyEnvironment, strategy: tf.distribute.Strategy) -> Any:
    """The agent of a run's last checkpoint; without one, an untrained agent."""
    agent = create_agent(run.config, env, strategy)
    if saved := checkpoint.latest(run.path / "checkpoints"):
        checkpoint.assign(list(agent.variables), saved, partly=True)
    return agent


def estimated_q(agent: SeededSacAgent, observations: np.ndarray, actions: np.ndarray) -> np.ndarray:
    """The lower estimate of both critics `[n] float32`, in units of the scaled return.

    Observations are `[n, obs] float32`, actions `[n, act] float32`.
    """
    inputs = tf.constant(observations), tf.constant(actions)
    critics = (agent._critic_network_1, agent._critic_network_2)
    return np.minimum(*(network(inputs, step_type=())[0].numpy() for network in critics))


def estimates(
    agent: SeededSacAgent, env: PyEnvironment, policy: Policy, config: SACConfig, seed: int
) -> pd.DataFrame:
    """The critics' estimates in one episode, next to the discounted return that followed.

    A row has `estimated` and `returned`, in units of the scaled return. If a time limit ended the
    episode, the second half is left out, whose returns the limit cuts.
    """
    env.seed(seed)
    played = [transition for transition, _ in play(env, policy, env.reset())]
    following, returned = 0.0, np.zeros(len(played))
    for step in reversed(range(len(played))):
        reward = config.reward_scale_factor * float(played[step].reward)
        following = reward + config.gamma * float(played[step].discount) * following
        returned[step] = following
    observations = np.stack([t.observation for t in played])
    estimated = estimated_q(agent, observations, np.stack([t.action for t in played]))
    table = pd.DataFrame({"estimated": estimated, "returned": returned})
    truncated = float(played[-1].discount) > 0
    return table[: max(1, len(table) // 2)] if truncated else table


def estimates_figure(table: pd.DataFrame) -> Figure:
    """Draws `estimates` over the steps of the episode."""
    with subplots(8, 3.4) as (figure, axes):
        axes.plot(table["returned"], color=GREY, label="discounted return that followed")
        axes.plot(table["estimated"], "--", color=BLUE, label="lower of the two critics")
        axes.set(xlabel="env steps", ylabel="scaled return", title="Q and what came of it")
        figure.legend(loc="outside lower center", ncols=2)
    return figure


def if_any(draw: Callable[..., Figure], *arguments: Any, **options: Any) -> Figure | None:
    """The figure; or, if the run was stopped too early for it, a line that says so."""
    try:
        return draw(*arguments, **options)
    except NothingToDraw as reason:
        print(reason)
        return None
