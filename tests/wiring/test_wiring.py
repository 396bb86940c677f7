"""Every field of `SACConfig` reaches the part that it names, in each way to train.

One run for each executor has all fields off their defaults, with `spy/sitecustomize.py` in all its
processes. A check looks at what the part received and at what the run left: its table, metrics and
files. `pytest --collect-only -q tests/wiring` lists them.
"""

import json
import math
import os
import subprocess
import sys
from pathlib import Path

import attrs
import books
import numpy as np
import pandas as pd
import pytest
from conftest import OFF_DEFAULT
from torture import arrays_of

from labkit.config import SACConfig
from labkit.training import checkpoint
from labkit.training.components import EVAL_SEED, NOISE_SEED
from labkit.training.run import read_metrics

ROOT = Path(__file__).parents[2]
# Reverb is the only table that other processes can write to. The learner may be 100 gradient steps
# ahead of the workers: in a shorter run, they might not collect with its weights at all.
ON_RAY = {**OFF_DEFAULT, "replay": "reverb", "num_iterations": 144}
TRAIN = """
import json, sys
import labkit
if __name__ == "__main__":
    executor, folder, fields = sys.argv[1], sys.argv[2], json.loads(sys.argv[3])
    config = labkit.SACConfig(**fields)
    train = {"local": labkit.train, "ray": labkit.train_on_ray}[executor]
    train(config, run=labkit.open_run(folder, config))
"""


@attrs.frozen
class Evidence:
    """What one run left."""

    executor: str
    path: Path
    records: list[dict]
    rows: np.ndarray  # [transitions, 9] float32, oldest first

    def of(self, part: str) -> pd.DataFrame:
        """All records of one part; there must be some."""
        found = [one for one in self.records if one["part"] == part]
        assert found, f"nothing was recorded of {part!r}"
        return pd.DataFrame(found)

    def agents(self, field: str) -> list:
        """What each agent of the run has as `field`: learner's, workers' and evaluator's."""
        return list(self.of("agent")[field])

    @property
    def total(self) -> int:
        """The gradient steps of the run."""
        return ON_RAY["num_iterations"] if self.executor == "ray" else OFF_DEFAULT["num_iterations"]

    @property
    def logged(self) -> pd.DataFrame:
        """The rows of losses."""
        table = read_metrics(self.path)
        return table[table.critic_loss.notna()]

    @property
    def evaluated(self) -> pd.DataFrame:
        """The rows of evaluations."""
        table = read_metrics(self.path)
        return table[table.eval_return.notna()]


def execute(executor, folder, command):
    """Runs a command with the spy; returns the evidence of the run in `folder`/run."""
    spy = folder / "spy"
    spy.mkdir()
    path = os.pathsep.join([str(Path(__file__).parent / "spy"), str(ROOT)])
    env = {**os.environ, "LABKIT_SPY": str(spy), "PYTHONPATH": path}
    done = subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True, timeout=280)
    assert done.returncode == 0, (done.stdout + done.stderr)[-3000:]
    files = sorted(spy.glob("*.jsonl"), key=lambda file: file.stat().st_mtime)
    records = [json.loads(line) for file in files for line in file.read_text().splitlines()]
    saved = checkpoint.latest(folder / "run" / "checkpoints")
    return Evidence(executor, folder / "run", records, rows_of(saved / "replay", records))


def rows_of(snapshot, records):
    """The rows of the last checkpoint's table, oldest first; Reverb's as they were written."""
    if (snapshot / "rows.npz").exists():
        with np.load(snapshot / "rows.npz") as held:
            return held["rows"][np.argsort(held["ids"].ravel())]
    return np.array([one["row"] for one in records if one["part"] == "row"])


def as_text(fields):
    pairs = [("-p", name, str(value)) for name, value in fields.items()]
    return [part for pair in pairs for part in pair]


@pytest.fixture(scope="module")
def local(tmp_path_factory):
    folder = tmp_path_factory.mktemp("local")
    arguments = ["local", str(folder / "run"), json.dumps(OFF_DEFAULT)]
    return execute("local", folder, [sys.executable, "-c", TRAIN, *arguments])


@pytest.fixture(scope="module")
def ray(tmp_path_factory):
    folder = tmp_path_factory.mktemp("ray")
    arguments = ["ray", str(folder / "run"), json.dumps(ON_RAY)]
    return execute("ray", folder, [sys.executable, "-c", TRAIN, *arguments])


@pytest.fixture(scope="module")
def notebook(tmp_path_factory):
    folder = tmp_path_factory.mktemp("notebook")
    copy = books.write_copy("03", folder, books.DERIVATION)
    command = [sys.executable, "-m", "papermill", str(copy), "out.ipynb"]
    return execute("notebook", folder, [*command, *as_text({**OFF_DEFAULT, "run_dir": "run"})])


# --- one check for each field: what the part received, and what the run left


def check_env_name(seen):
    assert set(seen.of("environment").name) == {"Pendulum-v1"}
    np.testing.assert_allclose(seen.rows[:, 0] ** 2 + seen.rows[:, 1] ** 2, 1, atol=1e-5)


def check_num_iterations(seen):
    assert seen.logged.gradient_step.max() == seen.total
    assert seen.evaluated.gradient_step.max() == seen.total


def check_seed(seen):
    assert set(seen.agents("seed")) == {7}
    assert set(seen.of("global seed").seed) == {7}
    environments = seen.of("environment")
    collects = ~environments.bootstrap.astype(bool)  # OFF_DEFAULT: only these do not bootstrap
    assert set(environments.seed[collects]) == {7}
    assert 7 + NOISE_SEED in set(seen.of("policy").seed.dropna())
    assert set(seen.of("evaluation").seed) >= {7 + EVAL_SEED}
    shown = {7} if seen.executor == "notebook" else set()  # the batch that checks the losses
    assert set(seen.of("random policy").seed) == {7 + NOISE_SEED, *shown}


def check_strategy(seen):
    assert 2 in set(seen.of("strategy").replicas)


def check_initial_collect_steps(seen):
    random = seen.of("random action")
    actions = 2 * (random.seed == 7 + NOISE_SEED).sum()  # each lasts two env steps
    if seen.executor == "ray":  # a worker reads the table's counters every 50 steps
        assert 230 <= actions <= 230 + 50
        assert seen.of("table").min_size.max() == 230 / 2
    else:
        assert seen.evaluated.env_step.iloc[0] == 230 == actions


def check_collect_steps_per_iteration(seen):
    if seen.executor == "ray":
        assert seen.of("table").samples_per_insert.max() == 8 / 4 * 2
    else:
        assert (seen.logged.env_step == 230 + 4 * seen.logged.gradient_step).all()


def check_action_repeat(seen):
    assert set(seen.of("policy").repeat) == {2}
    assert set(seen.of("random policy").repeat) == {2}
    if seen.executor == "ray":
        assert seen.of("table").samples_per_insert.max() == 4, "a row for every second env step"


def check_n_step(seen):
    assert set(seen.of("windows").n_step) == {6}, "three actions of two env steps each"
    whole = seen.rows[:, 5] > 0
    same = np.isclose(seen.rows[:-3, 6:], seen.rows[3:, :3]).all(axis=1)
    assert same[whole[:-3]].mean() > 0.9, "the next observation is that of three actions later"


def check_bootstrap_time_limits(seen):
    environments = seen.of("environment")
    assert (~environments.bootstrap.astype(bool)).any(), "the one that collects"
    ends = (seen.rows[:, 5] == 0).sum()
    assert ends == 3 or (seen.executor == "ray" and ends > 3), "windows that end at the limit"


def check_replay(seen):
    saved = checkpoint.latest(seen.path / "checkpoints") / "replay"
    assert (saved / "rows.npz").exists() != (seen.executor == "ray")
    assert (saved / "DONE").exists() == (seen.executor == "ray")


def check_replay_buffer_capacity(seen):
    tables = seen.of("table")
    assert set(tables[tables["name"] == "transitions"].capacity) == {150}
    if seen.executor != "ray":
        assert len(seen.rows) == 150


def check_recent_transitions(seen):
    tables = seen.of("table")
    assert set(tables[tables["name"] == "recent transitions"].capacity) == {40}
    if seen.executor == "ray":
        assert set(seen.of("recent")["count"]) == {40}


def check_symmetry_augmentation(seen):
    reflected = list(seen.of("update").reflected_action)
    assert [-1] in reflected, "the learner's"
    assert all(reflected) or seen.executor == "notebook"  # its sections take a few steps without


def check_batch_size(seen):
    assert set(seen.of("batches")["size"]) == {16}


def check_steps_per_call(seen):
    assert seen.of("call").steps.max() == 4


def assert_rates(seen, place, expected):
    found = [rates[place] for rates in seen.agents("learning_rates")]
    np.testing.assert_allclose(found, expected, rtol=1e-6)


def check_critic_learning_rate(seen):
    assert_rates(seen, 0, 1e-3)


def check_actor_learning_rate(seen):
    assert_rates(seen, 1, 2e-3)


def check_alpha_learning_rate(seen):
    assert_rates(seen, 2, 4e-3)


def check_learning_rate_decay_steps(seen):
    for steps in seen.agents("decay_steps"):
        assert steps == [50, 50, 50], "critics, actor, temperature"


def check_actor_update_period(seen):
    assert set(seen.agents("actor_period")) == {2}
    arrays = arrays_of(checkpoint.latest(seen.path / "checkpoints"))
    counts = {int(array) for array in arrays if array.dtype == np.int64 and array.ndim == 0}
    assert counts >= {seen.total, seen.total // 2}, "Adam's own counts of its steps: critics, actor"


def check_target_update_tau(seen):
    assert set(seen.agents("tau")) == {0.02}


def check_target_update_period(seen):
    assert set(seen.agents("period")) == {3}


def check_gamma(seen):
    assert set(seen.agents("gamma")) == {0.9}
    assert set(seen.of("windows").gamma) == {0.9}
    whole = np.unique(seen.rows[:, 5].round(5))
    assert np.isclose(whole, 0.9**5).any(), "of six env steps"


def check_reward_scale_factor(seen):
    assert set(seen.agents("reward_scale")) == {0.5}


def check_initial_log_alpha(seen):
    assert set(seen.agents("log_alpha")) == {-2.0}
    assert seen.logged.alpha.iloc[0] == pytest.approx(math.exp(-2), rel=0.1)


def check_target_entropy(seen):
    assert set(seen.agents("target_entropy")) == {-1.5}


def check_observation_scale(seen):
    for scales in seen.agents("scales"):
        assert set(map(tuple, scales.values())) == {(1.0, 2.0, 4.0)}, scales


def check_actor_fc_layer_params(seen):
    for kernels in seen.agents("kernels"):
        assert kernels["actor"] == [[3, 24], [24, 12], [12, 2]]


def check_critic_joint_fc_layer_params(seen):
    for kernels in seen.agents("kernels"):
        critics = [shapes for name, shapes in kernels.items() if name != "actor"]
        assert critics == [[[4, 20], [20, 10], [10, 1]]] * 4


def check_critic_layer_norm(seen):
    for layers in seen.agents("normalised"):
        assert list(layers.values()) == [2] * 4


def check_log_interval(seen):
    assert seen.logged.gradient_step.tolist() == list(range(6, seen.total + 1, 6))


def check_eval_interval(seen):
    assert seen.evaluated.gradient_step.tolist() == list(range(0, seen.total + 1, 16))


def check_interim_eval_episodes(seen):
    lengths = [len(one) for one in seen.evaluated.eval_returns[:-1]]
    assert lengths == [2] * (seen.total // 16)


def check_num_eval_episodes(seen):
    assert len(seen.evaluated.eval_returns.iloc[-1]) == 3


def check_policy_save_interval(seen):
    assert seen.of("policy saved").step.tolist() == list(range(12, seen.total + 1, 12))


def check_checkpoint_interval(seen):
    assert set(seen.of("checkpoint").step) >= {20, 40}


def check_checkpoint_seconds(seen):
    """The spy makes the clock of the run go faster, so that a second passes between two calls."""
    by_time = set(seen.of("checkpoint").step) - {*range(20, seen.total, 20), seen.total}
    assert by_time, "no checkpoint but those by steps and the last"


def check_environment_timeout(seen):
    limits = seen.of("environment").timeout
    assert set(limits[limits > 0]) == {77}
    # On Ray: the driver's, the learner's, the worker's and the evaluator's.
    assert (limits > 0).sum() >= (4 if seen.executor == "ray" else 1)


CHECKS = {name[6:]: check for name, check in globals().items() if name.startswith("check_")}


@pytest.mark.timeout(300)
@pytest.mark.parametrize("field", SACConfig.names())
@pytest.mark.parametrize("executor", ["local", "ray", "notebook"])
def test_field(executor, field, request):
    """A field of `SACConfig` without a check fails here."""
    CHECKS[field](request.getfixturevalue(executor))


def test_every_field_is_off_its_default():
    fields, default = SACConfig(**OFF_DEFAULT), SACConfig(env_name="Pendulum-v1")
    same = [name for name in SACConfig.names() if getattr(fields, name) == getattr(default, name)]
    assert same == ["env_name"]
    assert fields.collect_steps_per_iteration != fields.action_repeat, "its default"
    assert SACConfig().env_name != fields.env_name
    assert list(OFF_DEFAULT) == SACConfig.names()


@pytest.mark.parametrize("executor", ["local", "ray", "notebook"])
def test_the_policy_that_collects_gets_newer_weights(executor, request):
    weights = request.getfixturevalue(executor).of("weights")
    assert weights.total[weights.explores].nunique() >= 3  # initial ones, and those of two calls


@pytest.mark.parametrize("executor", ["local", "ray", "notebook"])
def test_evaluations_are_deterministic_and_played_as_often_as_configured(executor, request):
    seen = request.getfixturevalue(executor)
    played = seen.of("evaluation")
    if executor == "notebook":  # its last one is exercise 4, which samples on purpose
        played = played[played.seed != 99]
    assert played.deterministic.all()
    assert played.episodes.tolist() == [2] * (seen.total // 16) + [3]
    assert played.seed.nunique() == 2, "the final episodes are not those of the interim scores"
