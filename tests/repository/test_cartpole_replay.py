"""The runs with five replay memories: the tracked file, its page and the command agree."""

import re

import pandas as pd
import pytest

from benchmarks import cartpole_replay, cartpole_replay_page
from labkit.analysis import replay_results
from labkit.teaching import numpy_dqn

TRACKED = cartpole_replay.RESULTS
SETTINGS = numpy_dqn.Settings()


@pytest.fixture(scope="module")
def table():
    return replay_results.read(TRACKED / replay_results.FILE)


def test_every_planned_run_is_there_and_complete(table):
    runs = table.groupby(["memory", "learning_rate", "seed"]).env_step.agg(list)
    every = SETTINGS.eval_interval
    steps = list(range(every, SETTINGS.env_steps + 1, every))
    assert all(found == steps for found in runs)
    chosen = replay_results.chosen_rates(table)
    assert set(chosen) == set(cartpole_replay.MEMORIES) == set(cartpole_replay.CAPACITIES)
    for memory in cartpole_replay.MEMORIES:
        for seed in cartpole_replay.TUNING_SEEDS:
            for rate in cartpole_replay.LEARNING_RATES:
                assert (memory, rate, seed) in runs.index
        for seed in cartpole_replay.SEEDS:
            assert (memory, chosen[memory], seed) in runs.index


def test_the_learning_rates_are_chosen_on_seeds_that_are_not_reported(table):
    shown = replay_results.reported(table)
    assert set(shown.seed) == set(cartpole_replay.SEEDS)
    assert not set(shown.seed) & set(cartpole_replay.TUNING_SEEDS)
    other_scores = table.mean_return.where(table.seed >= 100, 200 - table.mean_return)
    changed = table.assign(mean_return=other_scores)
    assert replay_results.chosen_rates(changed) == replay_results.chosen_rates(table)


def test_the_page_is_what_the_command_writes_from_the_file(table):
    page = (TRACKED / "README.md").read_text()
    assert page == cartpole_replay_page.page(table, cartpole_replay.CAPACITIES)
    assert (TRACKED / "curves.png").stat().st_size > 10_000


def test_the_page_lists_every_run(table):
    page = (TRACKED / "README.md").read_text()
    shown = replay_results.scores(replay_results.reported(table))
    for name, one in shown.groupby("memory"):
        ends = ", ".join(f"{value:.0f}" for value in one.end)
        assert re.search(rf"^\| {name} \|.*\| {ends} \|$", page, re.M), name
    for one in replay_results.scores(table).itertuples():
        if one.seed >= replay_results.FIRST_TUNING_SEED:
            row = rf"^\| {one.memory} \| {one.learning_rate:g} \| .*\b{one.whole:.1f}\b"
            assert re.search(row, page, re.M), one


def test_a_run_that_the_file_has_is_not_made_again(tmp_path, monkeypatch):
    short = {"env_steps": 20, "warm_up": 40, "eval_interval": 10, "eval_episodes": 1}
    make = numpy_dqn.Settings
    monkeypatch.setattr(numpy_dqn, "Settings", lambda **given: make(**short, **given))
    file = tmp_path / replay_results.FILE
    cartpole_replay.run(file, "small", 1e-3, 0)
    cartpole_replay.run(file, "no replay", 1e-3, 0)
    before = file.read_text()
    cartpole_replay.run(file, "small", 1e-3, 0)
    assert file.read_text() == before
    assert replay_results.read(file).env_step.tolist() == [10, 20, 10, 20]


def test_a_difference_needs_a_small_p_value():
    rows = [
        (memory, 1e-3, seed, step, value + seed)
        for memory, value in (("large", 100), ("near", 101), ("far", 50))
        for seed in range(5)
        for step in range(1, 11)
    ]
    table = pd.DataFrame(rows, columns=replay_results.COLUMNS)
    text = "\n".join(replay_results.verdicts(table))
    assert re.search("near, over the whole run: 1.0 higher than large, p = .*: no detectable", text)
    assert re.search("far, at the end: 50.0 lower than large, p = .* after Holm: a diff", text)
