"""Notebook 03: the loop on the pendulum, losses compared, figures."""

import books
import numpy as np
import pandas as pd
import pytest
import tensorflow as tf

from labkit.config import SACConfig
from labkit.environments.make import make_environment
from labkit.lessons import sac
from labkit.plotting import curves
from labkit.sac import agent as agents


def test_the_clip_is_shown_with_its_tracked_score(monkeypatch, tmp_path, capsys):
    shown = []
    monkeypatch.setattr("IPython.display.display", shown.append)
    sac.show_clip()
    video, strip = shown
    assert 'aria-label="Video of one episode of the trained robot' in video._repr_html_()
    assert strip.data.startswith(b"\x89PNG")
    assert capsys.readouterr().out.count("mean return") == 1
    sac.show_clip(tmp_path)  # installed without the repository
    assert capsys.readouterr().out.startswith("no clip")


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


@pytest.mark.thorough
@pytest.mark.timeout(400)
def test_the_loop_of_notebook_03_solves_the_pendulum(pendulum):
    assert len(pendulum["returns"]) == 30
    assert np.mean(pendulum["returns"][-10:]) > -200


@pytest.mark.thorough
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
