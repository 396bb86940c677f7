"""Notebook 06: the playground, its sliders, and the figure of two policies."""

import ipywidgets
import pandas as pd
import pytest

from labkit.errors import ParameterError
from labkit.lessons import playground
from labkit.lessons.playground import Playground, Setting
from labkit.training.run import TRACKED_POLICY


def test_a_setting_is_played_once_and_a_slider_plays_its_own(monkeypatch):
    room = Playground(TRACKED_POLICY.absolute(), seconds=0.1)
    first = room.play(Setting(payload_kg=1))
    assert room.play(Setting(payload_kg=1.0)) is first
    assert first.steps == 10
    made, slider, shown = [], ipywidgets.FloatSlider, []
    monkeypatch.setattr(ipywidgets, "FloatSlider", lambda **k: made.append(slider(**k)) or made[-1])
    monkeypatch.setattr(Playground, "show", lambda self, settings: shown.append(settings))
    room.sliders(Setting(), Setting(payload_kg=2))
    made[4].value = 0.02
    assert shown == [[Setting(control_latency_seconds=0.02), Setting(payload_kg=2)]]
    with pytest.raises(ParameterError, match=r"^`seconds` must be a number above 0 and up to 10"):
        Playground(TRACKED_POLICY.absolute(), 11)


def test_the_card_draws_the_mean_of_each_dose_and_the_undisturbed_robot():
    episodes = pd.read_csv(playground.EPISODES)
    champion, other = (episodes[episodes.policy == name] for name in ("best-300000", "best"))
    payload, friction, *_ = playground.card(champion, other).axes
    (line, _), rows = payload.lines, champion[champion.factor == "payload_kg"]
    assert list(line.get_xdata()) == [0, 1, 2, 4, 6]
    assert line.get_ydata()[4] == pytest.approx(rows["return"][rows.value == 6].mean())
    assert line.get_ydata()[0] == pytest.approx(champion["return"][:1].mean(), abs=3)
    assert 1.0 in friction.lines[0].get_xdata(), "the undisturbed robot has a friction of 1"
