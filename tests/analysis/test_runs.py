"""Comparing runs: reading them, names of settings, scores, ranking, and the data of the figures."""

import numpy as np
import pandas as pd
import pytest

from labkit.analysis import plots
from labkit.analysis.runs import (
    common_budget,
    compare,
    find_runs,
    rank,
    relative_to,
    scores_at,
    setting_name,
)
from labkit.config import SACConfig
from labkit.errors import ParameterError
from labkit.sac.rollout import Evaluation
from labkit.training import run as run_directory


def write_run(path, seed, curve, episodes=2, walks=True, **changes):
    """A run on disk with these mean returns after 10, 20, … gradient steps."""
    config = SACConfig(**{"seed": seed, "num_iterations": 10 * len(curve), **changes})
    run = run_directory.open_run(path, config)
    run.log(gradient_step=5, env_step=15, critic_loss=1.0)
    for number, value in enumerate(curve, start=1):
        returns = tuple(value + d for d in np.linspace(-1, 1, episodes))
        distance = value / 2 if walks else np.nan
        score = Evaluation(returns, (100.0 * number,) * episodes, (distance,) * episodes)
        counted = {"env_step": 10 * number + 10, "gradient_step": 10 * number}
        run.log_evaluation(score, **counted, wall_seconds=60.0 * number)
    return path


@pytest.fixture
def folder(tmp_path):
    """Five runs of the defaults and two of another setting, all evaluated after 20 steps."""
    for seed, end in enumerate([1.0, 2.0, 3.0, 4.0, 50.0]):
        write_run(tmp_path / "a" / f"seed-{seed}", seed, [0.0, end])
    for seed, end in enumerate([0.0, 1.0]):
        write_run(tmp_path / "b" / f"{seed}", seed, [0.0, end, end + 5], gamma=0.5)
    return tmp_path


def table_of(**returns):
    """As `scores_at`, with the seeds 0, 1, … of each setting."""
    rows = [(name, s, x) for name, values in returns.items() for s, x in enumerate(values)]
    return pd.DataFrame(rows, columns=["setting", "seed", "return"])


# --- finding and naming


def test_runs_in_subfolders_are_found_and_named_by_their_setting(folder):
    found, damaged = find_runs(folder)
    assert not damaged
    assert [run.setting for run in found] == ["defaults"] * 5 + ["gamma 0.5"] * 2
    assert find_runs(folder / "a" / "seed-0")[0] == found[:1]


def test_a_name_lists_what_differs():
    base = SACConfig()
    changed = SACConfig(seed=7, num_iterations=5, gamma=0.5, observation_scale=())
    assert setting_name(base) == "defaults"
    assert setting_name(base, base) == "baseline"
    assert setting_name(changed) == "gamma 0.5, observation_scale none"
    assert setting_name(base, changed).startswith("gamma 0.995, observation_scale (1.0, 1.0, ")
    assert setting_name(SACConfig(env_name="HalfCheetahBulletEnv-v0")) == "defaults"


def test_a_long_name_is_shortened_unless_two_settings_would_share_it(folder):
    for steps, batch in ((2, 6), (3, 6), (3, 8)):
        write_run(folder / f"{steps}-{batch}", 0, [1], n_step=steps, gamma=0.5, batch_size=batch)
    names = [run.setting for run in relative_to(find_runs(folder)[0], "a")]
    shared = [f"n_step 3, batch_size {batch}, gamma 0.5" for batch in (6, 8)]
    assert names[:3] == ["n_step 2 and 2 more", *shared]


def test_a_baseline_is_a_setting_or_a_folder_of_one(folder):
    found, _ = find_runs(folder)
    for baseline in ("gamma 0.5", "b"):
        named = relative_to(found, baseline)
        assert [run.setting for run in named] == ["gamma 0.995"] * 5 + ["baseline"] * 2
    for wrong in ("no such", folder.name, "", None):  # the folder above has two settings
        with pytest.raises(ParameterError) as error:
            relative_to(found, wrong)
        assert str(error.value) == (
            "`baseline` must be a folder in `runs` whose runs have one setting, or one of these: "
            f"'defaults', 'gamma 0.5', got {wrong!r}"
        )


def test_runs_of_two_environments_are_not_compared(tmp_path):
    write_run(tmp_path / "a", 0, [1.0])
    write_run(tmp_path / "b", 0, [1.0], env_name="Pendulum-v1")
    with pytest.raises(ParameterError, match=r"^`runs` must be .* in one environment, got"):
        relative_to(find_runs(tmp_path)[0], "defaults")


def test_damaged_runs_are_named_and_the_others_are_read(folder):
    (folder / "a" / "seed-3" / "config.json").write_text("nonsense\n")
    found, damaged = find_runs(folder)
    assert (len(found), ["seed-3" in line for line in damaged]) == (6, [True])


@pytest.mark.parametrize("runs", ["missing", "empty", None, 7, [None], ["empty", 7]])
def test_what_holds_no_run_is_one_line(tmp_path, monkeypatch, runs):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "empty").mkdir()
    with pytest.raises(ParameterError, match=r"^`runs` must be .*, got") as error:
        find_runs(runs)
    assert "\n" not in str(error.value)


# --- the step of the comparison, and the scores there


def test_unfinished_runs_neither_decide_the_budget_nor_count(tmp_path):
    for seed in range(3):
        write_run(tmp_path / f"{seed}", seed, [0.0, 1.0], episodes=5)
    write_run(tmp_path / "short", 3, [1.0], episodes=5, num_iterations=20)
    write_run(tmp_path / "warm-up", 4, [], num_iterations=20)
    write_run(tmp_path / "fewer", 5, [1.0, 2.0], episodes=2)
    found, _ = find_runs(tmp_path)
    assert common_budget(found) == 20
    table, left_out = scores_at(found, 20)
    assert table.seed.tolist() == [0, 1, 2]
    assert left_out == [
        f"left out: {tmp_path / name}: {count} episodes after 20 gradient steps, not 5"
        for name, count in (("fewer", 2), ("short", 0), ("warm-up", 0))
    ]
    with pytest.raises(ParameterError, match=r"^`budget` must be .*, at most 20, got 15$"):
        scores_at(found, 15)
    with pytest.raises(ParameterError, match=r"^`runs` must have .*warm-up$"):
        common_budget([run for run in found if run.path.name == "warm-up"])


def test_scores_use_the_evaluation_at_exactly_the_budget(folder):
    found, _ = find_runs(folder)
    assert common_budget(found) == 20
    table, left_out = scores_at(found, 20)
    assert not left_out
    assert table["return"].tolist() == [1.0, 2.0, 3.0, 4.0, 50.0, 0.0, 1.0]
    assert table.seed.tolist() == [0, 1, 2, 3, 4, 0, 1]
    assert set(table.length) == {200.0}
    assert table.distance.tolist() == [r / 2 for r in table["return"]]
    assert table.error.tolist() == pytest.approx([1 / np.sqrt(2)] * 7)  # of ±1
    assert scores_at(found, 30)[0].setting.tolist() == ["gamma 0.5"] * 2


def test_the_score_is_the_evaluation_with_the_most_episodes(tmp_path):
    write_run(tmp_path, 0, [5.0], episodes=2)
    run = run_directory.open_run(tmp_path, SACConfig(num_iterations=20))
    score = Evaluation((7.0,) * 20, (9.0,) * 20, (0.0,) * 20)
    run.log_evaluation(score, env_step=20, gradient_step=10, wall_seconds=1)
    (found,), _ = find_runs(tmp_path)
    assert found.evaluation_at(10).eval_return == 7.0


# --- ranking and comparison


def test_rank_by_hand(folder):
    order = rank(scores_at(find_runs(folder)[0], 20)[0])
    assert order.index.tolist() == ["defaults", "gamma 0.5"]
    assert order.iqm.tolist() == [3.0, 0.5]  # of 1 2 3 4 50, without the first and the last
    assert order.seeds.tolist() == [5, 2]
    assert order.low.iloc[0] < 3.0 < order.high.iloc[0]
    assert order[["low", "high"]].iloc[1].isna().all()


def test_each_setting_is_compared_with_the_baseline_and_corrected():
    returns = {"baseline": [10.0, 11.0, 12.0], "far": [1.0, 2.0, 3.5], "near": [9.0, 10.0, 12.5]}
    table = compare(table_of(**returns))
    assert table.index.tolist() == ["near", "far"], "the highest difference first"
    assert table.difference.tolist() == pytest.approx([-0.5, 6.5 / 3 - 11])
    p = table.p.tolist()
    assert p[1] < 0.01 < 0.5 < p[0]
    assert table.corrected.tolist() == pytest.approx([max(p[0], 2 * p[1]), 2 * p[1]])
    assert ((table.low < table.difference) & (table.difference < table.high)).all()
    assert compare(table_of(near=[1.0, 2.0])).empty


# --- figures


def test_curves_show_every_setting_and_mark_the_baseline(folder):
    found = relative_to(find_runs(folder)[0], "defaults")
    axes = plots.curves(found, 20, published=True).axes[0]
    lines = {str(line.get_label()).split(":")[0]: line for line in axes.lines}
    assert lines["baseline"].get_xydata().tolist() == [[20, 0], [30, 3]]
    assert lines["baseline"].get_color() == "black"
    assert lines["gamma 0.5"].get_xydata().tolist() == [[20, 0], [30, 0.5]]
    assert len(axes.collections) == 1, "one interval: two seeds have none"
    assert len([line for line in axes.lines if line.get_alpha() == 0.3]) == 7, "single seeds"
    assert axes.get_xlim()[1] == pytest.approx(1.03 * 30), "the published curve is longer"
    assert [text.get_position()[1] for text in axes.texts] == [11.33, 13.96, 15.0]


def test_the_curve_of_a_setting_ends_at_the_budget(folder):
    runs = [run for run in find_runs(folder)[0] if run.setting != "defaults"]
    table = plots.curve(runs, 20)
    assert table.index.tolist() == [20, 30]
    assert table.to_numpy().tolist() == [[0.0, 0.0], [0.0, 1.0]]


def test_many_settings_share_one_grey_entry_and_stay_inside_the_figure(tmp_path):
    many = [{"gamma": 0.9 + number / 100} for number in range(8)]
    many.append({"actor_update_period": 1, "n_step": 1, "critic_layer_norm": False})
    for number, changes in enumerate(many):
        write_run(tmp_path / f"{number}", 0, [0.0, float(number)], **changes)
    found, _ = find_runs(tmp_path)
    curves = plots.curves(found, 20)
    labels = [text.get_text() for text in curves.legends[0].get_texts()]
    assert labels[0].startswith("n_step 1, "), "the best is first"
    assert (len(labels), labels[-1]) == (6 + 1, "further settings: interquartile means")
    curves.savefig(tmp_path / "figure.png")  # computes the layout
    box = curves.legends[0].get_window_extent()
    assert box.x0 >= 0
    assert box.x1 <= curves.bbox.x1


def test_a_ranking_has_a_dot_for_each_seed_and_a_ring_for_a_repeated_one(folder):
    table, _ = scores_at(relative_to(find_runs(folder)[0], "gamma 0.5"), 20)
    again = table[table.setting == "baseline"].head(1).assign(**{"return": 77.0})
    axes = plots.ranking(table, again).axes[0]
    names = [text.get_text() for text in axes.get_yticklabels()]
    assert names == ["gamma 0.995", "baseline"]
    dots = [line for line in axes.lines if line.get_marker() == "o" and len(line.get_xdata())]
    found = {tuple(line.get_xdata()): line.get_markerfacecolor() for line in dots}
    assert found == {(1, 2, 3, 4, 50): plots.style.BLUE, (0, 1): "black", (77,): "none"}
    dashed = [line.get_xdata()[0] for line in axes.lines if line.get_linestyle() == "--"]
    assert dashed == [0.5], "the baseline's interquartile mean"
