"""The figures of notebook 04, and the rate that it prints."""

import math

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


def test_evaluations_are_drawn_over_env_steps_and_minutes():
    table = pd.DataFrame(
        {
            "env_step": [20, 10, 15],
            "wall_seconds": [120.0, 60.0, 90.0],
            "eval_return": [2.0, 1.0, None],
        }
    )
    left, right = distributed_plots.evaluations({"run": table}).axes
    assert left.lines[0].get_xydata().tolist() == [[10, 1], [20, 2]]
    assert right.lines[0].get_xydata().tolist() == [[1, 1], [2, 2]]
