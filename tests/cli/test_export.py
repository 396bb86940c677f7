"""`labkit export` and `labkit watch`: a policy leaves labkit, and nothing else does."""

import json
import re
import shutil
import subprocess
import sys
from pathlib import Path

import gym
import imageio.v2 as imageio
import numpy as np
import onnxruntime
import pytest
import yaml
from small_notebook import labkit, last_line

from labkit import SACConfig, open_run, train
from labkit.cli import export
from labkit.training.records import read_metrics
from labkit.training.run import TRACKED_POLICY

ROOT = Path(__file__).parents[2]
TRACKED = ROOT / TRACKED_POLICY


class Shifted(gym.Env):
    """A tiny environment whose actions are from −1 to 3 and from 0 to 0.5."""

    observation_space = gym.spaces.Box(-np.inf, np.inf, (3,), np.float32)
    action_space = gym.spaces.Box(np.float32([-1, 0]), np.float32([3, 0.5]))

    def reset(self):
        return np.zeros(3, np.float32)

    def step(self, action):
        return np.float32([*action, 1]), float(action[0]), False, {}


def trained(path: Path, **options) -> Path:
    """A run of three gradient steps; its policy has one small hidden layer."""
    small = {"replay": "tf_uniform", "replay_buffer_capacity": 100, "batch_size": 8}
    small |= {"num_iterations": 3, "initial_collect_steps": 40, "num_eval_episodes": 2}
    small |= {"actor_fc_layer_params": (7,), "observation_scale": (0.5, 2.0, 4.0)}
    config = SACConfig(env_name="Pendulum-v1", **small)
    return train(config, open_run(path, config), **options).path


@pytest.fixture(scope="module")
def shifted(tmp_path_factory):
    """A run of `Shifted`, under the name of another environment."""
    path = tmp_path_factory.mktemp("shifted") / "run"
    return trained(path, make_env=Shifted, max_episode_steps=10)


@pytest.fixture
def run(tmp_path):
    """A copy of the tracked run that a test may change."""
    return Path(shutil.copytree(TRACKED, tmp_path / "run"))


# --- the three forms

ALONE = """
import sys
import numpy as np
from policy import Actor

assert not {"tensorflow", "labkit", "onnx"} & set(sys.modules)
observations = np.load(sys.argv[1])
policy = Actor.load("policy.npz")
np.save(sys.argv[2], policy(observations))
np.testing.assert_allclose(policy(observations[0]), policy(observations)[0], atol=1e-5)
"""


@pytest.mark.parametrize("name", ["tracked", "shifted"])
def test_the_three_forms_give_the_same_actions(name, shifted, tmp_path):
    import tensorflow as tf
    from tf_agents.trajectories import time_step as ts

    folder = tmp_path / "out"
    done = labkit("export", {"tracked": TRACKED, "shifted": shifted}[name], "--out", folder)
    assert done.exit_code == 0, done.stderr
    scale = np.load(folder / "policy.npz", allow_pickle=False)["scale"]
    random = np.random.default_rng(1).standard_normal((1000, len(scale)))
    observations = (random * scale).astype(np.float32)
    saved = tf.saved_model.load(str(folder / "policy"))
    wanted = saved.action(ts.restart(observations, batch_size=1000)).action.numpy()
    assert np.ptp(wanted, axis=0).min() > 0.01, "the actions depend on the observation"

    session = onnxruntime.InferenceSession(folder / "policy.onnx")
    (by_onnx,) = session.run(["action"], {"observation": observations})
    np.save(tmp_path / "in.npy", observations)
    files = [str(tmp_path / "in.npy"), str(tmp_path / "out.npy")]
    subprocess.run([sys.executable, "-c", ALONE, *files], cwd=folder, check=True)
    by_numpy = np.load(tmp_path / "out.npy")
    for actions in (by_onnx, by_numpy):
        assert actions.dtype == np.float32
        np.testing.assert_allclose(actions, wanted, rtol=0, atol=1e-5)


def test_the_code_of_the_card_runs(run, tmp_path):
    assert labkit("export", run, "--out", tmp_path / "out").exit_code == 0
    text = (tmp_path / "out" / "README.md").read_text().split("## How to use it")[1]
    blocks = re.findall(r"(?:^    .*\n|^\n)+", text, re.MULTILINE)
    codes = [re.sub("^    ", "", block, flags=re.MULTILINE) for block in blocks if block.strip()]
    assert len(codes) == 3
    begin = "import labkit, numpy as np\nobservation = np.full(28, 0.1)\n"
    script = "\n".join(f"{begin}{code}\nprint(*action)" for code in codes)
    command = [sys.executable, "-c", script]
    done = subprocess.run(command, cwd=tmp_path / "out", capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    actions = [np.array(line.split(), float) for line in done.stdout.splitlines()]
    np.testing.assert_allclose(actions, [actions[0]] * 3, atol=2e-4)


# --- the card


def test_the_card_has_the_numbers_of_the_run(run, tmp_path):
    assert labkit("export", run, "--out", tmp_path / "out").exit_code == 0
    text = (tmp_path / "out" / "README.md").read_text()
    _, matter, body = text.split("---\n", 2)
    assert yaml.safe_load(matter)["library_name"] == "labkit"
    (*_, returns) = read_metrics(run).eval_returns
    assert len(returns) == 20
    assert f"| {np.mean(returns):.2f} ± {np.std(returns):.2f}, 20 episodes |" in body
    assert f"| {json.loads((run / 'config.json').read_text())['commit']} |" in body
    assert "an observation `[28]`" in body
    assert (tmp_path / "out" / "replay.mp4").read_bytes() == (run / "after.mp4").read_bytes()

    lines = (run / "metrics.csv").read_text().splitlines(keepends=True)
    begun = [line for line in lines if ",295000," not in line]
    (run / "metrics.csv").write_text("".join(begun))
    assert labkit("export", run, "--out", tmp_path / "early").exit_code == 0
    assert "| none, it has not finished |" in (tmp_path / "early" / "README.md").read_text()


# --- what is refused


def refused(command: str, run: Path, *arguments: object) -> str:
    """The one line with which a command ends."""
    done = labkit(command, run, *arguments)
    assert (done.exit_code, done.stdout) == (1, ""), done.stderr
    assert done.stderr.count("\n") == 1, done.stderr
    return last_line(done)


@pytest.mark.parametrize("command", ["export", "watch"])
@pytest.mark.parametrize("link", ["after.mp4", "policy/assets/x.txt", "videos", "config.json"])
def test_a_link_is_followed_nowhere(run, tmp_path, command, link):
    secret = tmp_path / "secret"
    secret.write_text("secret")
    (run / link).parent.mkdir(parents=True, exist_ok=True)
    (run / link).unlink(missing_ok=True)
    (run / link).symlink_to(secret)
    name = "out" if command == "export" else "out.mp4"
    line = refused(command, run, "--out", tmp_path / name)
    assert f"must be a directory without symbolic links, such as its {Path(link).name}, got" in line
    assert not (tmp_path / name).exists()


DAMAGES = {
    "config.json": r"config\.json cannot be read",
    "metrics.csv": r"metrics\.csv cannot be read",
    "policy/policy_specs.pbtxt": "run/policy is missing or damaged",
    "policy/variables/variables.index": "run/policy is missing or damaged",
}


@pytest.mark.parametrize("file", DAMAGES)
def test_a_damaged_run_is_named_and_leaves_nothing(run, tmp_path, file):
    (run / file).unlink()
    assert re.search(DAMAGES[file], refused("export", run, "--out", tmp_path / "new" / "out"))
    assert list(tmp_path.rglob("out*")) == []
    if file != "metrics.csv":
        refused("watch", run, "--out", tmp_path / "new.mp4")


@pytest.mark.parametrize("out", ["mine.txt", "."])
def test_an_export_overwrites_nothing(run, tmp_path, monkeypatch, out):
    monkeypatch.chdir(tmp_path)
    Path("mine.txt").write_text("precious")
    line = refused("export", run, "--out", out)
    assert "`--out` must be a new folder" in line
    assert Path("mine.txt").read_text() == "precious"


# --- labkit watch


@pytest.mark.thorough
def test_an_episode_becomes_a_clip_and_the_next_one_replaces_it(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    for seed in (0, 1):
        export.record(TRACKED, seed, None, max_steps=60)
    first, second = capsys.readouterr().out.splitlines()
    assert first != second
    assert second.endswith(" 60 steps: runs/watch.mp4")
    with imageio.get_reader("runs/watch.mp4") as clip:
        frames, rate = sum(1 for _ in clip), clip.get_meta_data()["fps"]
    assert frames == pytest.approx(0.6 * rate, abs=1)


def test_episodes_have_the_time_limit_of_the_run(tmp_path):
    run = trained(tmp_path / "run", max_episode_steps=20)
    done = labkit("watch", run, "--out", tmp_path / "clip.mp4")
    assert done.stdout.endswith(f", 20 steps: {tmp_path}/clip.mp4\n")


def test_a_user_s_own_environment_is_not_played(shifted, tmp_path):
    line = refused("watch", shifted, "--out", tmp_path / "clip.mp4")
    assert "cannot be played: its environment came from make_env, or is another one here" in line
    assert "name: Shifted there" in line


@pytest.mark.parametrize("name", ["there.mp4", "notes.txt"])
def test_a_clip_overwrites_nothing(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    Path("there.mp4").write_text("precious")
    assert "`--out` must be a new file whose name ends in .mp4" in refused(
        "watch", TRACKED, "--out", name
    )
    assert Path("there.mp4").read_text() == "precious"


def test_no_text_of_a_run_is_html_or_markdown_in_the_card(run, tmp_path):
    attack = "<script>alert(1)</script> | [x](http://x) `y` ![z](a)\n# title"
    content = json.loads((run / "config.json").read_text())
    content["commit"] = attack
    content["config"] |= {"env_name": re.sub(r"\s", "", attack), "symmetry_augmentation": False}
    (run / "config.json").write_text(json.dumps(content))
    assert labkit("export", run, "--out", tmp_path / "out").exit_code == 0
    text = (tmp_path / "out" / "README.md").read_text()
    assert "script" in text
    for part in ("<", "[x]", "`y`", "![", "# title", "(http"):
        assert part not in text.replace("hf upload <you>/<name>", ""), part
