"""The Minitaur study: its plan, its tracked runs and its page."""

import functools
import json
import re
import shutil
import sys
from pathlib import Path

import attrs
import click
import numpy as np
import pandas as pd
import pytest
from click.testing import CliRunner
from scipy import stats

ROOT = Path(__file__).parents[2]
sys.path[:0] = [str(ROOT / "scripts"), str(ROOT / "tests" / "analysis")]
import ablations  # noqa: E402
import first_losses  # noqa: E402
import long_run  # noqa: E402
import machines  # noqa: E402
import peers  # noqa: E402
import readme_table  # noqa: E402
import results_page  # noqa: E402
import study  # noqa: E402
import track_run  # noqa: E402
from test_compare import write_run  # noqa: E402

import results  # noqa: E402
from labkit.analysis import arithmetic, choices, compare, statistics  # noqa: E402
from labkit.config import SACConfig  # noqa: E402
from labkit.sac.rollout import Evaluation  # noqa: E402
from labkit.training import run_directory  # noqa: E402


@pytest.fixture
def small_study(monkeypatch, tmp_path):
    """Two settings, 10 and 20 steps after the 5 000 of the warm-up, in temporary folders."""
    jobs = [study.Job("defaults", seed, 5_010) for seed in range(5)]
    jobs += [study.Job("defaults", seed, 5_020) for seed in range(6)]
    jobs += [study.Job("no-n_step", 0, 5_010)]
    monkeypatch.setattr(study, "PLAN", tuple(jobs))
    monkeypatch.setattr(study, "ABLATION_BUDGET", 5_010)
    monkeypatch.setattr(results, "RUNS", tmp_path / "runs")
    monkeypatch.setattr(results, "KEPT", tmp_path / "kept")
    monkeypatch.setattr(results, "ROOT", tmp_path)
    return tmp_path


def test_a_planned_run_differs_from_the_defaults_in_its_setting_alone():
    measuring = {*study.MEASURING, "num_iterations"}
    for job in study.PLAN:
        config = SACConfig.parse(job.parameters)
        fields = {field.name for field in attrs.fields(SACConfig)} - measuring
        default = SACConfig()
        differing = {key for key in fields if getattr(config, key) != getattr(default, key)}
        assert differing == set(study.SETTINGS[job.setting]), job
        per_step = config.collect_steps_per_iteration
        assert (config.eval_interval * per_step, config.log_interval * per_step) == (2_500, 500)
        assert config.num_iterations * per_step + config.initial_collect_steps == job.budget


def test_the_plan_has_enough_seeds_of_the_defaults_and_three_of_each_ablation():
    seeds = {}
    for job in study.PLAN:
        seeds.setdefault((job.setting, job.budget), []).append(job.seed)
    assert all(len(set(one)) == len(one) for one in seeds.values()), "a seed counts twice"
    assert len(seeds["defaults", 100_000]) == 5
    assert len(seeds["defaults", 300_000]) == 3
    by_budget = [set(seeds["defaults", budget]) for budget in (300_000, 100_000, 60_000)]
    assert by_budget[0] < by_budget[1] < by_budget[2], "a longer run resumes a shorter"
    ablated = [f"no-{name}" for name in compare.TUTORIAL if name not in choices.RATES]
    ablated += ["no-learning_rates", "source"]
    assert all(len(seeds[name, 60_000]) == 3 for name in ablated)


@functools.cache
def tracked_runs():
    """The tracked runs of the study, and what is damaged."""
    return compare.find_runs(results.KEPT)


@functools.cache
def runs_after(budget):
    """Returns, and env steps to +10, of the tracked runs, by setting."""
    found, _ = tracked_runs()
    table = results_page.setting_scores(found, budget)
    steps = table.soon.str.replace(" ", "").str.replace("–", "inf").astype(float)
    by_setting = table.assign(steps=steps).groupby("setting")
    return by_setting["return"].agg(list), by_setting.steps.agg(list)


def grouped(number):
    return f"{number:,.0f}".replace(",", " ")


def test_the_history_tells_what_the_runs_without_symmetry_show():
    returns, steps = runs_after(100_000)
    names = (study.LAST_EARLIER, f"{study.LAST_EARLIER}_no-symmetry_augmentation")
    assert [len(returns[name]) for name in names] == [5, 5]
    iqm, less = (statistics.interquartile_mean(returns[name]) for name in names)
    with_it, without = (grouped(np.median(steps[name])) for name in names)
    said = results_page.HISTORY
    assert f"these defaults after 100 000 env steps, {iqm:+.2f}, is" in said
    assert f"The difference is {iqm - less:.2f}, so by this rule it would go" in said
    assert f"With it, they needed {with_it}, and without it {without}" in said
    assert f"(p = {stats.mannwhitneyu(*(steps[n] for n in names)).pvalue:.2f}, Mann-Whitney" in said


def test_the_history_tells_what_the_runs_without_deterministic_episodes_show():
    folder = ROOT / "results" / "minitaur" / "v0.1" / "study"
    table = compare.scores(compare.find_runs(folder)[0], 50_000)
    table = table[table.seed.isin([1, 2, 3])]
    folders = table.path.map(lambda path: path.parent.name)
    without, with_it = (
        table["return"][folders == name].mean() for name in ("no-greedy_share", "defaults")
    )
    told = f"three seeds had a mean of {without:+.2f} after 60 000 env steps; with it, the same"
    assert f"{told} seeds had {with_it:+.2f} (" in results_page.HISTORY


def test_the_history_tells_where_crossq_stands():
    libraries = peers.returns_by_peer(peers.results())
    crossq = [
        runs for name, runs in libraries.items() if "CrossQ" in name and "earlier" not in name
    ]
    own, _ = runs_after(100_000)
    assert np.mean(crossq) < np.mean(own[study.LAST_EARLIER])
    assert "Its mean there is not higher than labkit's" in results_page.HISTORY


def test_the_history_tells_what_the_runs_with_the_target_entropy_show():
    returns, steps = runs_after(100_000)
    names = ("defaults", study.LAST_EARLIER)
    assert [len(returns[name]) for name in names] == [5, 5]
    iqm, before = (statistics.interquartile_mean(returns[name]) for name in names)
    now, then = (np.median(steps[name]) for name in names)
    assert iqm > before, "the rule"
    assert now <= 30_000, "the rule"
    said = results_page.HISTORY
    assert f"The IQM is {iqm:+.2f} (with -8: {before:+.2f})" in said
    assert f"the median to +10 is {grouped(now)} env steps (with -8: {grouped(then)})" in said
    p = statistics.welch(*(returns[name] for name in names))
    assert f"The difference of the means has p = {p:.2f} (Welch)" in said
    short, _ = runs_after(60_000)
    first = np.mean(short["defaults"][:3])  # seeds 1 to 3
    alike = [short[name][:3] for name in names]
    told = f"{first:+.2f} and {np.mean(alike[1]):+.2f} (p = {statistics.welch(*alike):.2f}, Welch)"
    assert f"both values have only seeds 1 to 3, after 60 000 env steps: {told}" in said
    assert f"-4 in place of -8 had a mean of {first:+.2f} after 60 000 env steps" in said
    before = short[study.LAST_EARLIER]
    same, all_five = np.mean(before[:3]), np.mean(before)
    assert f"With -8, the same seeds had {same:+.2f}, and all five {all_five:+.2f}. So two" in said


def test_notebook_03_quotes_the_ablations():
    found, _ = tracked_runs()
    table = results_page.setting_scores(found, study.ABLATION_BUDGET)
    present = table[~table.setting.isin(list(study.EARLIER_ABLATIONS))]
    pairs, corrected = ablations.compared(present), ablations.corrected(present)
    single = [name for name in study.ABLATIONS if name.startswith("no-")]
    several = [name for name in single if name in pairs and len(pairs[name].ours) > 2]
    assert several == single, "each has three seeds"
    said = f"Each of the {len(single)} ablations of the present defaults"
    assert said in (ROOT / "README.md").read_text()
    text = (ROOT / "notebooks" / "03_sac_minitaur.ipynb").read_text().replace(" %", "%")
    page = (results.KEPT.parent / "README.md").read_text()
    gaps = {n: np.mean(pairs[n].theirs) - np.mean(pairs[n].ours) for n in several}
    first, second, third, *_ = sorted(gaps, key=gaps.get, reverse=True)
    assert (first, second, third) == ("no-observation_scale", "no-n_step", "no-initial_log_alpha")
    lower = {name: gap for name, gap in gaps.items() if gap > 0}
    assert gaps.keys() - lower.keys() == {"no-initial_collect_steps"}, "the text names it"
    assert len(lower) == 12
    assert f"is lower, by {min(lower.values()):.1f} to {gaps[first]:.1f}: by the most wi" in text
    higher = -gaps["no-initial_collect_steps"]
    assert f"10 000 random env steps the mean was {higher:.1f} higher than with" in text
    alike = present[present.kind == pairs["no-initial_collect_steps"].kind]
    later, sooner = (
        np.median([float(text.replace(" ", "")) for text in alike.soon[alike.setting == name]])
        for name in ("no-initial_collect_steps", "defaults")
    )
    assert f"a median of {grouped(int(later))} env steps, not {grouped(int(sooner))}" in text
    assert f"+10 is {grouped(int(later))} env steps with 10 000 and {grouped(int(sooner))}" in page
    assert f"Holm's correction for {len(corrected)} tests. Of the thirteen ablations, only" in text
    assert [name for name in single if corrected[name] < 0.05] == [first]
    assert f"has a corrected p-value below 0.05: {corrected[first]:.2g}. `source`," in text
    assert f"sets all choices back at once, has {corrected['source']:.6f}. So together" in text
    count = len(pairs[first].theirs)
    words = dict(enumerate(["four", "five", "six", "seven", "eight"], 4))
    assert f"with three seeds against {words[count]} of the defaults, the strictest" in text
    power = statistics.power(2.0, (1.0, 1.0), (count, 3), 0.05 / len(corrected))
    assert f"a difference of two standard deviations in only about {power:.0%} of" in text
    means = [np.mean(pairs[f"n_step-{steps}"].ours) for steps in (3, 8)]
    said = "`n_step` have two seeds each: 3 had a mean of {:+.1f}, and 8 had {:+.1f}."
    assert said.format(*means) in text
    base = present[present.setting == "defaults"]
    by_kind = base.groupby("kind")["return"].mean()
    assert set(base.seed[base.kind == arithmetic.OTHER]) == set(study.PROPOSED_BY)
    assert f"They had a mean of {by_kind['B']:.1f}; the other seeds of the" in text
    assert f"defaults had {by_kind['A']:.1f}." in text
    assert f"would be larger by {base['return'].mean() - by_kind['A']:.1f}." in text
    of_earlier = table.setting.isin([*study.EARLIER_ABLATIONS, study.LAST_EARLIER])
    earlier = ablations.corrected(table[of_earlier], study.LAST_EARLIER)
    assert len(earlier) == 5
    smallest = min(earlier, key=earlier.get)
    assert smallest.endswith("_no-observation_scale")
    assert earlier[smallest] > 0.05
    assert f"that of the observation scale is the smallest, {earlier[smallest]:.2g}. (" in text


def test_notebook_03_quotes_the_runs_with_the_tutorials_parameters():
    found, _ = tracked_runs()
    table = results_page.setting_scores(found, study.ABLATION_BUDGET)
    scores = table["return"][table.setting == "source"]
    said = "three seeds had {:.2f}, {:.2f} and {:.2f}, and".format(*scores).replace("-", "−")
    assert said in (ROOT / "notebooks" / "03_sac_minitaur.ipynb").read_text()


def test_notebook_03_compares_its_run_with_the_study():
    found, _ = tracked_runs()
    table = results_page.setting_scores(found, 100_000)
    others = table["return"][table.setting == "defaults"]
    said = f"from {others.min():.1f} to {others.max():.1f}, with a mean of {others.mean():.1f}"
    text = (ROOT / "notebooks" / "03_sac_minitaur.ipynb").read_text()
    assert f"five other seeds of the same defaults had returns {said}" in text
    assert len(others) == 5
    longest = results_page.setting_scores(found, 300_000)
    best = longest["return"][longest.setting == study.LAST_EARLIER].sort_values(ascending=False)
    assert "Their returns are {:.1f}, {:.1f} and {:.1f}.".format(*best) in text
    present = longest["return"][longest.setting == "defaults"]
    assert "three other seeds had {:.1f}, {:.1f} and {:.1f} after".format(*present) in text


def test_the_page_shows_the_numbers_of_the_runs(small_study):
    for seed in range(5):
        write_run(small_study / "kept" / "defaults" / f"seed-{seed}", seed, [12.5, seed + 10.5], 20)
    for seed, score in ((0, -4.5), (1, -3.5)):
        path = small_study / "kept" / "no-n_step" / f"seed-{seed}"
        write_run(path, seed, [score], 20, n_step=1)
    found, _ = compare.find_runs(small_study / "kept")
    files = results_page.write(found, small_study)
    page = (small_study / "README.md").read_text()
    names = {"README.md", "curves-5010.png", "curves-5020.png", "factors.png", "scores.csv"}
    assert {file.name for file in files} == names
    table = pd.read_csv(small_study / "scores.csv")
    row = table[(table.setting == "defaults") & (table.seed == 4) & (table.env_steps == 5_020)]
    found_row = row[["return", "return_sd", "length", "distance"]].to_numpy().round(2).tolist()
    assert found_row == [[14.5, 0.62, 200.0, 7.25]]
    assert len(table) == 12  # both budgets of the defaults, and the shorter one of the other
    assert "## The defaults after 5 020 env steps\n" in page
    assert "Interquartile mean of the returns +12.50 (+10." in page
    covered = f"in about {100 * statistics.interval_coverage(5):.0f} % of the cases"
    assert covered in page
    assert covered in (ROOT / "README.md").read_text()
    assert "Mean +12.50, worst seed +10.50, best +14.50;" in page
    assert "at a return of 15.0 (its `reward_threshold`); 0 of 5 runs reached it" in page
    assert f"evolution strategies at best [+13.96]({results_page.ES_SOURCE}) (the library" in page
    assert "(the library estool, whose episodes last up to 3000 steps)" in page
    assert "The median over the runs to reach +10: 20 env steps; the slowest run took 20." in page
    assert re.search(r"\| 4 \| \+14\.50 ± 0\.62 \| \+13\.50, \+15\.50 \| 7\.25 m \| 200 of", page)
    _, (low, high), p = statistics.mean_difference([-4.5, -3.5], [12.5] * 5)
    row = "| `n_step 1` | 0, 1 | -4.50 -3.50 | -4.00 "
    row += f"| -16.50 ({low:+.2f} to {high:+.2f}) | 2 / 5, unknown | {p:.2g} | {p:.2g} |"
    assert row in page
    assert "- defaults, 5 020 env steps: seed 5\n" in page
    assert "5 010 env steps: seed" not in page, "a finished run is listed as not run"
    assert "numpy 1.26" in page
    for name in re.findall(r"\]\(([\w-]+\.png)\)", page):
        assert (small_study / name).stat().st_size > 5_000


def table_of(*rows, kind="A"):
    """As `results_page.setting_scores`, from (setting, seed, return)."""
    table = pd.DataFrame(rows, columns=["setting", "seed", "return"])
    return table.assign(length=100.0, soon="20", kind=kind)


def test_p_values_are_corrected_for_the_number_of_tests():
    table = table_of(
        *[("defaults", seed, value) for seed, value in enumerate((10.0, 11.0, 12.0))],
        *[("no-n_step", seed, value) for seed, value in enumerate((1.0, 2.0, 3.5))],
        *[("no-critic_layer_norm", seed, value) for seed, value in enumerate((9.0, 10.0, 12.5))],
        ("source", 0, -1.0),
    )
    found = ablations.with_test(table)
    assert set(found) == {"no-n_step", "no-critic_layer_norm"}, "one run has no p-value"
    text = ablations.rows_of(table)
    first, second = found["no-n_step"].p, found["no-critic_layer_norm"].p
    assert f"| 3 / 3, A | {first:.2g} | {2 * first:.2g} | 100 | 20, 20, 20 |" in text
    assert f"| 3 / 3, A | {second:.2g} | {max(second, 2 * first):.2g} |" in text
    low, high = statistics.mean_difference([1.0, 2.0, 3.5], [10.0, 11.0, 12.0])[1]
    assert f"| +2.17 | -8.83 ({low:+.2f} to {high:+.2f}) |" in text
    assert "| -1.00 | -12.00 | 1 / 3, A |  |  | 100 | 20 |" in text
    assert text.index("| defaults |") < text.index("| no-critic") < text.index("| no-n_step |")


def test_runs_of_machines_that_round_otherwise_are_not_compared():
    rows = [("defaults", seed, 10.0 + seed) for seed in range(4)]
    rows += [("no-n_step", seed, 1.0 + seed) for seed in range(3)]
    kinds = ["B", "A", "A", "A", "B", "A", "A"]
    table = table_of(*rows, kind=kinds)
    pair = ablations.compared(table)["no-n_step"]
    assert pair == ("A", [2.0, 3.0], [11.0, 12.0, 13.0])
    assert "| -9.50 (" in ablations.rows_of(table)
    apart = table_of(*rows, kind=["A"] * 4 + ["B"] * 3)
    assert not ablations.with_test(apart)
    assert "| no-n_step | `n_step 1` | 0, 1, 2 | +1.00 +2.00 +3.00 | +2.00 |  |  |  |  |" in (
        ablations.rows_of(apart)
    )


def test_a_setting_with_one_run_is_not_ranked():
    rows = [("defaults", 0, 10.0), ("source", 2, -1.0), ("no-n_step", 0, 4.0)]
    table = table_of(*rows, ("no-n_step", 1, 6.5))
    ranked = ablations.several(table)
    assert set(ranked.setting) == {"defaults", "no-n_step"}, "the defaults always stand there"
    text = ablations.single_runs(table)
    assert "differ by up to 2.5 here" in text
    assert "| source | `reward_scale_factor 1`" in text
    assert text.count("| 2 | -1.00 | 100 | 20 |") == 1
    assert "no-n_step" not in text
    assert ablations.single_runs(ranked) == ""
    page = ablations.section(table, "factors.png")
    assert page.index("| no-n_step |") < page.index("## Settings with one") < page.index("| source")


def test_the_page_has_the_commit_and_the_cpu_of_the_runs(small_study):
    for seed, place in enumerate([("abc", "a CPU"), ("abc", "a CPU"), (None, None)]):
        path = write_run(small_study / "kept" / "defaults" / f"seed-{seed}", seed, [1.0], 20)
        content = json.loads((path / "config.json").read_text())
        content["commit"], content["cpu"] = place
        (path / "config.json").write_text(json.dumps(content))
    text = machines.section(compare.find_runs(small_study / "kept")[0], {})
    assert "| commit abc, CPU a CPU | 1 | unknown | defaults 0, 1 |\n" in text
    assert "| commit not recorded, CPU not recorded | 1 | unknown | defaults 2 |\n" in text


def test_the_tracked_runs_have_the_settings_of_their_folders():
    runs, _ = tracked_runs()
    assert runs
    for run in runs:
        planned = SACConfig.parse({**study.SETTINGS[run.path.parent.name], "seed": run.config.seed})
        differing = {
            name
            for name in SACConfig.names()
            if getattr(run.config, name) != getattr(planned, name)
        }
        assert differing <= set(compare.NOT_A_SETTING), run.path


def begins_with(path, value, seed, **changes):
    """A run whose evaluation before training has this return."""
    write_run(path, seed, [1.0], 20, **changes)
    score = Evaluation((value,), (1.0,), (0.0,))
    run = run_directory.Run(path, SACConfig(seed=seed, num_iterations=10, **changes))
    run.log_evaluation(score, env_step=0, gradient_step=0, wall_seconds=0.0)


def test_the_page_says_which_runs_round_alike(tmp_path):
    begins_with(tmp_path / "defaults" / "seed-1", 0.5, 1)
    begins_with(tmp_path / "no-n_step" / "seed-1", 0.5000001, 1, n_step=1)
    begins_with(tmp_path / "defaults" / "seed-2", 0.7, 2)
    starts = {arithmetic.key_of(SACConfig(seed=1)): 0.5}
    text = machines.section(compare.find_runs(tmp_path)[0], starts)
    assert "Of 3 runs, there are 1 of kind A and 1 of kind B, and 1 are unknown" in text
    for kind, runs in (("A", "defaults 1"), ("B", "no-n_step 1"), ("unknown", "defaults 2")):
        assert f"| {kind} | {runs} |" in text


def test_the_commits_of_the_present_settings_train_alike():
    found, _ = tracked_runs()
    table = pd.read_csv(first_losses.FILE)
    assert len(table.drop(columns="commit").drop_duplicates()) == 1, "see `machines.same_code`"
    others = {
        (run.path.parent.name, run.config.seed)
        for run in found
        if run.path.parent.name in study.PRESENT
        and machines.commit_of(run)[:10] not in set(table.commit)
    }
    assert others == {("source", 1)}, "the page says that its code cannot be run"


def test_the_first_losses_can_be_measured():
    found = first_losses.measured(ROOT)
    assert list(found) == ["transitions", "losses", "weights"]
    assert all(re.fullmatch("[0-9a-f]{16}", text) for text in found.values())


def test_the_tracked_pages_are_what_the_command_writes(tmp_path):
    found, damaged = tracked_runs()
    assert not damaged
    front = (ROOT / "README.md").read_text()
    assert readme_table.into_readme(front, found) == front
    results_page.write(found, tmp_path)
    written = (tmp_path / "README.md").read_text()
    assert (ROOT / "results" / "minitaur" / "README.md").read_text() == written


def test_readme_gets_the_same_numbers_and_keeps_the_rest(small_study):
    for seed in range(5):
        write_run(small_study / "kept" / "defaults" / f"seed-{seed}", seed, [9, seed + 1], 20)
    found, _ = compare.find_runs(small_study / "kept")
    begin, end = readme_table.MARKS
    text = readme_table.into_readme(f"above\n{begin}\nprevious\n{end}\nbelow\n", found)
    assert text.startswith(f"above\n{begin}\n| Minitaur |")
    assert text.endswith(f"\n{end}\nbelow\n")
    assert "previous" not in text
    assert re.search(
        r"\| 5 020 \| \+3\.00 \(\+1\.\d\d to \+4\.\d\d; 5 seeds\) \| \+1\.00 \| 1\.5 m \|", text
    )
    assert "at a return of 15.0 (its `reward_threshold`). With labkit, 0 of 5 runs after" in text
    assert "-0.28" in text
    assert "| labkit, defaults | 5 020 |" in text
    assert "results/minitaur/curves-5020.png" in text
    assert readme_table.into_readme(text, found) == text


def test_readme_shows_when_the_peers_reached_10():
    libraries = peers.runs_by_peer(peers.results())
    front = (ROOT / "README.md").read_text()
    for label, runs in libraries.items():
        if label.endswith("earlier choices"):
            assert label not in front
            continue
        last = [one["evaluations"][-1]["training_seconds"] for one in runs]
        steps = ", ".join(peers.steps_to_walk(one) for one in runs)
        (line,) = [line for line in front.splitlines() if line.startswith(f"| {label}, ")]
        assert line.endswith(f"| {steps} | {np.median(last) / 60:.0f} |")


def test_several_runs_have_a_median_of_their_steps():
    assert readme_table.together(["2 500", "–"]) == "2 500, –"
    assert readme_table.together(["2 500", "–", "5 000", "7 500", "–"]) == "median 7 500"
    assert readme_table.together(["–", "–", "–", "7 500", "–"]) == "median –"
    assert readme_table.middle([1.0, 2.6, 9.0]) == "3"
    assert readme_table.middle([1.0, float("nan")]) == ""


def test_the_long_runs_have_a_row_and_a_section_of_their_own(tmp_path, monkeypatch):
    monkeypatch.setattr(long_run, "RESULTS", tmp_path)
    assert (long_run.rows(), long_run.section()) == ([], ""), "no such run is tracked"
    monkeypatch.setattr(long_run, "FULL_LENGTH", 200)  # env steps; the first run has fewer
    write_run(tmp_path / "million", 5, [2.0], 20, gamma=0.9)
    write_run(tmp_path / "million-3", 7, [2.0], 20, target_entropy=-8.0)
    write_run(tmp_path / "million-1", 4, [9.0, 1.0, 3.0], 20)
    write_run(tmp_path / "million-2", 6, [1.0], 5)
    ((name, steps, returned, worst, distance),) = long_run.rows()
    assert (name, re.sub(r"\s", "", steps)) == ("labkit, defaults, 1 seed", "40")
    assert (returned, worst, distance) == ("+3.00", "", "1.5 m")
    lines = long_run.section().splitlines()
    page = "[its page](million-1/README.md)"
    assert f"- `defaults`, seed 4: +3.00 after {steps} env steps ({page})" in lines
    fell = "the robot fell in 20 of the 20 episodes ([its page](million/README.md))"
    assert f"- `gamma 0.9`, seed 5: +2.00 after 20 env steps; {fell}" in lines
    assert any(line.startswith(f"- `{study.LAST_EARLIER}`, seed 7: +2.00") for line in lines)
    assert "seed 6" not in long_run.section(), "an interim evaluation is no final score"


def test_a_run_that_is_tracked_in_place_of_another_one_renames_it(tmp_path):
    run, target = tmp_path / "run", tmp_path / "tracked"
    shutil.copytree(
        long_run.RESULTS / "million",
        run,
        ignore=shutil.ignore_patterns("*.html", "*.gif", "pace.csv"),
    )
    (run / "videos").mkdir()
    (run / "after.mp4").rename(run / "videos" / "after.mp4")
    write_run(target, 4, [9.0], 20)
    (target / "pace.csv").write_text("of the other run")
    done = CliRunner().invoke(track_run.main, [str(run), str(target)], catch_exceptions=False)
    before = tmp_path / "tracked-replaced-1"
    assert str(before) in done.output
    assert (before / "pace.csv").read_text() == "of the other run"
    assert (target / "metrics.csv").read_bytes() == (run / "metrics.csv").read_bytes()
    page = (target / "README.md").read_text()
    assert "Final evaluation, deterministic: mean return" in page
    assert "Resident memory" not in page, "that was measured in the other run"


def test_a_page_overwrites_no_other_files(tmp_path):
    run, target = tmp_path / "run", tmp_path / "mine"
    write_run(run, 4, [9.0], 20)
    target.mkdir()
    (target / "README.md").write_text("precious")
    done = CliRunner().invoke(track_run.main, [str(run), str(target)])
    assert done.exit_code == 2
    assert f"{run} has no policy/saved_model.pb" in done.output
    for name in ("policy/saved_model.pb", "videos/after.mp4"):
        (run / name).parent.mkdir()
        (run / name).touch()
    done = CliRunner().invoke(track_run.main, [str(run), str(target)])
    assert done.exit_code == 2
    assert f"{target} must be new, empty or a tracked run" in done.output
    assert [path.name for path in target.iterdir()] == ["README.md"]
    assert (target / "README.md").read_text() == "precious"


def test_an_interim_evaluation_is_not_a_final_score(small_study):
    write_run(small_study / "kept" / "defaults" / "seed-0", 0, [9.0, 1.0], episodes=5)
    found, _ = compare.find_runs(small_study / "kept")
    results_page.write(found, small_study)
    page = (small_study / "README.md").read_text()
    assert "The defaults after" not in page
    assert "- defaults, 5 010 env steps: seeds 0, 1, 2, 3, 4\n" in page


def test_tracking_never_replaces_a_run_by_a_shorter_one(small_study):
    long = write_run(small_study / "kept" / "defaults" / "seed-0", 0, [1.0, 2.0])
    write_run(small_study / "runs" / "defaults" / "seed-0", 0, [7.0])
    write_run(small_study / "runs" / "defaults" / "seed-1", 1, [3.0])
    before = (long / "metrics.csv").read_text()
    done = CliRunner().invoke(results.main, ["track"], catch_exceptions=False)
    assert done.output == "tracked: kept/defaults/seed-1\n"
    assert (long / "metrics.csv").read_text() == before
    write_run(small_study / "runs" / "defaults" / "seed-2", 2, [7.0])
    (small_study / "runs" / "defaults" / "seed-2" / "metrics.csv").write_text("half")
    again = CliRunner().invoke(results.main, ["track"], catch_exceptions=False)
    assert "left out:" in again.output
    assert again.exit_code == 1


def test_a_run_that_could_not_be_tracked_does_not_start(small_study, monkeypatch):
    write_run(small_study / "kept" / "defaults" / "seed-0", 0, [1.0], 20)
    monkeypatch.setattr(results.side_by_side, "run_logged", lambda *given: pytest.fail("started"))
    words = ["run", "--setting", "defaults", "--seed", "0", "--budget", "5020"]
    done = CliRunner().invoke(results.main, words)
    assert done.exit_code == 1
    assert "defaults-seed-0-5020: a shorter run is tracked, but its checkpoint is" in done.output


def test_longer_runs_start_although_a_shorter_one_failed(small_study, monkeypatch):
    started = []
    monkeypatch.setattr(results, "_run_one", lambda job: started.append(job.budget) or "it failed")
    done = CliRunner().invoke(results.main, ["run", "--setting", "defaults", "--seed", "0"])
    assert started == [5_010, 5_020]
    assert (done.exit_code, done.output) == (1, "Error: it failed; it failed\n")


def test_a_failed_command_does_not_stop_the_next(monkeypatch):
    called = []

    @click.command()
    def fails():
        called.append("fails")
        raise click.ClickException("no disk")

    @click.command()
    def page():
        called.append("page")

    with pytest.raises(click.ClickException, match="no disk"), click.Context(page) as context:
        results.side_by_side.invoke_each(context, fails, page)
    assert called == ["fails", "page"]


def test_a_run_that_was_begun_is_listed_apart(small_study):
    run = write_run(small_study / "kept" / "no-n_step" / "seed-0", 0, [4.0], 5, n_step=1)
    found, _ = compare.find_runs(small_study / "kept")
    assert "- no-n_step, seed 0: 20 env steps" in results_page.not_run(found)
    shutil.rmtree(run)
    write_run(run, 0, [4.0], 20, n_step=1)
    assert "Begun" not in results_page.not_run(compare.find_runs(small_study / "kept")[0])


def test_tracking_never_replaces_a_run_by_another_one(small_study):
    """A run is identified by its first row, which has the wall time."""
    kept = write_run(small_study / "kept" / "defaults" / "seed-0", 0, [1.0])
    other = write_run(small_study / "runs" / "defaults" / "seed-0", 0, [5.0, 6.0])
    text = (other / "metrics.csv").read_text()
    (other / "metrics.csv").write_text(text.replace("\n15,5,", "\n15,5,3.217", 1))
    before = (kept / "metrics.csv").read_text()
    done = CliRunner().invoke(results.main, ["track"], catch_exceptions=False)
    assert "kept/defaults/seed-0 holds another run" in done.output
    assert (kept / "metrics.csv").read_text() == before


def test_a_run_that_is_not_planned_is_an_error():
    done = CliRunner().invoke(results.main, ["run", "--seed", "77"])
    assert done.exit_code == 2
    assert "the study plans no such run" in done.output
