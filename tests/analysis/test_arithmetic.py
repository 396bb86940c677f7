"""Which runs come from machines that round alike: files with known starts."""

import pytest
import test_compare

from labkit.analysis import arithmetic, choices, compare
from labkit.config import SACConfig
from labkit.errors import ParameterError
from labkit.sac.rollout import Evaluation
from labkit.training import run_directory


def write_run(path, seed, start, curve=(1.0,), **changes):
    """A run with this return before training, or without such a row if it is None."""
    test_compare.write_run(path, seed, list(curve), num_eval_episodes=2, **changes)
    if start is not None:
        config = SACConfig(seed=seed, num_iterations=10, **changes)
        score = Evaluation((start,), (1.0,), (0.0,))
        run = run_directory.Run(path, config)
        run.log_evaluation(score, env_step=0, gradient_step=0, wall_seconds=0.0)


def kinds(folder):
    starts = arithmetic.read_starts(folder)
    return {run.path.name: arithmetic.kind_of(run, starts) for run in compare.find_runs(folder)[0]}


def test_a_run_has_the_kind_of_its_start(tmp_path):
    write_run(tmp_path / "same", 1, 0.5)
    write_run(tmp_path / "other", 1, 0.5000001, n_step=1)
    write_run(tmp_path / "seed", 2, 0.5)
    write_run(tmp_path / "scale", 1, 0.5, observation_scale=())
    write_run(tmp_path / "no start", 1, None, [1.0], gamma=0.9)
    starts = {arithmetic.key_of(SACConfig(seed=1)): 0.5}
    arithmetic.write_starts(starts, tmp_path / arithmetic.FILE)
    assert arithmetic.read_starts(tmp_path) == starts
    assert kinds(tmp_path) == {
        "same": "A",
        "other": "B",
        "seed": "unknown",
        "scale": "unknown",
        "no start": "unknown",
    }


def test_all_digits_of_a_start_survive_the_file(tmp_path):
    starts = {arithmetic.key_of(SACConfig(seed=s, observation_scale=())): s / 3 for s in (2, 10)}
    arithmetic.write_starts(starts, tmp_path / arithmetic.FILE)
    assert arithmetic.read_starts(tmp_path) == starts


def test_a_damaged_file_is_named(tmp_path):
    (tmp_path / arithmetic.FILE).write_text(
        "seed,observation_scale,action_repeat,return\n1,(2,1,3\n"
    )
    with pytest.raises(ParameterError, match=r"starts\.csv is not a table of starts"):
        arithmetic.read_starts(tmp_path)


def test_only_values_of_one_kind_are_compared_the_one_with_the_most_of_both():
    ours = [("A", 1.0), ("B", 2.0), ("B", 3.0)]
    theirs = [("A", 4.0), ("A", 5.0), ("A", 6.0), ("B", 7.0), ("B", 8.0)]
    assert arithmetic.alike(ours, theirs) == ("B", [2.0, 3.0], [7.0, 8.0])
    assert arithmetic.alike(ours[:1], theirs) == ("A", [1.0], [4.0, 5.0, 6.0])
    assert min(map(len, arithmetic.alike([("A", 1.0)], [("B", 2.0)])[1:])) == 0


def test_the_table_of_choices_does_not_mix_kinds_of_machines(tmp_path):
    for seed in (1, 2, 3):
        write_run(tmp_path / "with" / str(seed), seed, 0.5, [10.0 * seed])
    for seed, start in ((1, 0.5), (2, 0.5), (3, 0.6)):
        write_run(tmp_path / "without" / str(seed), seed, start, [1.0 * seed], n_step=1)
    starts = {arithmetic.key_of(SACConfig(seed=seed)): 0.5 for seed in (1, 2, 3)}
    assert choices.show_study(tmp_path).loc["n_step", "seeds"] == "3 / 3", "all are unknown"
    arithmetic.write_starts(starts, tmp_path / arithmetic.FILE)
    row = choices.show_study(tmp_path).loc["n_step"]
    assert row["seeds"] == "2 / 3"
    assert row["return without"] == 1.5
