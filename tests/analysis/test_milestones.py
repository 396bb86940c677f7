"""When a run reached a return."""

import math

import pytest

from labkit.analysis import compare, milestones
from labkit.config import SACConfig
from labkit.errors import ParameterError
from labkit.sac.rollout import Evaluation
from labkit.training import run_directory


@pytest.fixture
def run_with(tmp_path):
    """Makes a run of evaluations `(gradient step, seconds, return)` and rows `(step, seconds)`."""

    def make(*rows):
        run = run_directory.open_run(tmp_path / "run", SACConfig(num_iterations=100))
        for step, seconds, *value in rows:
            when = {"gradient_step": step, "env_step": step + 1000, "wall_seconds": float(seconds)}
            if value:
                score = Evaluation((value[0],) * 2, (100.0,) * 2, (1.0,) * 2)
                run.log_evaluation(score, **when)
            else:
                run.log(**when, critic_loss=1.0)
        (found,), _ = compare.find_runs(run.path)
        return found

    return make


def test_one_lucky_evaluation_does_not_count(run_with):
    run = run_with((0, 1, 0.0), (10, 2, 12.0), (20, 3, 9.0), (30, 4, 10.0), (40, 5, 11.0))
    assert milestones.first_sustained(run, 10) == 1030
    assert milestones.first_sustained(run, 10, in_a_row=1) == 1010
    assert milestones.first_sustained(run, 10, in_a_row=3) is None
    assert milestones.first_sustained(run, 10, budget=30) is None
    assert milestones.first_sustained(run, 0) == 1000


def test_a_final_and_an_interim_evaluation_of_one_step_are_one(run_with):
    run = run_with((10, 1, 12.0), (10, 2, 13.0), (20, 3, 5.0))
    assert milestones.first_sustained(run, 10) is None


@pytest.mark.parametrize("in_a_row", [0, 1.5])
def test_less_than_one_evaluation_in_a_row_is_refused(run_with, in_a_row):
    with pytest.raises(ParameterError, match=r"^`in_a_row` must be a whole number from 1 to"):
        milestones.first_sustained(run_with((10, 1, 12.0)), 10, in_a_row=in_a_row)


def test_training_seconds_leave_evaluations_out(run_with):
    run = run_with((0, 4, 0.0), (5, 10), (10, 15), (10, 22, 3.0), (15, 27))
    assert milestones.training_seconds(run, 1005) == 6.0
    assert milestones.training_seconds(run, 1010) == 11.0, "the evaluation comes afterwards"
    assert milestones.training_seconds(run, 1015) == 16.0
    assert math.isnan(milestones.training_seconds(run, 1007)), "there is no row of that step"
    assert math.isnan(milestones.training_seconds(run, 1000)), "an evaluation is no training"
