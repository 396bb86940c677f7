"""The figures of notebook 04, and the rate that it prints."""

import math

import numpy as np
import pandas as pd

from labkit.teaching import distributed_plots


def test_the_rate_is_measured_between_the_first_and_the_last_row_with_losses():
    table = pd.DataFrame(
        {
            "gradient_step": [300, 0, 100, 400],
            "wall_seconds": [15.0, 0.0, 5.0, 90.0],
            "critic_loss": [1.0, None, 2.0, None],
        }
    )
    assert distributed_plots.iterations_per_second(table) == 20
    assert math.isnan(distributed_plots.iterations_per_second(table[1:3]))


def test_the_diagram_names_every_process():
    figure = distributed_plots.processes()
    texts = {text.get_text() for text in figure.axes[0].texts}
    names = {"driver", "rollout workers", "replay", "learner", "parameter server", "evaluator"}
    assert names <= texts
    assert all(name in figure._repr_png_()[1]["alt"] for name in names)


def test_evaluations_and_env_steps_over_minutes_are_drawn():
    table = pd.DataFrame(
        {
            "gradient_step": [2, 1, 3, 4],
            "env_step": [20, 10, 30, 40],
            "wall_seconds": [120.0, 60.0, 180.0, 240.0],
            "eval_return": [2.0, 1.0, None, 5.0],
        }
    )
    left, right = distributed_plots.evaluations({"run": table}).axes
    line, final, legend_entry = left.lines
    assert legend_entry.get_label() == "final evaluation, other episodes"
    assert line.get_xydata().tolist() == [[10, 1], [20, 2]]
    assert final.get_xydata().tolist() == [[40, 5]], "the last one plays other episodes"
    assert final.get_linestyle() == "None"
    (taken,) = right.lines
    assert taken.get_xydata().tolist() == [[1, 10], [2, 20], [4, 40]], "env steps over minutes"
    many = distributed_plots.evaluations({str(number): table for number in range(6)})
    assert len(many.axes[1].lines) == 6, "more runs than colours"


def test_a_run_that_is_too_short_has_no_rate_and_prints_no_nan():
    steps = pd.DataFrame(
        {"gradient_step": [100, 200], "wall_seconds": [1.0, 6.0], "critic_loss": [1.0, 1.0]}
    )
    text = distributed_plots.rates([("local", steps), ("Ray", steps[:1])])
    assert text == "local: 20 gradient steps/s\nRay: too short to be timed"


def test_a_learning_curve_has_the_goal():
    points = pd.DataFrame({"env_steps": [100, 200], "mean_return": [5.0, 9.0]})
    returns, goal = distributed_plots.learning_curve(points, 8.0).axes[0].lines
    assert returns.get_xydata().tolist() == [[100, 5], [200, 9]]
    assert set(goal.get_ydata()) == {8.0}


def test_throughput_falls_to_zero_when_a_worker_stops():
    seconds = np.arange(9.0)
    arrived = {"worker 0": 100 * seconds, "worker 1": 50 * np.minimum(seconds, 4)}
    counts = pd.DataFrame(arrived, index=seconds)
    figure = distributed_plots.throughput(counts, {"killed": 4.0}, window=2.0)
    zero, one, together = figure.axes[0].lines[:3]
    assert zero.get_xydata().tolist() == [[t, 100] for t in range(2, 9)]
    assert one.get_ydata().tolist() == [50, 50, 50, 25, 0, 0, 0]
    assert together.get_ydata().tolist() == [150, 150, 150, 125, 100, 100, 100]
    assert [line.get_xdata()[0] for line in figure.axes[0].lines[3:]] == [4.0]
    assert "killed" in figure.axes[0].texts[0].get_text()
