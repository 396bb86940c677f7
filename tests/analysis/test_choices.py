"""The table of single choices, on runs whose scores are known."""

import json

import pytest
import test_compare

from labkit.analysis.choices import show_study


def write_run(path, seed, curve, **changes):
    """A finished run, whose evaluations have as many episodes as its final one."""
    return test_compare.write_run(path, seed, curve, num_eval_episodes=2, **changes)


OLD = {"target_update_tau": 0.01}  # not the present defaults


@pytest.fixture
def folder(tmp_path):
    for seed in (1, 2, 3):
        write_run(tmp_path / "old" / str(seed), seed, [1.0 * seed, 10.0 * seed], **OLD)
    for seed in (1, 2):
        write_run(tmp_path / "one step" / str(seed), seed, [0.0, 4.0], **{**OLD, "n_step": 1})
    return tmp_path


def test_a_choice_has_its_score_with_and_without(folder):
    table = show_study(folder)
    assert table.index.tolist() == ["n_step"]
    expected = ["1", "5", 4.0, 20.0, 16.0, "2 / 3", 30]
    assert table.loc["n_step"].tolist() == expected


def test_settings_that_differ_in_two_fields_say_nothing_of_either(folder):
    write_run(folder / "two", 1, [0.0, 1.0], **OLD, critic_layer_norm=False, gamma=0.5)
    assert show_study(folder).index.tolist() == ["n_step"]


def test_a_removed_parameter_counts_as_a_difference(folder):
    for file in (folder / "one step").glob("*/config.json"):
        content = json.loads(file.read_text())
        content["config"]["greedy_share"] = 0.3
        file.write_text(json.dumps(content))
    assert show_study(folder).empty


def test_only_labkits_own_value_counts_as_with(folder):
    for seed in (1, 2, 3):
        write_run(folder / "tutorial's" / str(seed), seed, [0.0, 1.0], **OLD, gamma=0.99)
        write_run(folder / "another" / str(seed), seed, [0.0, 2.0], **OLD, gamma=0.95)
    assert show_study(folder).loc["gamma", ["without", "with"]].tolist() == ["0.99", "0.995"]


def test_a_repeated_seed_counts_once(folder):
    write_run(folder / "again", 2, [0.0, 8.0], **{**OLD, "n_step": 1})
    found = show_study(folder).loc["n_step"]
    assert found["return without"] == 5.0  # seed 1: 4, seed 2: the mean of 4 and 8
    assert found["seeds"] == "2 / 3"


def test_one_seed_of_a_setting_has_no_row(tmp_path):
    for seed in (1, 2):
        write_run(tmp_path / "old" / str(seed), seed, [1.0], **OLD)
    write_run(tmp_path / "one step" / "1", 1, [0.0], **{**OLD, "n_step": 1})
    assert show_study(tmp_path).empty


def test_the_present_defaults_come_first_once_they_have_three_seeds(folder):
    for seed in (1, 2, 3):
        write_run(folder / "new" / str(seed), seed, [0.0, 9.0])
    for seed in (1, 2):
        write_run(folder / "new one step" / str(seed), seed, [0.0, 6.0], n_step=1)
    assert show_study(folder).loc["n_step", "difference"] == 3.0
    assert show_study(folder / "old").empty


def test_without_runs_there_are_no_rows(tmp_path):
    assert show_study(tmp_path).empty
    assert show_study(tmp_path / "missing").empty
