"""Figures show the numbers in the metrics."""

import math

import numpy as np
import pandas as pd
import pytest
from matplotlib import image

from labkit.plotting import curves, style

RETURNS = [(-1.0, -0.5), (0.0, 2.0), (3.0, 5.0)]
SCALARS = ["critic_loss", "entropy_of_mine", "alpha"]


def metrics() -> pd.DataFrame:
    """Three evaluations and, before each, a row with logged scalars, as a run writes them."""
    rows = []
    for i, returns in enumerate(RETURNS):
        steps = {"env_step": 10_000 + 500 * i, "gradient_step": 500 * i, "wall_seconds": 10.0 * i}
        logged = dict(zip(SCALARS, (math.exp(3 * i), -2.0 * i, 0.02 * (i + 1)), strict=True))
        rows.append(steps | logged | {"collect_return": 0.5 * i, "eval_returns": ()})
        rows.append(steps | {"eval_return": sum(returns) / 2, "eval_returns": returns})
    return pd.DataFrame(rows)


def line(axes, label):
    return next(line for line in axes.lines if line.get_label() == label)


def test_learning_curve_draws_means_every_episode_and_the_published_curve():
    figure = curves.learning_curve(metrics(), title="a run")
    (axes,) = figure.axes
    mean, dots = line(axes, "evaluation mean"), line(axes, "each episode")
    np.testing.assert_array_equal(
        mean.get_xydata(), [(10_000, -0.75), (10_500, 1.0), (11_000, 4.0)]
    )
    expected = [(10_000 + 500 * i, r) for i, returns in enumerate(RETURNS) for r in returns]
    np.testing.assert_array_equal(dots.get_xydata(), expected)
    published = line(axes, "TF-Agents tutorial, sampled actions, replay 10 000").get_xydata()
    assert published[[0, 6, 10]].tolist() == [  # after 10 000 env steps of warm-up
        [10_000, -0.796275], [70_000, -1.674075], [110_000, -0.280301]
    ]  # fmt: skip
    assert style.describe(figure) == (
        "Figure. A run. Shows return of an episode (sum of rewards) over env steps; drawn: "
        "TF-Agents tutorial, sampled actions, replay 10 000, each episode, evaluation mean."
    )


def test_losses_draw_whatever_scalars_were_logged():
    table = metrics()
    figure = curves.losses(table)
    assert [axes.get_title(loc="left") for axes in figure.axes] == [
        "critic loss", "entropy of mine", "alpha", ""
    ]  # fmt: skip
    logged = table[table["critic_loss"].notna()]
    for axes, name in zip(figure.axes, SCALARS, strict=False):
        (drawn,) = axes.lines
        np.testing.assert_array_equal(drawn.get_xydata(), logged[["gradient_step", name]])
    assert [axes.get_yscale() for axes in figure.axes[:3]] == ["log", "linear", "linear"]


def test_the_training_figure_draws_returns_speed_and_scalars():
    table = metrics()
    returns, speed, critic, *_ = curves.training_figure(table).axes
    mean, sampled = line(returns, "evaluation mean"), line(returns, "sampled actions")
    assert mean.get_xydata().tolist() == [[0, -0.75], [500, 1], [1000, 4]]
    assert sampled.get_xydata().tolist() == [[0, 0], [500, 0.5], [1000, 1]]
    assert sampled.get_marker() == "o", "few points are visible"
    assert critic.lines[0].get_ydata().tolist() == table["critic_loss"].dropna().tolist()
    assert speed.lines[0].get_xydata().tolist() == [[500, 50], [1000, 50]]
    for rows in (slice(1), slice(1, 2)):  # the first seconds of a run: either kind of row
        assert style.png_of(curves.training_figure(table[rows]))


def test_speed_excludes_the_time_of_evaluations():
    nan = math.nan
    table = pd.DataFrame({
        "gradient_step": [0, 100, 100, 150],
        "wall_seconds": [1.0, 2.0, 4.0, 5.0],
        "eval_return": [1.5, nan, 3.0, nan],
    })  # fmt: skip
    assert curves.steps_per_second(table).to_dict() == {100: 100, 150: 50}
    # On Ray, training continues during an evaluation, whose row comes late.
    table["gradient_step"], table["wall_seconds"] = [0, 1000, 0, 2000], [1.0, 10.0, 19.0, 20.0]
    assert curves.steps_per_second(table).to_dict() == {2000: 100}


@pytest.mark.parametrize(
    ("draw", "message"), [(curves.learning_curve, "no evaluation"), (curves.losses, "no losses")]
)
def test_nothing_to_draw_is_one_line(draw, message):
    for table in (metrics()[:0], pd.DataFrame(), metrics()[["env_step", "gradient_step"]]):
        with pytest.raises(curves.NothingToDraw, match=message) as error:
            draw(table)
        assert "\n" not in str(error.value)


def test_a_notebook_shows_one_small_described_picture_on_white(tmp_path):
    from IPython.core.formatters import DisplayFormatter

    shown, details = DisplayFormatter().format(curves.training_figure(metrics()))
    assert details["image/png"]["alt"].startswith("Figure. Return of an episode")
    assert set(shown) == {"image/png", "text/plain"}
    assert len(shown["image/png"]) < 200_000
    (tmp_path / "figure.png").write_bytes(shown["image/png"])
    assert image.imread(tmp_path / "figure.png")[0, 0].tolist() == [1, 1, 1, 1]
