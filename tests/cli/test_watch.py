"""`labkit watch`: the tracked clip, and a new one of any run's policy."""

import json
import re
import shutil
import subprocess
from pathlib import Path

import gym
import imageio_ffmpeg
import numpy as np
import pytest
from click.testing import CliRunner

import labkit
from labkit.cli import watch
from labkit.cli.main import main
from labkit.training.run import TRACKED_POLICY, open_run, read_metrics

ROOT = Path(__file__).parents[2]
TRACKED = ROOT / TRACKED_POLICY


def invoke(*arguments: str):
    return CliRunner().invoke(main, ["watch", *arguments])


def test_without_options_it_names_the_clip(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    done = invoke()
    assert done.exit_code == 0
    clip = re.search(r"(/.*\.mp4)\n", done.output)
    assert Path(clip[1]).stat().st_size > 100_000


def test_make_watch_names_the_clip_before_any_set_up():
    done = subprocess.run(
        ["make", "-C", str(ROOT), "--no-print-directory", "watch"],
        capture_output=True,
        text=True,
        env={"PATH": "/usr/bin:/bin"},
        timeout=60,  # without a set-up, for which this PATH has no Python
        check=True,
    )
    clip = re.search(r"(/.*\.mp4)", done.stdout)
    assert Path(clip[1]).stat().st_size > 100_000


@pytest.mark.parametrize("arguments", [[], ["--replay"]])
def test_outside_of_a_checkout_it_asks_for_a_run(arguments, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(watch, "CHECKOUT", tmp_path)
    done = invoke(*arguments)
    assert (done.exit_code, done.stdout) == (2, "")
    assert done.stderr == (
        "ParameterError: no results/minitaur/best-300000/after.mp4 here (only a checkout has it); "
        "name a run directory, such as `labkit watch runs/0001`\n"
    )


def test_a_run_without_a_policy_is_named(tmp_path):
    done = invoke(str(tmp_path))
    assert done.exit_code == 2
    assert done.stderr.startswith(f"ParameterError: {tmp_path}/config.json cannot be read")
    (tmp_path / "config.json").write_text(json.dumps({"format": 1, "config": {}}))
    done = invoke(str(tmp_path))
    assert done.exit_code == 2
    assert done.stderr == (
        f"ParameterError: {tmp_path} has no saved policy (policy/saved_model.pb)\n"
    )


def test_a_run_of_a_user_s_own_environment_is_named(tmp_path):
    (tmp_path / "config.json").write_text(json.dumps({"format": 1, "config": {"env_name": "Mine"}}))
    (tmp_path / "policy").mkdir()
    (tmp_path / "policy" / "saved_model.pb").touch()
    done = invoke(str(tmp_path))
    assert done.exit_code == 2
    line = (
        f"ParameterError: {tmp_path} cannot be played: its environment 'Mine' came from make_env,"
    )
    assert done.stderr.startswith(line)
    assert done.stderr.count("\n") == 1


def short_pendulum(small_config, path: Path, **arguments) -> Path:
    """A run of two gradient steps."""
    config = small_config(
        env_name="Pendulum-v1", replay="tf_uniform", num_iterations=2, num_eval_episodes=1
    )
    return labkit.train(config, open_run(path, config), **arguments).path


def test_episodes_have_the_time_limit_of_the_run(small_config, tmp_path):
    run = short_pendulum(small_config, tmp_path / "run", max_episode_steps=20)
    assert [one.steps for one in watch.film(run, 0, tmp_path / "out.mp4")] == [20, 20]


class ThreeNumbers(gym.Env):
    """Not Pendulum-v1, but its observations and actions have the same shapes."""

    observation_space = gym.spaces.Box(-1, 1, (3,), np.float32)
    action_space = gym.spaces.Box(-2, 2, (1,), np.float32)

    def reset(self):
        return np.zeros(3, np.float32)

    def step(self, action):
        return np.zeros(3, np.float32), 0.0, True, {}


def test_another_environment_under_a_registered_name_is_not_played(small_config, tmp_path):
    run = short_pendulum(small_config, tmp_path / "run", make_env=ThreeNumbers)
    done = invoke(str(run))
    assert done.exit_code == 2
    why = "its environment is not 'Pendulum-v1' as registered here (name: ThreeNumbers there"
    assert done.stderr.startswith(f"ParameterError: {run} cannot be played: {why}")
    assert done.stderr.count("\n") == 1


def test_the_policy_of_another_environment_is_not_played(small_config, tmp_path):
    run = short_pendulum(small_config, tmp_path / "run")
    shutil.rmtree(run / "policy")
    shutil.copytree(watch.tracked_policy() / "policy", run / "policy")
    done = invoke(str(run))
    assert done.exit_code == 2
    why = "its policy maps 28 numbers to 8 actions, unlike Pendulum-v1"
    assert done.stderr == f"ParameterError: {run} cannot be played: {why}\n"


def test_a_clip_that_could_not_be_written_is_refused_before_the_episodes(tmp_path, monkeypatch):
    monkeypatch.setattr(watch, "film", lambda *_: pytest.fail("it played"))
    (tmp_path / "file").write_text("mine")
    done = invoke("--replay", "--out", str(tmp_path / "file" / "clip.mp4"))
    assert done.exit_code == 2
    assert f"a file in a folder that can be written, not {tmp_path / 'file'}" in done.stderr


def test_a_damaged_policy_is_named(tmp_path):
    (tmp_path / "config.json").write_text(json.dumps({"format": 1, "config": {}}))
    (tmp_path / "policy").mkdir()
    (tmp_path / "policy" / "saved_model.pb").write_bytes(b"damaged")
    done = invoke(str(tmp_path))
    assert done.exit_code == 2
    assert done.stderr.splitlines()[-1].startswith(
        f"ParameterError: {tmp_path}/policy is damaged ("
    )


def test_seed_and_out_need_something_to_play():
    done = invoke("--seed", "3")
    assert done.exit_code == 2
    assert "--seed and --out need --replay or RUN" in done.stderr


@pytest.mark.parametrize(
    ("arguments", "recorded"),
    [
        (["--replay"], (TRACKED, 0, "runs/watch.mp4")),
        (["a/run"], ("a/run", 0, "runs/watch.mp4")),
        (["a/run", "--seed", "3", "--out", "x.mp4"], ("a/run", 3, "x.mp4")),
    ],
)
def test_the_policy_that_is_recorded(monkeypatch, arguments, recorded):
    monkeypatch.chdir(ROOT)
    calls = []
    monkeypatch.setattr(watch, "record", lambda *call: calls.append(call))
    assert invoke(*arguments).exit_code == 0
    folder, seed, out = recorded
    assert calls == [(Path(folder), seed, Path(out))]


@pytest.mark.parametrize("name", ["there.mp4", "notes.txt", "clip", "", "folder.mp4", "link.mp4"])
def test_a_clip_overwrites_nothing(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(watch, "record", lambda *call: pytest.fail("played"))
    Path("there.mp4").write_text("precious")
    Path("folder.mp4").mkdir()
    Path("link.mp4").symlink_to("nowhere")
    done = invoke("a/run", "--out", name)
    assert done.exit_code == 2
    assert "ParameterError: `--out` must be a new file whose name ends in .mp4" in done.stderr
    assert Path("there.mp4").read_text() == "precious"


def test_the_tracked_policy_still_walks():
    """Three episodes have the mean of the run's final evaluation; the reward counts metres."""
    env, act = watch.load(TRACKED)
    result = labkit.evaluate(env, act, episodes=3, seed=0)
    *_, expected = read_metrics(TRACKED).eval_returns.dropna()
    error = np.std(expected, ddof=1) * (1 / 3 + 1 / len(expected)) ** 0.5  # of the difference
    assert result.mean_return == pytest.approx(np.mean(expected), abs=3 * error)
    returns, distances = np.array(result.returns), np.array(result.distances)
    # 1 for each metre forward, less a twentieth to a tenth for energy, sway and shaking
    np.testing.assert_array_less(0.88 * distances, returns)
    np.testing.assert_array_less(returns, distances)


def test_two_episodes_become_one_clip(tmp_path):
    recordings = watch.film(TRACKED, seed=0, out=tmp_path / "clip.mp4", max_steps=60)
    assert [recording.steps for recording in recordings] == [60, 60]
    first, _ = watch.film(TRACKED, seed=1, out=tmp_path / "next.mp4", max_steps=60)
    assert first.return_ == pytest.approx(recordings[1].return_), "the second has the next seed"
    assert first.return_ != pytest.approx(recordings[0].return_)
    frames, _ = imageio_ffmpeg.count_frames_and_secs(str(tmp_path / "clip.mp4"))
    assert frames == pytest.approx(2 * 0.6 * 25, abs=4)
