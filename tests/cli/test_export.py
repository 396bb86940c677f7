"""`labkit export`: three forms of one policy, and a card with the run's own numbers."""

import csv
import functools
import hashlib
import importlib.util
import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import gym
import numpy as np
import onnxruntime
import pytest
import yaml
from click.testing import CliRunner

import labkit
from labkit.cli import export, watch
from labkit.cli.main import main
from labkit.errors import ParameterError
from labkit.sac import onnx_policy, saved_policy
from labkit.training import saved_weights
from labkit.training.run import TRACKED_POLICY, open_run

ROOT = Path(__file__).parents[2]
TRACKED = ROOT / TRACKED_POLICY


def invoke(*arguments: str):
    return CliRunner().invoke(main, ["export", *arguments])


class Shifted(gym.Env):
    """A tiny environment whose actions are from −1 to 3 and from 0 to 0.5."""

    observation_space = gym.spaces.Box(-np.inf, np.inf, (3,), np.float32)
    action_space = gym.spaces.Box(np.float32([-1, 0]), np.float32([3, 0.5]))

    def reset(self):
        return np.zeros(3, np.float32)

    def step(self, action):
        return np.float32([*action, 1]), float(action[0]), False, {}


@pytest.fixture(scope="module")
def tracked(tmp_path_factory):
    """The exported policy of the tracked run."""
    target = tmp_path_factory.mktemp("exports") / "best-300000"
    export.write(TRACKED, target)
    return target


@pytest.fixture(scope="module")
def shifted(tmp_path_factory):
    """An exported run of `Shifted`, trained for a moment; its policy has one small hidden layer."""
    folder = tmp_path_factory.mktemp("shifted")
    config = labkit.SACConfig(
        env_name="Shifted",
        num_iterations=3,
        initial_collect_steps=40,
        replay="tf_uniform",
        replay_buffer_capacity=100,
        batch_size=8,
        observation_scale=(0.5, 2.0, 4.0),
        actor_fc_layer_params=(7,),
        action_repeat=2,
        critic_joint_fc_layer_params=(5,),
        num_eval_episodes=2,
        seed=3,
    )
    run = open_run(folder / "run", config)
    labkit.train(config, run, make_env=Shifted, max_episode_steps=10)
    export.write(run.path, folder / "out")
    return folder / "out"


@pytest.fixture(params=["tracked", "shifted"])
def folder(request):
    return request.getfixturevalue(request.param)


def saved_model_actions(folder: Path, observations: np.ndarray) -> np.ndarray:
    """What the SavedModel answers, in the words of the card."""
    import tensorflow as tf
    from tf_agents.trajectories import time_step as ts

    policy = tf.saved_model.load(str(folder / "policy"))
    return policy.action(ts.restart(observations, batch_size=len(observations))).action.numpy()


def observations_for(folder: Path) -> np.ndarray:
    """1 000 observations `[1000, obs] float32`; for the Minitaur, 300 are those of a walk."""
    generator = np.random.default_rng(1)
    if folder.name != "best-300000":
        return (generator.normal(size=(1000, 3)) * [0.5, 2, 4]).astype(np.float32)
    arrays = np.load(folder / "policy.npz")
    random = generator.normal(size=(700, 28)) * arrays["observation_scale"] / 3
    return np.concatenate([walk(), random]).astype(np.float32)


@functools.cache
def walk() -> np.ndarray:
    """Observations `[300, 28]` of the first three seconds of the tracked policy, with noise."""
    env, act = watch.load(TRACKED)
    generator = np.random.default_rng(0)
    env.seed(0)
    step, seen = env.reset(), []
    for _ in range(300):
        seen.append(step.observation)
        action = act(step.observation) + generator.normal(0, 0.1, 8)
        step = env.step(np.clip(action, -1, 1).astype(np.float32))
    return np.array(seen)


def loaded(folder: Path, **options):
    """The class of an exported `policy.py`, applied."""
    spec = importlib.util.spec_from_file_location("exported_policy", folder / "policy.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.Policy(**options)


# --- the three forms


def test_onnx_gives_the_actions_of_the_saved_model(folder):
    observations = observations_for(folder)
    session = onnxruntime.InferenceSession(folder / "policy.onnx")
    (actions,) = session.run(["action"], {"observation": observations})
    assert actions.dtype == np.float32
    wanted = saved_model_actions(folder, observations)
    np.testing.assert_allclose(actions, wanted, rtol=0, atol=1e-5)
    assert np.ptp(wanted, axis=0).min() > 0.01  # the actions depend on the observation
    (one,) = session.run(None, {"observation": observations[:1]})
    np.testing.assert_allclose(one, wanted[:1], rtol=0, atol=1e-5)


ALONE = """
import sys

class Blocked:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in ("tensorflow", "tf_agents", "labkit", "onnx", "pandas"):
            raise ImportError(name)

sys.meta_path.insert(0, Blocked())
import numpy as np
from policy import Policy

observations = np.load(sys.argv[1])
policy = Policy()
np.save(sys.argv[2], policy(observations))
single = np.stack([policy(one) for one in observations[:3]])
np.testing.assert_allclose(single, policy(observations[:3]), atol=1e-5)
foreign = {name.split(".")[0] for name in sys.modules} & {"tensorflow", "tf_agents", "labkit"}
assert not foreign, foreign
"""


def test_numpy_alone_gives_the_actions_of_the_saved_model(folder, tmp_path):
    observations = observations_for(folder)
    np.save(tmp_path / "in.npy", observations)
    files = [str(tmp_path / "in.npy"), str(tmp_path / "out.npy")]
    done = subprocess.run(
        [sys.executable, "-c", ALONE, *files], cwd=folder, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    actions = np.load(tmp_path / "out.npy")
    assert actions.dtype == np.float32
    wanted = saved_model_actions(folder, observations)
    np.testing.assert_allclose(actions, wanted, rtol=0, atol=1e-5)


def test_the_files_say_how_long_an_action_lasts(folder):
    repeat = {"best-300000": 1, "out": 2}[folder.name]
    assert loaded(folder).action_repeat == repeat
    session = onnxruntime.InferenceSession(folder / "policy.onnx")
    assert session.get_modelmeta().custom_metadata_map["action_repeat"] == str(repeat)


def test_the_action_s_own_range_is_used(shifted):
    actions = loaded(shifted)(1e3 * observations_for(shifted))  # tanh is near −1 or 1
    assert actions[:, 0].min() == pytest.approx(-1, abs=0.1)
    assert actions[:, 0].max() == pytest.approx(3, abs=0.1)
    assert actions[:, 1].min() == pytest.approx(0, abs=0.02)
    assert actions[:, 1].max() == pytest.approx(0.5, abs=0.02)


def test_the_exported_policy_walks_as_the_saved_model_does(tracked):
    """Their actions differ in the last bits, which contacts amplify within some steps.

    One episode of either may stumble, so both have three.
    """
    env, saved = watch.load(tracked)
    exported, seeds = loaded(tracked), (5, 6, 7)

    def checked(observation):
        action = exported(observation)
        np.testing.assert_allclose(action, saved(observation), rtol=0, atol=1e-5)
        return action

    for act in (checked, saved):
        returns = [returns_so_far(env, act, seed, steps=150)[-1] for seed in seeds]
        assert np.median(returns) > 1.5, returns  # about a metre a second
    early = [returns_so_far(env, act, 5, steps=5) for act in (exported, saved)]
    np.testing.assert_allclose(*early, rtol=0, atol=1e-5)


def returns_so_far(env, act, seed: int, steps: int) -> np.ndarray:
    """The return `[steps]` after each env step of one episode."""
    env.seed(seed)
    step, rewards = env.reset(), []
    for _ in range(steps):
        step = env.step(act(step.observation))
        rewards.append(float(step.reward))
    return np.cumsum(rewards)


@pytest.mark.parametrize("shape", [(), (1,), (28, 1), (2, 27), (1, 1, 28)])
def test_an_observation_of_another_shape_is_an_error(tracked, shape):
    act = loaded(tracked)
    assert act(np.zeros(28)).shape == (8,)
    assert act(np.zeros((2, 28))).shape == (2, 8)
    with pytest.raises(ValueError, match=r"has shape .*; \[28\] or \[batch, 28\]$"):
        act(np.zeros(shape))


# --- hashes


def test_a_damaged_file_is_not_loaded(tracked, tmp_path):
    for name in ("policy.npz", "policy.py", "SHA256SUMS"):
        shutil.copy(tracked / name, tmp_path)
    data = bytearray((tmp_path / "policy.npz").read_bytes())
    digest = hashlib.sha256(data).hexdigest()
    loaded(tmp_path, sha256=digest)
    with pytest.raises(ValueError, match=r"policy\.npz is damaged: its SHA-256"):
        loaded(tmp_path, sha256=digest[::-1])
    data[len(data) // 2] ^= 1
    (tmp_path / "policy.npz").write_bytes(data)
    with pytest.raises(ValueError, match=r"policy\.npz is damaged: its SHA-256"):
        loaded(tmp_path)


def test_every_file_but_the_card_is_in_sha256sums(folder):
    done = subprocess.run(
        ["sha256sum", "--check", "--strict", "SHA256SUMS"], cwd=folder, capture_output=True
    )
    assert done.returncode == 0
    listed = {line.split("  ", 1)[1] for line in (folder / "SHA256SUMS").read_text().splitlines()}
    files = {str(f.relative_to(folder)) for f in folder.rglob("*") if f.is_file()}
    assert files - listed == {"README.md", "SHA256SUMS"}
    assert not listed - files
    assert {"policy.onnx", "policy.npz", "policy.py", "policy/saved_model.pb"} <= listed


def test_the_arrays_need_no_pickle(folder):
    arrays = np.load(folder / "policy.npz", allow_pickle=False)
    dtypes = {name: arrays[name].dtype for name in arrays.files}
    assert dtypes.pop("action_repeat") == np.int64
    assert set(dtypes.values()) == {np.dtype(np.float32)}
    config = json.loads((folder / "config.json").read_text())["config"]
    np.testing.assert_array_equal(
        arrays["observation_scale"], np.float32(config["observation_scale"])
    )


def test_the_same_run_gives_the_same_bytes(tracked, tmp_path):
    export.write(TRACKED, tmp_path / "again")
    assert (tmp_path / "again" / "SHA256SUMS").read_text() == (tracked / "SHA256SUMS").read_text()
    assert (tmp_path / "again" / "README.md").read_text() == (tracked / "README.md").read_text()


# --- the card


def front_matter(folder: Path) -> dict:
    _, matter, text = (folder / "README.md").read_text().split("---\n", 2)
    assert text.strip().startswith("# ")
    return yaml.safe_load(matter)


def check_metadata(card: dict) -> None:
    """The fields of https://huggingface.co/docs/hub/model-cards that labkit uses, strictly."""
    assert set(card) <= {"license", "library_name", "pipeline_tag", "tags", "model-index"}
    assert card["license"] == "apache-2.0"
    assert card["library_name"] == "labkit"
    assert card["pipeline_tag"] == "reinforcement-learning"
    assert all(isinstance(tag, str) for tag in card["tags"])
    for model in card.get("model-index", []):
        assert set(model) == {"name", "results"}
        for result in model["results"]:
            assert set(result) == {"task", "dataset", "metrics"}
            assert set(result["task"]) == {"type", "name"}
            assert set(result["dataset"]) == {"type", "name"}
            for metric in result["metrics"]:
                assert set(metric) <= {"type", "value", "name", "config", "args", "verified"}
                assert {"type", "value"} <= set(metric)


def test_the_card_has_the_numbers_of_the_run(tracked):
    card = front_matter(tracked)
    check_metadata(card)
    (result,) = card["model-index"][0]["results"]
    (metric,) = result["metrics"]
    with (TRACKED / "metrics.csv").open() as stream:
        last = [row for row in csv.DictReader(stream) if row["eval_returns"]][-1]
    returns = np.array(last["eval_returns"].split(), float)
    assert metric["value"] == f"{returns.mean():.2f} +/- {returns.std(ddof=1):.2f}"
    assert metric["args"] == {
        "episodes": len(returns),
        "env_steps": int(last["env_step"]),
        "gradient_steps": int(last["gradient_step"]),
        "training_seed": 1,
        "commit": json.loads((TRACKED / "config.json").read_text())["commit"],
    }
    assert result["dataset"]["type"] == "MinitaurBulletEnv-v0"
    text = (tracked / "README.md").read_text()
    distances = np.array(last["eval_distances"].split(), float)
    assert f"| distance forward, mean | {distances.mean():.2f} m |" in text
    assert "(replay.mp4)" in text
    assert "`labkit watch FOLDER` plays two episodes" in text
    assert (tracked / "replay.mp4").read_bytes() == (TRACKED / "after.mp4").read_bytes()


def test_the_card_of_a_run_of_0_1_names_the_parameter_that_was_removed(tmp_path):
    export.write(TRACKED.with_name("v0.1") / "best", tmp_path / "old")
    assert "it no longer has `greedy_share` 0.3" in (tmp_path / "old" / "README.md").read_text()
    (metric,) = front_matter(tmp_path / "old")["model-index"][0]["results"][0]["metrics"]
    assert metric["args"]["commit"] == "not recorded"


def test_the_card_of_an_own_environment(shifted):
    card = front_matter(shifted)
    check_metadata(card)
    (metric,) = card["model-index"][0]["results"][0]["metrics"]
    commit = json.loads((shifted / "config.json").read_text())["commit"]
    assert metric["args"]["commit"] == (commit or "not recorded")
    assert metric["args"]["training_seed"] == 3
    text = (shifted / "README.md").read_text()
    assert "labkit.train(config, make_env=MyEnv, max_episode_steps=10)" in text
    assert "| time limit of an episode | 10 env steps |" in text
    assert json.loads((shifted / "environment.json").read_text())["max_episode_steps"] == 10
    assert "distance" not in text.split("## How to use")[0]  # it has none
    assert "replay.mp4" not in text
    assert "labkit watch" not in text  # it cannot make the environment


def test_the_code_of_the_card_runs(tracked):
    """Each of the three examples, as it is written, on one observation."""
    text = (tracked / "README.md").read_text().split("## How to use it")[1].split("## How it")[0]
    blocks = re.findall(r"(?:^    .*\n|^\n)+", text, re.MULTILINE)
    codes = [re.sub(r"^    ", "", block, flags=re.MULTILINE) for block in blocks if block.strip()]
    assert len(codes) == 3
    begin = "import labkit, numpy as np\nobservation = np.full(28, 0.1)\n"  # float64, as from gym
    end = "\nprint(' '.join(f'{x:.4f}' for x in action))"
    script = "\n".join(begin + code + end for code in codes)
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=tracked, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    actions = [np.array(line.split(), float) for line in done.stdout.splitlines()]
    assert len(actions) == 3
    np.testing.assert_allclose(actions[0], actions[1], atol=2e-4)
    np.testing.assert_allclose(actions[0], actions[2], atol=2e-4)


def copy_of_run(tmp_path: Path) -> Path:
    return Path(shutil.copytree(TRACKED, tmp_path / "run"))


def test_an_unfinished_run_reports_no_result(tmp_path):
    run = copy_of_run(tmp_path)
    lines = (run / "metrics.csv").read_text().splitlines(keepends=True)
    (run / "metrics.csv").write_text("".join(lines[:-1]))
    export.write(run, tmp_path / "out")
    card = front_matter(tmp_path / "out")
    check_metadata(card)
    assert "model-index" not in card
    assert "the run has not finished" in (tmp_path / "out" / "README.md").read_text()


# --- what is refused


def refused(tmp_path: Path, run: Path) -> str:
    """The one line with which an export ends; it leaves nothing behind."""
    before = {str(path) for path in tmp_path.rglob("*")}
    done = invoke(str(run), "--out", str(tmp_path / "new" / "out"))
    assert done.exit_code == 2, done.output
    (line,) = done.stderr.splitlines()
    left = {str(path) for path in tmp_path.rglob("*")} - before
    assert left <= {str(tmp_path / "new")}
    return line


def test_a_run_without_a_policy_is_refused(tmp_path):
    run = copy_of_run(tmp_path)
    shutil.rmtree(run / "policy")
    assert refused(tmp_path, run).endswith("run has no saved policy (policy/saved_model.pb)")


def test_a_folder_that_is_no_run_is_refused(tmp_path):
    assert "config.json cannot be read" in refused(tmp_path, tmp_path)


@pytest.mark.parametrize(
    "file", ["saved_model.pb", "variables/variables.data-00000-of-00001", "policy_specs.pbtxt"]
)
def test_a_damaged_policy_is_refused(tmp_path, file):
    run = copy_of_run(tmp_path)
    data = (run / "policy" / file).read_bytes()
    (run / "policy" / file).write_bytes(data[: len(data) // 2])
    assert re.match(r"ParameterError: .*run/policy is damaged \(.+\)", refused(tmp_path, run))


def test_a_flipped_bit_of_the_weights_is_refused(tmp_path):
    run = copy_of_run(tmp_path)
    file = run / "policy" / "variables" / "variables.data-00000-of-00001"
    data = bytearray(file.read_bytes())
    data[1000] ^= 1
    file.write_bytes(data)
    assert "run/policy is damaged (" in refused(tmp_path, run)


def test_a_policy_with_another_scale_than_its_configuration_is_refused(tmp_path):
    run = copy_of_run(tmp_path)
    content = json.loads((run / "config.json").read_text())
    content["config"]["observation_scale"] = [1.0] * 28
    (run / "config.json").write_text(json.dumps(content))
    line = refused(tmp_path, run)
    assert "run/policy cannot be exported: policy.npz differs from" in line


def test_a_policy_with_other_layers_is_refused(tmp_path):
    import tensorflow as tf

    run = copy_of_run(tmp_path)

    class Other(tf.Module):
        def __init__(self):
            super().__init__()
            self.model_variables = [tf.Variable(tf.ones([28, 8]))]

        @tf.function(input_signature=[tf.TensorSpec([None, 28])])
        def action(self, observation):
            return observation @ self.model_variables[0]

    specs = (run / "policy" / "policy_specs.pbtxt").read_bytes()
    shutil.rmtree(run / "policy")
    tf.saved_model.save(Other(), str(run / "policy"))
    (run / "policy" / "policy_specs.pbtxt").write_bytes(specs)
    line = refused(tmp_path, run)
    assert "run/policy cannot be expressed without TensorFlow: its weights are not dense" in line


def test_a_form_with_other_actions_is_noticed_before_anybody_uses_it(tmp_path, monkeypatch):
    build = onnx_policy.build

    def unscaled(arrays, metadata):
        scale = np.ones_like(arrays["observation_scale"])
        return build({**arrays, "observation_scale": scale}, metadata)

    monkeypatch.setattr(onnx_policy, "build", unscaled)
    done = invoke(str(TRACKED), "--out", str(tmp_path / "out"))
    assert done.exit_code == 1
    assert done.stderr.startswith("RunError: policy.onnx differs from ")
    assert list(tmp_path.iterdir()) == []


def test_nothing_is_overwritten(tmp_path):
    (tmp_path / "mine.txt").write_text("precious")
    done = invoke(str(TRACKED), "--out", str(tmp_path))
    assert done.exit_code == 2
    assert done.stderr == (
        "ParameterError: `--out` must be a new or empty folder; it holds mine.txt, "
        f"got {str(tmp_path)!r}\n"
    )
    assert [path.name for path in tmp_path.iterdir()] == ["mine.txt"]
    done = invoke(str(TRACKED), "--out", str(tmp_path / "mine.txt"))
    assert done.exit_code == 2
    assert (tmp_path / "mine.txt").read_text() == "precious"


def test_a_folder_inside_the_run_is_rejected(tmp_path):
    run = copy_of_run(tmp_path)
    done = invoke(str(run), "--out", str(run / "policy" / "x"))
    assert done.exit_code == 2
    assert f"`--out` must be a folder outside of {run}" in done.stderr
    assert not (run / "policy" / "x").exists()


def test_an_exported_folder_can_be_exported_with_its_video(tmp_path):
    export.write(TRACKED, tmp_path / "one")
    export.write(tmp_path / "one", tmp_path / "two")
    first, second = (tmp_path / name / export.VIDEO for name in ("one", "two"))
    assert first.read_bytes() == second.read_bytes()


def test_without_onnx_it_names_what_to_install(tmp_path, monkeypatch):
    monkeypatch.setattr(onnx_policy.importlib.util, "find_spec", lambda name: None)
    line = refused(tmp_path, TRACKED)
    assert line.startswith("ParameterError: onnx, which writes policy.onnx, is not installed here")
    assert "pip install '.[export]'" in line
    assert not (tmp_path / "new").exists()


def test_a_disk_error_leaves_no_half_a_folder(tmp_path, monkeypatch):
    def full(file, arrays):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(export.npz, "write", full)
    done = invoke(str(TRACKED), "--out", str(tmp_path / "out"))
    assert done.exit_code == 1
    assert done.stderr == (
        f"StorageError: {tmp_path / 'out'} cannot be written (No space left on device)\n"
    )
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("out", "message"),
    [
        ("my [best] policy", "`--out` must be a path without"),
        (".", "`--out` must be another folder than the working directory"),
    ],
)
def test_a_folder_that_cannot_be_used_is_refused_before_any_work(
    tmp_path, monkeypatch, out, message
):
    monkeypatch.chdir(tmp_path)
    done = invoke(str(TRACKED), "--out", out)
    assert done.exit_code == 2
    assert message in done.stderr
    assert list(tmp_path.iterdir()) == []


def test_a_path_that_tensorflow_takes_for_a_pattern_is_not_called_damaged(tmp_path):
    run = copy_of_run(tmp_path / "work [2]")
    for load in (saved_policy.load, saved_weights.read):
        folder = run / "policy" if load is saved_policy.load else run
        with pytest.raises(ParameterError, match=r"`policy` must be a path without \* \? \["):
            load(folder)


# --- the command


def test_the_command_writes_below_exports(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    done = invoke(str(TRACKED))
    assert done.exit_code == 0, done.output
    assert done.stdout.startswith("exported: exports/best-300000 (")
    assert (tmp_path / "exports" / "best-300000" / "README.md").is_file()
    assert [path.name for path in (tmp_path / "exports").iterdir()] == ["best-300000"]
    with pytest.raises(ParameterError, match="new or empty folder; it holds"):
        export.export(TRACKED, None)


def test_no_path_of_this_machine_is_exported(tmp_path):
    run = copy_of_run(tmp_path)
    content = json.loads((run / "config.json").read_text())
    (run / "config.json").write_text(json.dumps({**content, "run_dir": str(tmp_path)}))
    export.write(run, tmp_path / "out")
    for file in (tmp_path / "out").rglob("*"):
        if file.is_file():
            data = file.read_bytes()
            assert str(tmp_path).encode() not in data, file
            assert str(ROOT).encode() not in data, file


def test_damaged_versions_are_named(tmp_path):
    run = copy_of_run(tmp_path)
    content = json.loads((run / "config.json").read_text())
    (run / "config.json").write_text(json.dumps({**content, "versions": [1, 2]}))
    assert "config.json is damaged: its versions are no JSON object" in refused(tmp_path, run)
