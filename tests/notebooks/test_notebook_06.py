"""Notebook 06, executed with short episodes, and as committed."""

import itertools
import re
from pathlib import Path

import first_cells
import nbformat
import numpy as np
import papermill
import pytest
from labkit.training.run_directory import TRACKED_POLICY

from labkit.analysis import robustness
from labkit.errors import ParameterError
from labkit.teaching import playground
from labkit.teaching.playground import Setting

NOTEBOOK = Path(__file__).parents[2] / "notebooks" / "06_policy_playground.ipynb"
POLICY = NOTEBOOK.parents[1] / TRACKED_POLICY
OTHERS = ("policy", "seed", "seconds")


@pytest.fixture(scope="module")
def committed():
    return nbformat.read(NOTEBOOK, as_version=4)


def outputs(cells):
    return [out for cell in cells if cell.cell_type == "code" for out in cell.outputs]


def text(found):
    parts = [o.get("text", "") + o.get("data", {}).get("text/plain", "") for o in found]
    return "\n".join(parts)


def test_two_settings_are_played_and_shown(tmp_path):
    out = tmp_path / "out.ipynb"
    parameters = {"seconds": 1, "motor_strength_b": 0.2, "control_latency_seconds_b": 0}
    papermill.execute_notebook(
        str(NOTEBOOK), str(out), parameters, cwd=str(NOTEBOOK.parent), progress_bar=False
    )
    found = outputs(nbformat.read(out, as_version=4).cells)
    shown = text(found)
    assert "A: undisturbed\nB: motor strength 0.2\n" in shown
    assert sum("image/png" in o.get("data", {}) for o in found) == 3  # two strips and the card
    html = "".join(o.get("data", {}).get("text/html", "") for o in found)
    assert html.count("<video") == 2
    returns = dict(re.findall(r"^([AB]) .* (-?\d+\.\d+) +\d\.\d+$", shown, re.M))
    assert float(returns["A"]) > 0.5 > float(returns["B"])
    assert "application/vnd.jupyter.widget-view+json" in [
        k for o in found for k in o.get("data", ())
    ]
    assert shown.count(": not answered yet") == 5


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        (
            "payload_kg_b",
            -1,
            "`payload_kg_b` must be a number from 0 to 20 (kg on the base), got -1",
        ),
        ("temperature_a", "hot", "`temperature_a` must be a number from 0 to 4"),
        ("latency_b", 0.1, "`latency_b` is not a parameter"),
    ],
)
def test_a_bad_parameter_is_one_line(name, value, message):
    namespace = {"In": [f"# Parameters\n{name} = {value!r}"], name: value}
    with pytest.raises(ParameterError) as caught:
        playground.read_settings(namespace, OTHERS)
    assert str(caught.value).startswith(message)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        (
            "seconds",
            11,
            "`seconds` must be a whole number from 1 to 10 (seconds of the robot), got 11",
        ),
        ("policy", 5, "`policy` must be the path of a run directory, got 5"),
    ],
)
def test_a_bad_parameter_stops_the_notebook_before_any_work(name, value, message):
    with pytest.raises(ParameterError) as caught:
        first_cells.execute(NOTEBOOK, "check", **{name: value})
    assert str(caught.value) == message


def test_the_font_of_the_film_strips_has_every_letter_of_a_setting():
    setting = Setting(2, 0.5, 0.7, 0.1, 0.01, 1)
    assert str(setting).count(";") == 5, "every factor is changed"
    assert str(setting).isascii()


def test_a_setting_is_played_once(tmp_path):
    room = playground.Playground(POLICY, seconds=0.1)
    first = room.play(Setting(payload_kg=1))
    assert room.play(Setting(payload_kg=1.0)) is first
    assert room.play(Setting()) is not first
    assert first.steps == 10


@pytest.mark.parametrize("seconds", [0, 11, float("nan"), "ten"])
def test_a_wrong_length_of_the_episodes_is_named(seconds):
    with pytest.raises(ParameterError, match=r"^`seconds` must be a number above 0 and up to 10"):
        playground.Playground(POLICY, seconds)


def test_a_temperature_and_a_seed_change_the_episode():
    rooms = [playground.Playground(POLICY, 0.3, seed) for seed in (0, 1)]
    settings = (Setting(), Setting(temperature=1))
    returns = {room.play(setting).return_ for room in rooms for setting in settings}
    assert len(returns) == 4


def test_a_slider_plays_its_setting(monkeypatch):
    """Without a front end: the callback that a moved slider runs."""
    import ipywidgets

    made, slider = [], ipywidgets.FloatSlider
    monkeypatch.setattr(ipywidgets, "FloatSlider", lambda **k: made.append(slider(**k)) or made[-1])
    room = playground.Playground(POLICY, seconds=0.1)
    played = []
    monkeypatch.setattr(playground.Screen, "show", lambda self, found, ab: played.append(ab))
    playground.sliders(room, Setting(), Setting(payload_kg=2))
    assert [s.value for s in made] == [0, 1, 1, 0, 0, 0, 2, 1, 1, 0, 0, 0]
    made[4].value = 0.02
    assert played == [[Setting(control_latency_seconds=0.02), Setting(payload_kg=2)]]
    assert not any(s.disabled for s in made)


def test_committed_executed_in_order_and_small(committed):
    code = [cell for cell in committed.cells if cell.cell_type == "code"]
    assert [cell.execution_count for cell in code] == list(range(1, len(code) + 1))
    found = outputs(committed.cells)
    assert not [o for o in found if o.output_type == "error" or o.get("name") == "stderr"]
    assert sum("image/png" in o.get("data", {}) for o in found) == 3
    assert not [o for o in found if "widget-view" in str(list(o.get("data", ())))]
    assert "widgets" not in committed.metadata
    assert NOTEBOOK.stat().st_size < 3_000_000


def test_the_first_picture_is_the_fall_that_the_notebook_shows(committed):
    strips = [
        o.data["image/png"] for o in outputs(committed.cells) if "image/png" in o.get("data", {})
    ]
    (picture,) = committed.cells[0].attachments.values()
    assert "".join(picture["image/png"].split()) == "".join(strips[1].split())
    (results,) = [cell for cell in committed.cells if cell.id == "results"]
    seconds = float(results.outputs[0].data["text/plain"].split()[-1])
    assert round(2 * seconds) == 5, "the first cell says: after two and a half seconds"


def test_the_order_of_06_1_is_beyond_the_scatter_of_the_episodes(committed):
    (cell,) = [cell for cell in committed.cells if cell.id == "card"]
    names = {}
    exec(re.search(r"three = .*", cell.source)[0], names)
    card = robustness.summary(robustness.tracked()).set_index(["factor", "value"])
    rows = card.loc[names["three"]].sort_values("iqm")
    for (_, low), (_, high) in itertools.pairwise(rows.iterrows()):
        assert low.high < high.low


def test_the_explanations_fit_the_tracked_episodes(committed):
    said = "\n".join(cell.source for cell in committed.cells if cell.cell_type == "markdown")
    episodes = robustness.tracked()
    card = robustness.summary(episodes).set_index(["factor", "value"])

    def fell(factor, value, before=robustness.FULL_LENGTH):
        lengths = episodes.length[(episodes.factor == factor) & (episodes.value == value)]
        return (lengths < before).mean()

    def iqm(factor, value):
        return f"{card.iqm[factor, value]:+.1f}"

    def lost(factor, value):
        return 1 - card.iqm[factor, value] / card.iqm[factor, 0.0]

    for factor, text, values in (
        (
            "foot_friction",
            "{} at 0.75, and {} at 1. Below the band it falls: {} at 0.5, {} at 0.25. "
            "Above the band, at 1.5, the IQM is {}",
            (0.75, 1, 0.5, 0.25, 1.5),
        ),
        ("payload_kg", "({} at 1 kg) and more beyond it ({} at 2 kg)", (1, 2)),
    ):
        assert text.format(*(iqm(factor, value) for value in values)) in said
    assert ", and two of 20 episodes end in a fall" in said
    assert fell("foot_friction", 1.5) == 2 / 20
    paired = "−{:.1f} ± {:.1f} (standard error) at 0.75, and −{:.1f} ± {:.1f} at 1.5"
    by_seed = episodes.pivot_table("return", "seed", ["factor", "value"])
    lower = [by_seed["undisturbed", 0.0] - by_seed["foot_friction", v] for v in (0.75, 1.5)]
    numbers = [n for d in lower for n in (d.mean(), d.std() / np.sqrt(len(d)))]
    assert paired.format(*numbers) in said
    assert "At 60 % of the motor\nstrength more than half of the episodes end in a fall" in said
    assert fell("motor_strength", 0.6) > 0.5
    assert "With the same delay, nine of ten episodes end in a fall" in said
    assert fell("control_latency_seconds", 0.02) == 0.9
    assert "costs about two fifths of the return, and more than half of the episodes" in said
    assert abs(lost("control_latency_seconds", 0.01) - 2 / 5) < 0.05
    assert fell("control_latency_seconds", 0.01) > 0.5
    assert "A delay of two steps costs about nine tenths" in said
    assert abs(lost("control_latency_seconds", 0.02) - 9 / 10) < 0.05
    assert "Up to 2 kg the robot walks more slowly, and does not fall" in said
    assert fell("payload_kg", 1.0) == fell("payload_kg", 2.0) == 0
    assert "In half of all episodes it walks for the full ten seconds" in said
    assert fell("payload_kg", 4.0) == 0.5
    assert fell("payload_kg", 4.0, before=50) > 0.25, "some fall within the first half second"
    assert "at 1 it is about a tenth lower than at 0, and at 1.5 about a fifth" in said
    assert "The mean is a fifth lower at both" in said
    for value in (1.0, 1.5):
        assert (
            abs(card["mean"]["temperature", value] / card["mean"]["temperature", 0.0] - 0.8) < 0.03
        )
    assert abs(lost("temperature", 1.0) - 1 / 10) < 0.03
    assert abs(lost("temperature", 1.5) - 1 / 5) < 0.03
    assert "three of 20 at 1, and one at 1.5" in said
    assert (fell("temperature", 1.0), fell("temperature", 1.5)) == (3 / 20, 1 / 20)


def test_the_text_on_the_iqm_and_the_mean_fits_the_tracked_episodes(committed):
    said = "\n".join(cell.source for cell in committed.cells if cell.cell_type == "markdown")
    card = robustness.summary(robustness.tracked()).set_index(["factor", "value"])
    strong, usual = card.loc["motor_strength", 1.2], card.loc["motor_strength", 1.0]
    assert f"the IQM rises ({strong.iqm:+.1f}, against {usual.iqm:+.1f})" in said
    assert f"the mean falls ({strong['mean']:+.1f}, against {usual['mean']:+.1f})" in said
    assert "because two of 20 robots\nfall" in said
    assert strong.falls == 2 / 20
    assert (
        "With noise of 0.03 the IQM is about a seventh lower, and the mean about a quarter" in said
    )
    noisy = card.loc["observation_noise", 0.03]
    assert abs(1 - noisy.iqm / usual.iqm - 1 / 7) < 0.02
    assert abs(1 - noisy["mean"] / usual["mean"] - 1 / 4) < 0.03


def test_the_second_policy_is_as_the_summary_says(committed):
    said = "\n".join(cell.source for cell in committed.cells if cell.cell_type == "markdown")
    assert "40 % of its episodes end in a fall without a disturbance, none with 6 kg" in said
    assert "and 85 % at a friction of 1.5" in said
    table = robustness.read(POLICY.parent / "robustness" / "episodes.csv")
    other = table[table.policy == "best"]
    shares = [
        (other.length[(other.factor == factor) & (other.value == value)] < 1000).mean()
        for factor, value in (("undisturbed", 0), ("payload_kg", 6.0), ("foot_friction", 1.5))
    ]
    assert shares == [0.4, 0, 0.85]
