"""Notebooks 03, 04 and 06: the loop on the pendulum, losses compared, figures, the playground."""

import books
import numpy as np
import pandas as pd
import pytest
import tensorflow as tf

from labkit.config import SACConfig
from labkit.environments.make import make_environment
from labkit.errors import ParameterError
from labkit.plotting import curves
from labkit.sac import agent as agents
from labkit.teaching import (
    distributed_plots,
    minitaur,
    playground,
    sac,
)
from labkit.teaching.playground import Setting
from labkit.training.run import TRACKED_POLICY


def test_clip_and_replay_are_shown_with_their_tracked_score(monkeypatch, tmp_path, capsys):
    shown = []
    monkeypatch.setattr("IPython.display.display", shown.append)
    minitaur.show_clip()
    minitaur.show_replay()
    video, _, viewer, strip = shown
    assert 'aria-label="Video of one episode of the trained robot' in video._repr_html_()
    assert '<iframe srcdoc="' in viewer.data
    assert strip.data.startswith(b"\x89PNG")
    assert capsys.readouterr().out.count("mean return") == 2
    minitaur.show_clip(tmp_path)  # installed without the repository
    minitaur.show_replay(tmp_path)
    assert [line[:4] for line in capsys.readouterr().out.splitlines()] == ["no c", "no r"]


@pytest.fixture(scope="module")
def pendulum():
    """The names of notebook 03 after its cells on the pendulum have run, 6 000 env steps."""
    names = {"config": SACConfig(), "display": lambda *_, **__: None}
    for cell in books.read("03").cells:
        if cell.cell_type == "code" and (
            cell.id in ("set-up", "imports", "compare-code")
            or cell.id.startswith("sac-")
            or (cell.id.startswith("exercise-") and "4" not in cell.id)
        ):
            exec(cell.source, names)
    return names


@pytest.mark.timeout(400)
def test_the_loop_of_notebook_03_solves_the_pendulum(pendulum):
    assert len(pendulum["returns"]) == 30
    assert np.mean(pendulum["returns"][-10:]) > -200


def test_the_losses_of_notebook_03_are_those_of_tf_agents(pendulum):
    net, library = pendulum["net"], pendulum["library"]
    table = sac.compare(net, pendulum["mine"], library, pendulum["theirs"])
    np.testing.assert_allclose(table["your loss"], table["TF-Agents"], rtol=1e-4)
    assert table["relative difference"].max() < 1e-4
    doubled = {name: lambda loss=loss: 2 * loss() for name, loss in pendulum["mine"].items()}
    apart = sac.compare(net, doubled, library, pendulum["theirs"])["relative difference"]
    assert apart.tolist() == pytest.approx([1, 1, 1], rel=1e-3)


def test_each_choice_has_its_ablation():
    table = sac.choices({"n_step": "five", "learning_rates": "fast"})
    assert table.index.tolist() == ["all of these", "n_step", "learning_rates", "none of these"]
    assert table.loc["n_step", ["tutorial", "here"]].tolist() == ["1", "5"]
    means = table["mean return without it"]
    assert means.is_monotonic_increasing
    assert means.notna().all()


def test_estimates_stand_next_to_complete_discounted_returns(small_config):
    """Pendulum's episodes have 200 steps, and a time limit ends them: half of them is shown."""
    config = small_config(env_name="Pendulum-v1", gamma=0.9, reward_scale_factor=2.0)
    env = make_environment("Pendulum-v1", seed=0)
    agent = agents.create_agent(config, env, tf.distribute.get_strategy())
    table = sac.estimates(agent, env, lambda o: np.zeros(1, np.float32), config, seed=1)
    assert len(table) == 100
    env.seed(1)
    env.reset()
    rewards = [float(env.step(np.zeros(1, np.float32)).reward) for _ in range(200)]
    expected = sum(2 * 0.9**k * reward for k, reward in enumerate(rewards))
    assert table.returned[0] == pytest.approx(expected, rel=1e-5)
    returned, estimated = sac.estimates_figure(table).axes[0].lines
    np.testing.assert_array_equal(returned.get_ydata(), table.returned)
    np.testing.assert_array_equal(estimated.get_ydata(), table.estimated)


def test_a_run_without_an_evaluation_has_no_curve(capsys):
    assert sac.if_any(curves.learning_curve, pd.DataFrame({"eval_return": [np.nan]})) is None
    assert "nothing to draw yet" in capsys.readouterr().out


def test_figures_of_notebook_04():
    table = pd.DataFrame(
        {
            "gradient_step": [0, 100, 300, 400],
            "env_step": [10, 20, 30, 40],
            "wall_seconds": [0.0, 5.0, 15.0, 90.0],
            "critic_loss": [None, 2.0, 1.0, None],
            "eval_return": [1.0, 2.0, None, 5.0],
        }
    )
    assert distributed_plots.iterations_per_second(table) == 20
    text = distributed_plots.rates([("local", table), ("Ray", table[:2])])
    assert text == "local: 20 gradient steps/s\nRay: too short to be timed"
    line, final, _ = distributed_plots.evaluations({"run": table}).axes[0].lines
    assert line.get_xydata().tolist() == [[10, 1], [20, 2]]
    assert final.get_xydata().tolist() == [[40, 5]], "the last one plays other episodes"
    seconds = np.arange(9.0)
    arrived = {"worker 0": 100 * seconds, "worker 1": 50 * np.minimum(seconds, 4)}
    counts = pd.DataFrame(arrived, index=seconds)
    figure = distributed_plots.throughput(counts, {"killed": 4.0}, window=2.0)
    assert figure.axes[0].lines[1].get_ydata().tolist() == [50, 50, 50, 25, 0, 0, 0]
    assert "replay" in {text.get_text() for text in distributed_plots.processes().axes[0].texts}


def test_the_playground_plays_a_setting_once_and_a_slider_plays_its_own(monkeypatch):
    import ipywidgets

    room = playground.Playground(TRACKED_POLICY.absolute(), seconds=0.1)
    first = room.play(Setting(payload_kg=1))
    assert room.play(Setting(payload_kg=1.0)) is first
    assert first.steps == 10
    made, slider, played = [], ipywidgets.FloatSlider, []
    monkeypatch.setattr(ipywidgets, "FloatSlider", lambda **k: made.append(slider(**k)) or made[-1])
    monkeypatch.setattr(playground.Screen, "show", lambda self, found, ab: played.append(ab))
    playground.sliders(room, Setting(), Setting(payload_kg=2))
    made[4].value = 0.02
    assert played == [[Setting(control_latency_seconds=0.02), Setting(payload_kg=2)]]
    with pytest.raises(ParameterError, match=r"^`seconds` must be a number above 0 and up to 10"):
        playground.Playground(TRACKED_POLICY.absolute(), 11)
