"""The model card of an exported policy, in the format of Hugging Face: YAML, then Markdown.

Every number is read from the run's `config.json` and `metrics.csv`.
https://huggingface.co/docs/hub/model-cards describes the YAML fields.
"""

import json
from pathlib import Path
from typing import Any

import attrs
import numpy as np

from labkit.config import SACConfig
from labkit.environments.make import check_name
from labkit.errors import ParameterError
from labkit.parameters import grouped
from labkit.sac.rollout import Evaluation
from labkit.sac.saved_policy import CHECKED
from labkit.training.run import RAY_SUMMARY, is_finished, read_config, read_content, read_metrics

LICENSE = "apache-2.0"  # labkit's
WATCH = """
With labkit, `labkit watch FOLDER` plays two episodes of this policy and records a clip.
"""
SHOWN = (
    *("num_iterations", "initial_collect_steps", "collect_steps_per_iteration"),
    *("n_step", "replay_buffer_capacity", "recent_transitions"),
    *("symmetry_augmentation", "batch_size", "gamma"),
    *("actor_learning_rate", "critic_learning_rate", "learning_rate_decay_steps"),
    "actor_update_period",
    *("reward_scale_factor", "initial_log_alpha", "target_entropy"),
    *("actor_fc_layer_params", "critic_joint_fc_layer_params", "critic_layer_norm"),
)


@attrs.frozen
class RunFacts:
    """What a card says of a run.

    Attributes:
        config: the run's configuration.
        commit: labkit's git commit, or None if the run did not record it.
        versions: those of the packages that trained it.
        on_ray: whether `train_on_ray` trained it.
        environment: the record of the run's environment, empty if it has none; see
            `run.describe`.
        evaluation: the final evaluation; None if the run has not finished.
        env_steps, seconds: at that evaluation, or at the last row.
    """

    config: SACConfig
    commit: str | None
    versions: dict[str, str]
    on_ray: bool
    environment: dict[str, Any]
    evaluation: Evaluation | None
    env_steps: int
    seconds: float


def read_facts(folder: Path) -> RunFacts:
    """Reads a run directory.

    Raises:
        ParameterError: `config.json` or `metrics.csv` is missing or damaged.
    """
    config = read_config(folder)
    content = json.loads((folder / "config.json").read_text())
    table = read_metrics(folder)
    evaluation = None
    if is_finished(folder, config):
        table = table[table.eval_returns.map(len) > 0]
        last = table.iloc[-1]
        evaluation = Evaluation(last.eval_returns, last.eval_lengths, last.eval_distances)
    return RunFacts(
        config=config,
        commit=content.get("commit"),
        versions=_versions(folder, content),
        on_ray=(folder / RAY_SUMMARY).is_file(),
        environment=read_content(folder).get("environment") or {},
        evaluation=evaluation,
        # On Ray, the last row may be an evaluation of earlier weights.
        env_steps=int(table.env_step.max()) if len(table) else 0,
        seconds=float(table.wall_seconds.max()) if len(table) else 0.0,
    )


def _versions(folder: Path, content: dict[str, Any]) -> dict[str, str]:
    versions = content.get("versions") or {}
    if not isinstance(versions, dict):
        raise ParameterError(
            f"{folder / 'config.json'} is damaged: its versions are no JSON object"
        )
    return {str(name): str(version) for name, version in versions.items()}


def write(
    facts: RunFacts, observation_size: int, action_size: int, difference: float, *, has_video: bool
) -> str:
    """The card, `README.md`; see `saved_policy.difference` for `difference`."""
    config = facts.config
    parts = [
        front_matter(facts),
        f"""# Soft Actor-Critic on {config.env_name}

The deterministic policy of one training run of labkit. It maps an observation
(`[{observation_size}]`, float32) to the mean action (`[{action_size}]`, float32). The folder holds
the same policy in three forms: TensorFlow SavedModel, ONNX model, and NumPy arrays. On
{grouped(CHECKED)} random observations, their actions differed by at most {difference:.1e} of half
the action's range, which is float32 rounding. A simulation with contacts amplifies rounding, so an
episode played with two of them is the same only at its beginning.
""",
        "A video of the policy after training: [replay.mp4](replay.mp4).\n" if has_video else "",
        _evaluation(facts),
        _use(facts),
        _training(facts),
        _limits(facts),
    ]
    return "\n".join(part for part in parts if part)


# --- the YAML


def front_matter(facts: RunFacts) -> str:
    """The metadata that the Hub reads, between two lines `---`."""
    name = facts.config.env_name
    tags = ["reinforcement-learning", "deep-reinforcement-learning", "soft-actor-critic"]
    lines = [
        "---",
        f"license: {LICENSE}",
        "library_name: labkit",
        "pipeline_tag: reinforcement-learning",
        "tags:",
        *(f"- {tag}" for tag in (*tags, "tf-agents", "onnx", "numpy", _quoted(name))),
    ]
    if facts.evaluation:
        lines += _model_index(facts, facts.evaluation)
    return "\n".join([*lines, "---", ""])


def _model_index(facts: RunFacts, evaluation: Evaluation) -> list[str]:
    name = _quoted(facts.config.env_name)
    spread = f"{evaluation.mean_return:.2f} +/- {_standard_deviation(evaluation):.2f}"
    details = {
        "episodes": len(evaluation.returns),
        "env_steps": facts.env_steps,
        "gradient_steps": facts.config.num_iterations,
        "training_seed": facts.config.seed,
        "commit": facts.commit or "not recorded",
    }
    return [
        "model-index:",
        f"- name: {_quoted('sac-' + facts.config.env_name)}",
        "  results:",
        "  - task:",
        "      type: reinforcement-learning",
        "      name: reinforcement-learning",
        "    dataset:",
        f"      type: {name}",
        f"      name: {name}",
        "    metrics:",
        "    - type: mean_reward",
        f"      value: {_quoted(spread)}",
        "      name: mean_reward",
        "      verified: false",
        "      args:",
        *(f"        {key}: {json.dumps(value)}" for key, value in details.items()),
    ]


def _quoted(text: str) -> str:
    """A YAML string: JSON's are a subset."""
    return json.dumps(text)


def _standard_deviation(evaluation: Evaluation) -> float:
    returns = evaluation.returns
    return float(np.std(returns, ddof=1)) if len(returns) > 1 else 0.0


# --- the text


def _evaluation(facts: RunFacts) -> str:
    if facts.evaluation is None:
        return f"""## Evaluation

None: the run has not finished. After {grouped(facts.env_steps)} env steps, its policy may
be older or newer than its last evaluation. Resume the run, then export it again.
"""
    one = facts.evaluation
    rows = {
        "return, mean ± standard deviation": (
            f"{one.mean_return:.2f} ± {_standard_deviation(one):.2f}"
        ),
        "return, worst and best episode": f"{min(one.returns):.2f}, {max(one.returns):.2f}",
        "length of an episode, mean": f"{np.mean(one.lengths):.0f} env steps",
    }
    if np.isfinite(one.distances).all():
        rows["distance forward, mean"] = f"{np.mean(one.distances):.2f} m"
    if limit := facts.environment.get("max_episode_steps"):
        rows["time limit of an episode"] = f"{grouped(limit)} env steps"
    rows |= {
        "episodes": str(len(one.returns)),
        "env steps of training": grouped(facts.env_steps),
        "gradient steps": grouped(facts.config.num_iterations),
        "training seed": str(facts.config.seed),
        "labkit's commit": f"`{facts.commit}`" if facts.commit else "not recorded",
    }
    return f"""## Evaluation

The final evaluation of the run, with deterministic actions. A return is the sum of the
environment's own rewards in one episode, without discount; the standard deviation is over episodes.
`metrics.csv` lists every episode in its last row with `eval_returns`.

{_table(("measure", "value"), rows)}
"""


def _use(facts: RunFacts) -> str:
    return f"""## How to use it

Check the files first: `sha256sum --check SHA256SUMS`. In the code below, `observation` is what
{facts.config.env_name} returns, in the environment's order and units: the policy scales it itself.
**NumPy alone.** `policy.py` checks the SHA-256 of `policy.npz` and loads it without pickle:

    from policy import Policy

    policy = Policy()
    action = policy(observation)

**ONNX**, with onnxruntime in any language. The first dimension is a batch:

    import onnxruntime

    session = onnxruntime.InferenceSession("policy.onnx")
    action = session.run(None, {{"observation": observation[None].astype("float32")}})[0][0]

**SavedModel**, with TensorFlow 2.15 and TF-Agents 0.19:

    import tensorflow as tf
    from tf_agents.trajectories import time_step as ts

    policy = tf.saved_model.load("policy")
    step = ts.restart(observation[None].astype("float32"), batch_size=1)
    action = policy.action(step).action[0].numpy()
{"" if _users_own(facts) else WATCH}"""


def _training(facts: RunFacts) -> str:
    versions = ", ".join(f"{name} {version}" for name, version in facts.versions.items() if version)
    values = {f"`{name}`": str(getattr(facts.config, name)) for name in SHOWN}
    return f"""## How it was trained

With labkit, Soft Actor-Critic on TF-Agents, for {grouped(facts.env_steps)} env steps
in {facts.seconds / 60:.0f} minutes. `config.json` has every hyperparameter; these are some of them:

{_table(("hyperparameter", "value"), values)}

{_repeat(facts)}
Versions: {versions or "not recorded"}.
"""


def _repeat(facts: RunFacts) -> str:
    """How to train again with the same configuration."""
    arguments = "config"
    if _users_own(facts):
        arguments += ", make_env=MyEnv"
    if limit := facts.environment.get("max_episode_steps"):
        arguments += f", max_episode_steps={limit}"
    train = "labkit.train_on_ray" if facts.on_ray else "labkit.train"
    return f"""To train with the same configuration, in this folder:

    from pathlib import Path

    import labkit
    from labkit.training.run import read_config

    config = read_config(Path("."))
    run = {train}({arguments})
"""


def _users_own(facts: RunFacts) -> bool:
    """Whether the environment came from `make_env`: then no id makes it again."""
    try:
        check_name(facts.config.env_name)
    except ParameterError:
        return True
    return facts.environment.get("name", facts.config.env_name) != facts.config.env_name


def _limits(facts: RunFacts) -> str:
    return f"""## Intended use and limits

For teaching and research in simulation: to look at, to compare with, to start from.

- The policy comes from one run with one seed. Another seed gives another policy and another
  return. If this run was chosen from several because of its return, that return overestimates what
  a new run gives.
- It was trained and evaluated in one simulated environment, {facts.config.env_name}. Its
  behaviour elsewhere was not measured: in another version of the environment, with noisy or delayed
  observations, on a real robot. A real robot needs limits on torque and speed that work without
  the policy.
- It is deterministic: it has no exploration noise.

## Licence

Apache-2.0, labkit's licence. If you choose another one for your policy, change `license` in the
first lines of this file.
"""


def _table(header: tuple[str, str], rows: dict[str, str]) -> str:
    """A Markdown table of two columns."""
    lines = [f"| {name} | {value} |" for name, value in (header, *rows.items())]
    return "\n".join([lines[0], "|---|---|", *lines[1:]])
