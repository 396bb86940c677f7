"""The tables of the Minitaur, and the tracked clip and replay."""

import numpy as np
import pytest

from labkit.config import SACConfig
from labkit.environments.make import make_environment
from labkit.teaching import minitaur


def test_the_groups_of_an_observation_have_their_bounds_and_divisors():
    env = make_environment("MinitaurBulletEnv-v0", seed=0)
    table = minitaur.observation_table(env.observation_spec(), SACConfig().observation_scale)
    assert table.numbers.sum() == 28
    assert table.loc["motor velocity"].tolist() == [8, "rad/s", -167.72, 167.72, 20.0]
    assert table.highest.tolist() == pytest.approx([3.15, 167.72, 5.71, 1.01])


def test_another_environment_has_one_group():
    spec = make_environment("Pendulum-v1", seed=0).observation_spec()
    table = minitaur.observation_table(spec, (1.0, 2.0, 4.0))
    assert table.loc["observation"].tolist() == [3, "not known", -8.0, 8.0, 4.0]


def test_the_clip_is_shown_with_its_tracked_score(monkeypatch, capsys):
    shown = []
    monkeypatch.setattr("IPython.display.display", shown.append)
    minitaur.show_clip()
    video, strip = shown
    assert "<video" in video.data
    assert 'aria-label="Seed ' in video.data
    assert strip.data.startswith(b"\x89PNG")
    assert np.char.find(capsys.readouterr().out, "mean return") > 0


def test_the_replay_is_embedded_above_its_film_strip(monkeypatch, capsys):
    shown = []
    monkeypatch.setattr("IPython.display.display", shown.append)
    minitaur.show_replay()
    viewer, strip = shown
    assert '<iframe srcdoc="' in viewer.data
    assert "\n" not in viewer.data
    assert strip.data.startswith(b"\x89PNG")
    assert np.char.find(capsys.readouterr().out, "mean return") > 0


def test_without_the_repository_they_say_so(tmp_path, capsys):
    minitaur.show_clip(tmp_path)
    minitaur.show_replay(tmp_path)
    clip, replay = capsys.readouterr().out.splitlines()
    assert clip.startswith("no clip")
    assert replay.startswith("no replay")
