"""The tables of the Minitaur, and the tracked clip and replay."""

import numpy as np
import pytest

from labkit.config import SACConfig
from labkit.environments.make import make_environment
from labkit.teaching import minitaur


def test_random_actions_show_what_each_group_must_be_divided_by():
    env = make_environment("MinitaurBulletEnv-v0", seed=0)
    observed = minitaur.random_observations(env, steps=300)
    assert observed.shape == (300, 28)
    scale = SACConfig().observation_scale
    table = minitaur.observation_table(env.observation_spec(), scale, observed)
    assert table.numbers.sum() == 28
    bounds = table.loc["motor velocity"].drop(["varies by", "quotient varies by"])
    assert bounds.tolist() == [8, "rad/s", -167.72, 167.72, 20.0]
    assert table.highest.tolist() == pytest.approx([3.15, 167.72, 5.71, 1.01, 1.01])
    *sensors, upright = table["quotient varies by"]
    assert 0.15 < min(sensors) <= max(sensors) < 0.9, "no group drowns another"
    assert upright < 0.05, "w is nearly 1 while the robot stands"


def test_the_spread_of_a_group_counts_its_numbers_alike():
    spec = make_environment("Pendulum-v1", seed=0).observation_spec()
    observed = np.float32([[1, 0, 8], [-1, 0, -8]])  # standard deviations 1, 0 and 8
    table = minitaur.observation_table(spec, (1.0, 2.0, 4.0), observed)
    spread, scaled = (1 + 64) / 3, (1 + 4) / 3
    expected = [3, "not known", -8.0, 8.0, round(spread**0.5, 2), 4.0, round(scaled**0.5, 2)]
    assert table.loc["observation"].tolist() == expected


def test_the_opposite_motor_follows_reflected_actions():
    table = minitaur.reflected_angles(steps=15)
    assert table.loc["front left L", "opposite motor"] == "front right R"
    angles, opposite = table["angle, rad"], table["its angle, reflected actions"]
    assert (angles - opposite).abs().max() < 0.1
    assert np.ptp(angles) > 0.3, "the motors differ from one another"


def test_the_clip_is_shown_with_its_tracked_score(monkeypatch, capsys):
    shown = []
    monkeypatch.setattr("IPython.display.display", shown.append)
    minitaur.show_clip()
    video, strip = shown
    assert 'aria-label="Video of one episode of the trained robot' in video._repr_html_()
    assert "data:video/mp4;base64," in video._repr_html_(), "embedded"
    assert "aspect-ratio:480/432;" in video._repr_html_(), "room for the browser's controls"
    assert strip.data.startswith(b"\x89PNG")
    printed = capsys.readouterr().out
    assert "mean return" in printed
    assert max(map(len, printed.splitlines())) <= 95, "JupyterLab breaks longer lines in words"


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
