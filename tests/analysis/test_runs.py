"""Comparing runs: reading them, scores, ranking, and the data of the figures."""

import itertools
import json
import shutil
from pathlib import Path

import attrs
import gym
import numpy as np
import pytest

import labkit
from labkit.analysis import compare, comparison_plots, statistics
from labkit.config import SACConfig
from labkit.errors import ParameterError
from labkit.plotting.run_plots import NothingToDraw
from labkit.sac.rollout import Evaluation
from labkit.training import resuming, run_directory


def write_run(path, seed, curve, episodes=2, walks=True, **changes):
    """A finished run on disk with these mean returns after 10, 20, … gradient steps."""
    config = SACConfig(seed=seed, num_iterations=10 * len(curve), **changes)
    run = run_directory.open_run(path, config)
    run.log(gradient_step=5, env_step=15, critic_loss=1.0)
    for number, value in enumerate(curve, start=1):
        returns = tuple(value + d for d in np.linspace(-1, 1, episodes))
        distance = value / 2 if walks else np.nan
        score = Evaluation(returns, (100.0 * number,) * episodes, (distance,) * episodes)
        run.log_evaluation(
            score, env_step=10 * number + 10, gradient_step=10 * number, wall_seconds=60.0 * number
        )
    return path


@pytest.fixture
def folder(tmp_path):
    for seed, end in enumerate([1.0, 2.0, 3.0, 4.0, 50.0]):
        write_run(tmp_path / "a" / f"seed-{seed}", seed, [0.0, end])
    for seed, end in enumerate([0.0, 1.0]):
        write_run(tmp_path / "b" / f"{seed}", seed, [0.0, end, end + 5], gamma=0.5)
    return tmp_path


def test_runs_in_subfolders_are_found_and_named_by_their_setting(folder):
    found, damaged = compare.find_runs(folder)
    assert not damaged
    assert [run.setting for run in found] == ["defaults"] * 5 + ["gamma 0.5"] * 2
    assert compare.find_runs([folder / "a", folder / "a" / "seed-0"])[0] == found[:5]
    assert compare.setting_name(SACConfig(env_name="HalfCheetahBulletEnv-v0", batch_size=64)) == (
        "HalfCheetahBulletEnv-v0, batch_size 64"
    )


@pytest.mark.parametrize(
    ("changes", "name"),
    [
        ({}, "tutorial"),
        ({"n_step": 5}, "tutorial, n_step 5"),
        ({"n_step": 5, "gamma": 0.5}, "tutorial, n_step 5, gamma 0.5"),
        ({"observation_scale": None}, "tutorial, observation_scale default"),
        ({"observation_scale": (2,) * 9}, "tutorial, observation_scale (9 × 2)"),
    ],
)
def test_settings_closer_to_the_tutorial_are_named_after_the_tutorial(changes, name):
    assert compare.setting_name(SACConfig(**{**compare.TUTORIAL, **changes})) == name


def test_settings_closer_to_the_defaults_are_named_after_the_defaults():
    ablated = SACConfig(n_step=1, critic_layer_norm=False)
    assert compare.setting_name(ablated) == "n_step 1, critic_layer_norm False"


def test_damaged_runs_are_reported_and_the_others_are_read(folder):
    (folder / "a" / "seed-3" / "metrics.csv").write_text("nonsense\n")
    found, damaged = compare.find_runs(folder)
    assert len(found) == 6
    assert len(damaged) == 1
    assert "seed-3" in damaged[0]


@pytest.mark.parametrize(
    ("what", "allowed"),
    [("missing", "an existing folder"), ("empty", "a folder with at least one run")],
)
def test_a_folder_without_runs_is_rejected_in_one_line(tmp_path, monkeypatch, what, allowed):
    monkeypatch.chdir(tmp_path)  # a short path: messages repeat 80 characters of a value
    Path("empty").mkdir()
    with pytest.raises(ParameterError, match=f"`runs` must be {allowed}, got .*{what}") as error:
        compare.find_runs(what)
    assert "\n" not in str(error.value)


def test_scores_use_the_evaluation_at_exactly_the_budget(folder):
    found, _ = compare.find_runs(folder)
    table = compare.scores(found, 20)
    assert table["return"].tolist() == [1.0, 2.0, 3.0, 4.0, 50.0, 0.0, 1.0]
    assert table.seed.tolist() == [0, 1, 2, 3, 4, 0, 1]
    assert set(table.length) == {200.0}
    assert table.distance.tolist() == [r / 2 for r in table["return"]]
    assert set(table.minutes) == {2.0}
    assert compare.scores(found, 30).setting.tolist() == ["gamma 0.5"] * 2
    assert compare.scores(found, 25).empty


def test_the_score_is_the_evaluation_with_the_most_episodes(tmp_path):
    write_run(tmp_path, 0, [5.0], episodes=2)
    run = run_directory.open_run(tmp_path, SACConfig(num_iterations=20))
    score = Evaluation((7.0,) * 20, (9.0,) * 20, (0.0,) * 20)
    run.log_evaluation(score, env_step=20, gradient_step=10, wall_seconds=1)
    (found,), _ = compare.find_runs(tmp_path)
    assert found.evaluation_at(10).eval_return == 7.0


def test_a_run_of_changed_code_is_left_out(tmp_path):
    write_run(tmp_path / "plain" / "seed-0", 0, [1.0])
    write_run(tmp_path / "changed" / "seed-0", 1, [2.0])
    (tmp_path / "changed" / compare.CHANGED_CODE).write_text("two gradient steps\n")
    (found,), lines = compare.find_runs(tmp_path)
    assert found.path == tmp_path / "plain" / "seed-0"
    left_out = tmp_path / "changed" / "seed-0"
    assert lines == [f"left out: {left_out}, of changed code: two gradient steps"]


def test_a_copy_of_a_run_is_left_out_and_named(tmp_path):
    for seed in (0, 1):
        write_run(tmp_path / f"s{seed}", seed, [1.0, 2.0 + seed])
        for copy in ("copy", "copy2"):
            shutil.copytree(tmp_path / f"s{seed}", tmp_path / f"s{seed}_{copy}")
    write_run(tmp_path / "again", 0, [1.0, 2.5])  # another run of the same seed is none
    table = (tmp_path / "s1_copy" / "metrics.csv").read_text().splitlines(keepends=True)
    (tmp_path / "s1_copy" / "metrics.csv").write_text("".join(table[:-1]))
    found, lines = compare.find_runs(tmp_path)
    assert [run.path.name for run in found] == ["again", "s0", "s1"]
    assert lines[0] == f"left out: {tmp_path / 's0_copy'}, a copy of {tmp_path / 's0'}"
    assert len(lines) == 4
    assert compare.comparable(found, 20) == (found, ["repeated: defaults, seed 0: 2 runs"])
    assert compare.rank(compare.scores(found, 20)).seeds.tolist() == [3]


def test_the_setting_of_each_run_is_named_once(tmp_path, monkeypatch):
    """Naming both settings of each pair of runs took 11 seconds for the tracked runs."""
    named = []

    def name(config):
        named.append(config.seed)
        return "defaults"

    monkeypatch.setattr(compare, "setting_name", name)
    for seed in range(4):
        write_run(tmp_path / f"s{seed}", seed, [1.0])
    compare.find_runs(tmp_path)
    assert sorted(named) == [0, 1, 2, 3]


def test_a_copy_of_a_run_without_distances_is_found_as_well(tmp_path):
    write_run(tmp_path / "one", 0, [1.0, 2.0], walks=False)
    shutil.copytree(tmp_path / "one", tmp_path / "two")
    found, lines = compare.find_runs(tmp_path)
    assert (len(found), len(lines)) == (1, 1)


@pytest.mark.parametrize("runs", [None, 7, [None], ["here", 7]])
def test_runs_that_are_no_folders_are_one_line(runs):
    with pytest.raises(
        ParameterError, match=r"^`runs` must be a folder, or a list of folders, got"
    ):
        compare.find_runs(runs)


def test_the_budget_of_no_runs_is_one_line():
    with pytest.raises(
        ParameterError, match=r"^`runs` must be a list of at least one run, got \[\]"
    ):
        compare.common_budget([])


def test_a_run_that_was_stopped_early_does_not_decide_the_budget(folder):
    found, _ = compare.find_runs(folder)
    budget = compare.common_budget(found)
    run_directory.open_run(folder / "warm-up", SACConfig(seed=8))
    first = run_directory.open_run(folder / "first", SACConfig(seed=9))
    score = Evaluation((1.0,), (9.0,), (0.0,))
    first.log_evaluation(score, env_step=0, gradient_step=0, wall_seconds=1)
    more, _ = compare.find_runs(folder)
    assert len(more) == len(found) + 2
    assert compare.common_budget(more) == budget > 0
    with pytest.raises(ParameterError, match="there is none after which all runs were evaluated"):
        compare.common_budget([run for run in more if run.path.name == "first"])


def test_rank_by_hand(folder):
    order = compare.rank(compare.scores(compare.find_runs(folder)[0], 20))
    assert order.index.tolist() == ["defaults", "gamma 0.5"]
    assert order.iqm.tolist() == [3.0, 0.5]  # of 1 2 3 4 50, without the first and the last
    assert order.worst.tolist() == [1.0, 0.0]
    assert order.best.tolist() == [50.0, 1.0]
    # Ten pairs of seeds: nine are won; 1 against 1 is a tie and counts half.
    assert order.beats_next.iloc[0] == pytest.approx(0.95)
    assert np.isnan(order.beats_next.iloc[1])
    assert order.low.iloc[0] < 3.0 < order.high.iloc[0]
    assert order[["low", "high"]].iloc[1].isna().all()


def test_scores_of_fewer_episodes_are_not_compared(tmp_path):
    write_run(tmp_path / "a", 0, [1.0, 2.0], episodes=2)
    write_run(tmp_path / "b", 1, [1.0, 3.0], episodes=5)
    write_run(tmp_path / "c", 2, [1.0], episodes=5)
    found, _ = compare.find_runs(tmp_path)
    kept, left_out = compare.comparable(found, 20)
    assert [run.config.seed for run in kept] == [1]
    assert left_out == [
        f"left out: {tmp_path / 'a'}: 2 episodes after 20 gradient steps, other runs have 5",
        f"left out: {tmp_path / 'c'}: not evaluated after 20 gradient steps",
    ]
    allowed = "gradient steps after which a run was evaluated, at most 20"
    with pytest.raises(ParameterError, match=f"^`budget` must be {allowed}, got 15$"):
        compare.comparable(found, 15)


def test_curve_has_a_column_per_run_and_ends_at_the_budget(folder):
    runs = [run for run in compare.find_runs(folder)[0] if run.setting != "defaults"]
    table = compare.curve(runs, 20)
    assert table.index.tolist() == [20, 30]
    assert table.to_numpy().tolist() == [[0.0, 0.0], [0.0, 1.0]]
    assert compare.curve(runs, 40).empty


def test_figures_show_the_data(folder):
    found, _ = compare.find_runs(folder)
    axes = comparison_plots.curves(found, 20).axes[0]
    middle = next(line for line in axes.lines if str(line.get_label()).startswith("defaults"))
    assert middle.get_xydata().tolist() == [[20, 0], [30, 3]]
    assert len(axes.collections) == 1, "one interval: two seeds have none"
    figure = comparison_plots.ranking(compare.scores(found, 20))
    assert [text.get_text() for text in figure.axes[0].get_yticklabels()] == [
        "defaults",
        "gamma 0.5",
    ]
    dots = [line.get_xdata().tolist() for line in figure.axes[0].lines if len(line.get_xdata()) > 2]
    assert dots == [[1.0, 2.0, 3.0, 4.0, 50.0]]
    assert "mean of 2 seeds" in {str(line.get_label())[-15:] for line in axes.lines}
    power = comparison_plots.power_over_seeds(2.0, [2.0, 4.0]).axes[0]
    assert power.lines[2].get_ydata()[-1] > power.lines[1].get_ydata()[-1] > 0.4
    with pytest.raises(NothingToDraw, match="nothing to draw"):
        comparison_plots.curves(found, 999)
    with pytest.raises(NothingToDraw, match="nothing to rank"):
        comparison_plots.ranking(compare.scores(found, 999))


def test_a_removed_parameter_is_part_of_the_settings_name(tmp_path):
    for number, share in enumerate((0.0, 0.3, 0.3)):
        path = write_run(tmp_path / f"{number}", number, [1.0], n_step=1 if number == 2 else 5)
        content = json.loads((path / "config.json").read_text())
        content["config"]["greedy_share"] = share
        (path / "config.json").write_text(json.dumps(content))
    found, damaged = compare.find_runs(tmp_path)
    assert not damaged
    names = ["defaults", "greedy_share 0.3", "greedy_share 0.3, n_step 1"]
    assert [run.setting for run in found] == names
    with pytest.raises(ParameterError, match=r"greedy_share 0.3 there, which was removed"):
        run_directory.open_run(tmp_path / "1", found[1].config)
    resuming.check_resumable(tmp_path / "0", attrs.evolve(found[0].config, num_iterations=20))


def test_figures_of_many_settings_keep_their_text_visible(tmp_path):
    """Six colours, the rest grey; no text crosses the edge of the figure or another text."""
    many = [{"gamma": 0.9 + number / 100} for number in range(8)]
    many.append(
        {"actor_update_period": 1, "n_step": 1, "critic_layer_norm": False, "batch_size": 32}
    )
    for number, changes in enumerate(many):
        write_run(tmp_path / f"{number}", 0, [0.0, float(number)], **changes)
    found, _ = compare.find_runs(tmp_path)
    curves = comparison_plots.curves(found, 20, published=True)
    labels = [text.get_text() for text in curves.legends[0].get_texts()]
    assert labels[1].startswith("n_step 1, "), "the best is first, after the published curve"
    assert (len(labels), labels[-1]) == (1 + 6 + 1, "further settings: interquartile means")
    ranking = comparison_plots.ranking(compare.scores(found, 20))
    for figure in (curves, ranking):
        figure.savefig(tmp_path / "figure.png")  # computes the layout
    box = curves.legends[0].get_window_extent()
    assert box.x0 >= 0
    assert box.x1 <= curves.bbox.x1
    published = [text.get_window_extent() for text in curves.axes[0].texts]
    assert max(text.x1 for text in published) <= curves.bbox.x1
    for below, above in itertools.pairwise(published):
        assert above.y0 >= below.y1
    names = [text.get_window_extent() for text in ranking.axes[0].get_yticklabels()]
    assert min(name.x0 for name in names) >= 0
    for above, below in itertools.pairwise(names):
        assert above.y0 > below.y1


def test_published_scores_are_drawn(folder):
    axes = comparison_plots.curves(compare.find_runs(folder)[0], 20, published=True).axes[0]
    heights = {float(line.get_ydata()[0]) for line in axes.lines}
    assert {11.33, 13.96, 15.0} <= heights
    assert axes.get_xlim()[1] == pytest.approx(1.03 * 30), "the published curve is longer"
    assert [text.get_position()[1] for text in axes.texts] == [11.33, 13.96, 15.0]
    assert "PPO2" in axes.texts[0].get_text()


@pytest.mark.parametrize("settings", [4, 5])
def test_single_seeds_are_drawn_with_few_settings_only(settings, tmp_path):
    for number in range(settings):
        for seed in range(2):
            changes = {"gamma": 0.9 + number / 100}
            write_run(tmp_path / f"{number}-{seed}", seed, [0.0, 1.0], **changes)
    axes = comparison_plots.curves(compare.find_runs(tmp_path)[0], 20).axes[0]
    faint = [line for line in axes.lines if line.get_alpha() == 0.3]
    assert len(faint) == (2 * settings if settings == 4 else 0)


def test_the_reward_threshold_is_the_one_that_the_environment_registers():
    with labkit.quiet():
        import pybullet_envs  # noqa: F401  (registers the environment)
    threshold = gym.spec(compare.TUTORIAL_ENVIRONMENT).reward_threshold
    assert threshold == comparison_plots.PUBLISHED_SCORES[-1][0]


def test_an_interval_is_shown_with_its_actual_coverage(folder):
    runs, _ = compare.find_runs(folder)
    label = statistics.interval_label(5)
    axes = comparison_plots.curves(runs, 20).axes[0]
    assert f"mean of 5 seeds, {label}" in " ".join(str(line.get_label()) for line in axes.lines)
    ranking = comparison_plots.ranking(compare.scores(runs, 20))
    assert f"bar: interval of this mean ({label} with 5 seeds)" in ranking.axes[0].get_xlabel()


def test_long_names_with_the_same_beginning_get_distinct_labels():
    common = "actor_fc_layer_params (256, 256, 256), gamma 0.5, n_step 1, "
    names = [
        common + "replay_buffer_capacity 10000",
        "defaults",
        common + "replay_buffer_capacity 10000, reward_scale_factor 1.0",
    ]
    labels = compare.distinct_labels(names, 60)
    assert labels == ["4 shared", "defaults", "4 shared, reward_scale_factor 1.0"]


def test_runs_on_ray_have_one_curve_although_their_env_steps_differ(tmp_path):
    for seed, shift in enumerate((0, 4)):
        run = run_directory.open_run(tmp_path / str(seed), SACConfig(seed=seed, num_iterations=20))
        for step in (10, 20):
            score = Evaluation((float(seed + step),) * 2, (9.0,) * 2, (1.0,) * 2)
            run.log_evaluation(score, env_step=step + shift, gradient_step=step, wall_seconds=1.0)
    table = compare.curve(compare.find_runs(tmp_path)[0], 20)
    assert table.index.tolist() == [12.0, 22.0]
    assert table.to_numpy().tolist() == [[10.0, 11.0], [20.0, 21.0]]
