"""Figures show the numbers in the metrics."""

import math

import numpy as np
import pandas as pd
import pytest
from matplotlib import image
from matplotlib.colors import to_rgb

from labkit.plotting import run_plots, style

RETURNS = [(-1.0, -0.5), (0.0, 2.0), (3.0, 5.0)]
LOGGED = ["critic_loss", "actor_loss", "alpha_loss", "alpha"]


def metrics(distances=((0.1, 0.2), (1.0, 1.5), (2.0, 4.0))) -> pd.DataFrame:
    """Three evaluations and, between them, rows with losses only, as a run writes them."""
    rows = []
    for i, (returns, metres) in enumerate(zip(RETURNS, distances, strict=True)):
        steps = {"env_step": 10_000 + 500 * i, "gradient_step": 500 * i}
        losses = [math.exp(3 * i), -2.0 * i, 0.3 - i, 0.02 * (i + 1)]
        rows.append(steps | dict(zip(LOGGED, losses, strict=True)))
        rows[-1] |= {"eval_returns": (), "eval_lengths": (), "eval_distances": math.nan}
        rows.append(steps | {"eval_return": sum(returns) / 2, "eval_returns": returns})
        rows[-1] |= {"eval_lengths": (100.0 * i, 200.0 * i), "eval_distances": metres}
    return pd.DataFrame(rows)


def line(axes, label):
    return next(line for line in axes.lines if line.get_label() == label)


def test_published_curve_has_the_numbers_of_its_source():
    curve = dict(run_plots.PUBLISHED_CURVE)
    assert curve[0] == -0.796275
    assert curve[60_000] == -1.674075
    assert curve[100_000] == -0.280301
    assert list(curve) == list(range(0, 100_001, 10_000))


def test_learning_curve_draws_means_and_every_episode():
    (axes,) = run_plots.learning_curve(metrics(), title="a run").axes
    mean, dots = line(axes, "evaluation mean"), line(axes, "each episode")
    np.testing.assert_array_equal(
        mean.get_xydata(), [(10_000, -0.75), (10_500, 1.0), (11_000, 4.0)]
    )
    expected = [(10_000 + 500 * i, r) for i, returns in enumerate(RETURNS) for r in returns]
    np.testing.assert_array_equal(dots.get_xydata(), expected)
    assert axes.get_title(loc="left") == "a run"
    assert axes.get_xlabel() == "env steps"
    assert "rewards" in axes.get_ylabel()


def test_published_curve_starts_after_the_warm_up_and_names_its_source():
    figure = run_plots.learning_curve(metrics())
    published = line(figure.axes[0], "TF-Agents tutorial, sampled actions, replay 10 000")
    assert published.get_xydata()[0].tolist() == [10_000, -0.796275]
    assert published.get_xydata()[-1].tolist() == [110_000, -0.280301]
    (legend,) = figure.legends
    assert published.get_label() in [text.get_text() for text in legend.get_texts()]

    without = run_plots.learning_curve(metrics(), published=False)
    assert not any("TF-Agents" in str(drawn.get_label()) for drawn in without.axes[0].lines)


def test_losses_draw_each_column_in_its_panel():
    table = metrics()
    figure = run_plots.losses(table)
    logged = table[table["critic_loss"].notna()]
    for axes, name in zip(figure.axes, LOGGED, strict=True):
        (drawn,) = axes.lines
        np.testing.assert_array_equal(drawn.get_xydata(), logged[["gradient_step", name]])
    assert [axes.get_yscale() for axes in figure.axes] == ["log", "linear", "linear", "log"]
    assert all("(" in axes.get_ylabel() for axes in figure.axes)  # a unit
    assert figure.axes[-1].get_xlabel() == "gradient steps"


def test_a_negative_or_narrow_critic_loss_stays_linear():
    table = metrics()
    table["critic_loss"] = [1.0, math.nan, 2.0, math.nan, 3.0, math.nan]
    assert run_plots.losses(table).axes[0].get_yscale() == "linear"
    table["critic_loss"] = [-1.0, math.nan, 2.0, math.nan, 300.0, math.nan]
    assert run_plots.losses(table).axes[0].get_yscale() == "linear"


def test_distance_and_length_draw_the_episodes():
    figure = run_plots.distance_and_length(metrics())
    distance, length = figure.axes
    assert "(m)" in distance.get_ylabel()
    assert "steps" in length.get_ylabel()
    np.testing.assert_allclose(line(distance, "evaluation mean").get_ydata(), [0.15, 1.25, 3.0])
    assert line(distance, "each episode").get_ydata().tolist() == [0.1, 0.2, 1.0, 1.5, 2.0, 4.0]
    assert line(length, "evaluation mean").get_ydata().tolist() == [0, 150, 300]


@pytest.mark.parametrize("nothing", [(math.nan, math.nan), (), math.nan])
def test_without_distances_there_is_no_distance_panel(nothing):
    (axes,) = run_plots.distance_and_length(metrics([nothing] * 3)).axes
    assert "length" in axes.get_ylabel()


def test_one_row_is_enough():
    table = metrics()
    (axes,) = run_plots.learning_curve(table.iloc[1:2]).axes
    assert line(axes, "evaluation mean").get_marker() == "o"  # a line with one point is invisible
    figure = run_plots.losses(table.iloc[:1])
    assert all(axes.lines[0].get_marker() == "o" for axes in figure.axes)
    assert style.png_of(figure)


@pytest.mark.parametrize(
    "draw", [run_plots.learning_curve, run_plots.losses, run_plots.distance_and_length]
)
def test_metrics_without_data_raise_a_one_line_error(draw):
    for table, message in ((metrics().iloc[:0], "hold no"), (pd.DataFrame(), "have no column")):
        with pytest.raises(ValueError, match=message) as error:
            draw(table)
        assert "\n" not in str(error.value)


def test_if_any_prints_a_line_instead_of_a_missing_figure(capsys):
    assert run_plots.if_any(run_plots.losses, metrics().iloc[:0]) is None
    assert capsys.readouterr().out == (
        "no figure: these metrics hold no losses: no gradient step was logged yet\n"
    )
    assert run_plots.if_any(run_plots.losses, metrics()).axes
    with pytest.raises(ValueError, match="have no column"):
        run_plots.if_any(run_plots.losses, pd.DataFrame())


def test_a_figure_has_an_alternative_text():
    assert style.describe(run_plots.learning_curve(metrics(), title="a run")) == (
        "Figure. A run. Shows return of an episode (sum of rewards) over env steps; drawn: "
        "TF-Agents tutorial, sampled actions, replay 10 000, each episode, evaluation mean."
    )


def test_no_evaluation_yet():
    with pytest.raises(ValueError, match="no evaluation"):
        run_plots.learning_curve(metrics().iloc[:1])
    with pytest.raises(ValueError, match="no losses"):
        run_plots.losses(metrics().iloc[1:2])


@pytest.mark.parametrize(
    "draw", [run_plots.learning_curve, run_plots.losses, run_plots.distance_and_length]
)
def test_a_notebook_shows_one_small_picture_on_white(draw, tmp_path):
    from IPython.core.formatters import DisplayFormatter
    from matplotlib import pyplot

    shown, details = DisplayFormatter().format(draw(metrics()))
    assert details["image/png"]["alt"].startswith("Figure. ")
    assert set(shown) == {"image/png", "text/plain"}
    assert len(shown["image/png"]) < 150_000
    (tmp_path / "figure.png").write_bytes(shown["image/png"])
    corner = image.imread(tmp_path / "figure.png")[0, 0]
    assert corner[:3].tolist() == list(to_rgb("white"))
    assert corner[-1] == 1
    assert not pyplot.get_fignums()  # pyplot would display it a second time


def rows() -> pd.DataFrame:
    """Two rows of losses, and between them an evaluation that took two seconds."""
    nothing = {"collect_return": math.nan, "eval_return": math.nan, "eval_returns": ()}
    losses = {"critic_loss": 1.0, "actor_loss": -2.0, "alpha": 0.02}
    return pd.DataFrame([
        {**nothing, "gradient_step": 0, "wall_seconds": 1.0,
         "eval_return": 1.5, "eval_returns": (1.0, 2.0)},
        {**nothing, **losses, "gradient_step": 100, "wall_seconds": 2.0, "collect_return": 0.5},
        {**nothing, "gradient_step": 100, "wall_seconds": 4.0,
         "eval_return": 3.0, "eval_returns": (3.0,)},
        {**nothing, **losses, "gradient_step": 150, "wall_seconds": 5.0, "collect_return": 0.7},
    ])  # fmt: skip


def test_iterations_per_second_exclude_evaluations():
    assert run_plots.iterations_per_second(rows()) == ([100.0, 150.0], [100.0, 50.0])


def test_iterations_per_second_of_a_run_on_ray():
    """Training continues during an evaluation, whose row comes late."""
    late = rows()
    late["gradient_step"], late["wall_seconds"] = [0, 1000, 0, 2000], [1.0, 10.0, 19.0, 20.0]
    late["eval_return"] = [1.5, math.nan, 3.0, math.nan]
    assert run_plots.iterations_per_second(late) == ([2000.0], [100.0])


@pytest.mark.parametrize("scale", [1, -0.05, 1000])
def test_the_labels_of_the_training_figure_are_inside_the_picture(scale):
    table = rows()
    table[["eval_return", "collect_return"]] *= scale
    table["eval_returns"] = [tuple(scale * v for v in one) for one in table["eval_returns"]]
    figure = run_plots.training_figure(table)
    figure.draw_without_rendering()
    assert figure.axes[0].yaxis.label.get_window_extent().x0 >= 0


def test_training_figure_draws_each_column_in_its_panel():
    figure = run_plots.training_figure(rows())
    returns, critic, actor, alpha, speed = figure.axes
    lines = {line.get_label(): line.get_xydata().tolist() for line in returns.lines}
    assert lines["deterministic actions"] == [[0, 1.5], [100, 3.0]]
    assert lines["sampled actions"] == [[100, 0.5], [150, 0.7]]
    assert line(returns, "sampled actions").get_marker() == "o", "two points are visible"
    assert critic.lines[0].get_ydata().tolist() == [1, 1]
    assert actor.lines[0].get_ydata().tolist() == [-2, -2]
    assert alpha.lines[0].get_ydata().tolist() == [0.02, 0.02]
    assert speed.lines[0].get_ydata().tolist() == [100, 50]
    for row in range(1, 4):  # the first seconds of a run
        assert style.png_of(run_plots.training_figure(rows().iloc[:row]))


def test_both_policies_have_a_line_each():
    table = metrics().assign(collect_return=[-3.0, math.nan, -2.0, math.nan, 1.0, math.nan])
    (axes,) = run_plots.both_policies(table).axes
    deterministic, sampled = axes.lines
    expected = [(10_000, -3), (10_500, -2), (11_000, 1)]
    np.testing.assert_array_equal(sampled.get_xydata(), expected)
    assert "sampled" in sampled.get_label()
    np.testing.assert_array_equal(deterministic.get_ydata(), [-0.75, 1.0, 4.0])
    with pytest.raises(run_plots.NothingToDraw):
        run_plots.both_policies(table.head(0))


def test_the_entropy_is_what_the_temperature_loss_says():
    """log α = −2 and a policy 3 nats above the target of −4: the loss is −6."""
    table = pd.DataFrame({"gradient_step": [100], "alpha": [math.exp(-2)], "alpha_loss": [-6.0]})
    left, right = run_plots.entropy(table, -4.0).axes
    assert line(left, "policy").get_ydata() == pytest.approx([-1.0])
    assert line(left, "policy").get_marker() == "o", "one point without a marker is invisible"
    assert set(line(left, "target").get_ydata()) == {-4.0}
    assert right.lines[0].get_ydata() == pytest.approx([-1.0])
    assert right.get_ylim()[1] > -1, "the only point is visible"
    with pytest.raises(run_plots.NothingToDraw):
        run_plots.entropy(table.assign(alpha=1.0), -4.0)


def test_the_entropy_is_cut_off_where_only_the_start_of_the_run_goes():
    steps = np.arange(1, 11) * 100
    nats = np.array([-1.0, -6.0, -5.0, *[-4.1] * 7])
    log_alpha = -2.0
    table = pd.DataFrame({"gradient_step": steps, "alpha": math.exp(log_alpha)})
    left, right = run_plots.entropy(table.assign(alpha_loss=log_alpha * (nats + 4)), -4.0).axes
    np.testing.assert_allclose(line(left, "policy").get_xydata(), [(100, -1), (200, -6)])
    np.testing.assert_allclose(right.lines[0].get_ydata(), nats)
    np.testing.assert_allclose(right.get_ylim(), (-4.55, -3.45))


@pytest.mark.parametrize(("evaluations", "marker"), [(40, "o"), (41, "None")])
def test_many_evaluations_are_a_line_without_markers(evaluations, marker):
    evaluated = metrics().dropna(subset="eval_return").iloc[:1]
    table = pd.concat([evaluated] * evaluations, ignore_index=True)
    (axes,) = run_plots.learning_curve(table).axes
    assert line(axes, "evaluation mean").get_marker() == marker
