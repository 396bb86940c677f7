"""The Minitaur study: its plan, its tracked runs and its page."""

import json
import re
import sys
from pathlib import Path

import attrs
import pandas as pd
import pytest
from click.testing import CliRunner

ROOT = Path(__file__).parents[2]
sys.path[:0] = [str(ROOT / "scripts"), str(ROOT / "tests" / "analysis")]
import ablations  # noqa: E402
import arithmetic  # noqa: E402
import results_page  # noqa: E402
import study  # noqa: E402
from test_compare import write_run  # noqa: E402

import results  # noqa: E402
from labkit.analysis import compare, statistics  # noqa: E402
from labkit.cli.sweep import plan  # noqa: E402
from labkit.config import SACConfig  # noqa: E402
from labkit.sac.evaluation import Evaluation  # noqa: E402
from labkit.training import run_directory  # noqa: E402


@pytest.fixture
def small_study(monkeypatch, tmp_path):
    """Two settings, 10 and 20 steps after the 10 000 of the warm-up, in temporary folders."""
    jobs = [study.Job("defaults", seed, 10_010) for seed in range(5)]
    jobs += [study.Job("defaults", seed, 10_020) for seed in range(6)]
    jobs += [study.Job("no-greedy_share", 0, 10_010)]
    monkeypatch.setattr(study, "PLAN", tuple(jobs))
    monkeypatch.setattr(study, "ABLATION_BUDGET", 10_010)
    monkeypatch.setattr(study, "LONGER_BUDGET", 10_020)
    monkeypatch.setattr(results, "RUNS", tmp_path / "runs")
    monkeypatch.setattr(results, "KEPT", tmp_path / "kept")
    monkeypatch.setattr(results, "ROOT", tmp_path)
    return tmp_path


def test_the_page_shows_speed_and_memory_of_the_long_run():
    table = pd.DataFrame(
        {
            "gradient_step": range(0, 101, 5),
            "wall_seconds": [float(step) for step in range(0, 101, 5)],
            "cpu_seconds": [2.0 * step for step in range(0, 101, 5)],
            "resident_mib": [1000.4 + step for step in range(0, 101, 5)],
        }
    )
    text = results_page.pace_section(table)
    assert "first 10 100 env steps" in text
    assert "| 100 | 1.0 | 2000.0 | 1100 |" in text


def test_the_notebook_accepts_every_planned_setting(tmp_path):
    for name, texts in study.SETTINGS.items():
        (job,) = plan(results.NOTEBOOK, ["0"], texts, tmp_path, name)
        fields = {field.name for field in attrs.fields(SACConfig)} - {"num_iterations"}
        differing = {key for key in fields if getattr(job.config, key) != _default(key)}
        assert differing == set(texts), name
    planned = {(job.setting, job.budget): 0 for job in study.PLAN}
    for job in study.PLAN:
        planned[job.setting, job.budget] += 1
    assert planned["defaults", 100_000] == 5
    assert planned["defaults", study.ABLATION_BUDGET] == 5
    assert planned["defaults", 300_000] >= 3
    others = {name for name, _ in planned if name != "defaults" and not name.endswith("-again")}
    assert all(n == 3 for (name, _), n in planned.items() if name in others)


def _default(name):
    return getattr(SACConfig(), name)


def test_the_page_shows_the_numbers_of_the_runs(small_study):
    for seed in range(5):
        write_run(small_study / "kept" / "defaults" / f"seed-{seed}", seed, [9, seed + 1], 20)
    write_run(small_study / "kept" / "no-greedy_share" / "seed-0", 0, [-4.5], 20, greedy_share=0)
    found, _ = compare.find_runs(small_study / "kept")
    files = results_page.write(found, small_study)
    page = (small_study / "README.md").read_text()
    assert {file.name for file in files} == {"README.md", "curves-10020.png", "factors.png"}
    label = statistics.interval_label(5)
    assert f"The defaults after 10 020 env steps: +3.00 ({label}: +1." in page
    assert "; 5 seeds)" in page
    assert "a `reward_threshold` of 15.0; 0 of 5 runs reached it" in page
    assert "+13.96 (estool, whose episodes last up to 3000 steps)" in page
    assert re.search(r"\| 4 \| \+5\.00 ± 0\.62 \| \+4\.00, \+6\.00 \| 2\.50 m \| 200 of 1000", page)
    assert re.search(
        r"\| defaults \| nothing \| 0, 1, 2, 3, 4 \| (\+9\.00 ?){5} \| \+9\.00 \|  \| 100 \| 20,",
        page,
    )
    row = r"\| no-greedy_share \| `greedy_share 0` \| 0 \| (-4\.50 \| ){2}-13\.50 \| 100 \| – \|"
    assert re.search(row, page)
    assert "- defaults, 10 020 env steps: seed 5\n" in page
    assert "10 010 env steps: seed" not in page, "a finished run is listed as not run"
    assert "numpy 1.26" in page
    for name in re.findall(r"\]\(([\w-]+\.png)\)", page):
        assert (small_study / name).stat().st_size > 5_000
    assert "### After 10 020 env steps" not in page


def test_an_ablation_with_a_larger_budget_gets_a_second_table(small_study):
    write_run(small_study / "kept" / "defaults" / "seed-0", 0, [9, 1], 20)
    longer = small_study / "kept" / "no-greedy_share" / "seed-0"
    write_run(longer, 0, [-4.5, 7], 20, greedy_share=0)
    results_page.write(compare.find_runs(small_study / "kept")[0], small_study)
    page = (small_study / "README.md").read_text()
    before, after = page.split("### After 10 020 env steps")
    assert re.search(r"\| no-greedy_share \| `greedy_share 0` \| 0 \| -4\.50 \|", before)
    assert re.search(r"\| no-greedy_share \| `greedy_share 0` \| 0 \| \+7\.00 \|", after)


def test_the_source_documents_settings_get_a_separate_table(small_study):
    write_run(small_study / "kept" / "defaults" / "seed-0", 0, [9, 8], 20)
    for name, end in (("source", -2.0), ("source-and-n_step", 1.5)):
        texts = study.SETTINGS[name]
        write_run(small_study / "kept" / name / "seed-0", 0, [end], 20, **texts)
    results_page.write(compare.find_runs(small_study / "kept")[0], small_study)
    page = (small_study / "README.md").read_text()
    before, after = page.split("### The source document's settings")
    assert "The best of these rows reached +1.50; all choices together" in after
    assert "`defaults` above, reached +9.00" in after
    assert (
        "| source-and-n_step | all of `source` but `n_step` | 0 | +1.50 | +1.50 | -7.50 |" in after
    )
    assert "| source" not in before
    assert "| defaults | nothing |" not in after


def test_settings_are_compared_after_the_same_env_steps(small_study, monkeypatch):
    """With two env steps for each gradient step, ten gradient steps match twenty of others."""
    name = "half-the-gradient-steps"
    monkeypatch.setattr(study, "PLAN", (*study.PLAN, study.Job(name, 0, 10_020)))
    monkeypatch.setattr(study, "ABLATION_BUDGET", 10_020)
    assert study.PLAN[-1].iterations == 10
    write_run(small_study / "kept" / "defaults" / "seed-0", 0, [9, 8], 20)
    path = small_study / "kept" / name / "seed-0"
    write_run(path, 0, [3, 4], 20, collect_steps_per_iteration=2)
    results_page.write(compare.find_runs(small_study / "kept")[0], small_study)
    page = (small_study / "README.md").read_text()
    assert re.search(rf"\| {name} \| `collect_steps_per_iteration 2` \| 0 \| \+3\.00 \|", page)
    assert re.search(r"\| defaults \| nothing \| 0 \| \+8\.00 \|", page)
    assert f"- {name}" not in page, "a finished run is listed as not run"


def test_readme_gets_the_same_numbers_and_keeps_the_rest(small_study):
    for seed in range(5):
        write_run(small_study / "kept" / "defaults" / f"seed-{seed}", seed, [9, seed + 1], 20)
    found, _ = compare.find_runs(small_study / "kept")
    begin, end = results_page.MARKS
    text = results_page.into_readme(f"above\n{begin}\nprevious\n{end}\nbelow\n", found)
    assert text.startswith(f"above\n{begin}\n| Minitaur |")
    assert text.endswith(f"\n{end}\nbelow\n")
    assert "previous" not in text
    assert re.search(r"\| 10 020 \| \+3\.00 \(nominal 95 % .*\| 1\.5 m \| 200 of 1000 \|", text)
    assert "`reward_threshold` of 15.0" in text
    assert "-0.28" in text
    assert "| labkit, defaults, 5 seeds | 10 020 |" in text
    assert "results/minitaur/curves-10020.png" in text
    assert results_page.into_readme(text, found) == text


def test_an_interim_evaluation_is_not_a_final_score(small_study):
    write_run(small_study / "kept" / "defaults" / "seed-0", 0, [9.0, 1.0], episodes=5)
    found, _ = compare.find_runs(small_study / "kept")
    results_page.write(found, small_study)
    page = (small_study / "README.md").read_text()
    assert "The defaults after" not in page
    assert "- defaults, 10 010 env steps: seeds 0, 1, 2, 3, 4\n" in page


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


def test_tracking_never_replaces_a_run_by_another_one(small_study):
    """A run is told by its first row, which has the wall time."""
    kept = write_run(small_study / "kept" / "defaults" / "seed-0", 0, [1.0])
    other = write_run(small_study / "runs" / "defaults" / "seed-0", 0, [5.0, 6.0])
    text = (other / "metrics.csv").read_text()
    (other / "metrics.csv").write_text(text.replace("\n15,5,", "\n15,5,3.217", 1))
    before = (kept / "metrics.csv").read_text()
    done = CliRunner().invoke(results.main, ["track"], catch_exceptions=False)
    assert "kept/defaults/seed-0 holds another run" in done.output
    assert (kept / "metrics.csv").read_text() == before


def table_of(*rows):
    """As `results_page.setting_scores`, from (base, seed, return, arithmetic)."""
    table = pd.DataFrame(rows, columns=["base", "seed", "return", "arithmetic"])
    return table.assign(setting=table.base, length=100.0, soon="20")


def test_rows_are_compared_with_the_defaults_of_their_own_arithmetic():
    table = table_of(
        *[("defaults", seed, 10.0 + seed, "A") for seed in (1, 2)],
        *[("defaults", seed, 20.0 + seed, "B") for seed in (1, 2)],
        *[("no-n_step", seed, 5.0 + 2 * seed, "A") for seed in (1, 2)],
        ("gamma-0.95", 1, 20.0, "B"),
    )
    text = ablations.group_tables(table)
    group_a, group_b = text.split("Group B:")
    p = statistics.welch([7.0, 9.0], [11.0, 12.0])
    assert f"| +7.00 +9.00 | +8.00 | -3.50 (p = {p:.2g}) |" in group_a
    assert "| gamma-0.95 | `gamma 0.95` | 1 | +20.00 | +20.00 | -1.50 | 100 |" in group_b
    assert "gamma-0.95" not in group_a
    assert ablations.rows_tested(table) == 1, "one run has no p-value"
    assert ablations.verdict(table, "gamma-0.95") == (
        "1 run scored +20.00; the defaults in its group (B) scored +21.00 and +22.00."
    )


def test_pairs_of_runs_of_one_seed_by_hand():
    table = table_of(
        ("defaults", 1, 10.0, "A"),
        ("defaults", 1, 13.0, "B"),
        ("defaults", 2, 14.0, "A"),
        ("no-n_step", 1, 2.0, "A"),
        ("no-n_step", 1, 2.5, "A"),
    )
    assert ablations.differences(table, same_seed=True) == {"same": [0.5], "other": [3.0]}
    text = ablations.repeats(table)
    assert "1 pair of runs of one seed, setting and kind of arithmetic differs by 0.50" in text
    assert "differ by 4.00 in the median (1 pair, 4.00 to 4.00)" in text
    assert "different arithmetic differ by 3.00" in text
    assert "too few pairs" in text


def test_the_groups_of_the_tracked_runs(tmp_path):
    """Seed 1 begins with 0.011625 in one group and 0.011591 in the other."""
    found, _ = compare.find_runs(results.KEPT)
    group = arithmetic.groups(found)
    assert {
        group[run.path]: round(run.evaluation_at(0).eval_return, 6)
        for run in found
        if arithmetic.key_of(run) == (1, True)
    } == {"A": 0.011625, "B": 0.011591}
    assert {group[run.path] for run in found if run.path.parent.name == "defaults-again"} == {
        "A",  # seed 0
        "B",
    }
    assert "return of 0.011625 in one group of runs (A) and of 0.011591" in arithmetic.paragraph(
        found
    )


def test_a_third_kind_of_arithmetic_is_an_error(tmp_path):
    paths = [write_run(tmp_path / f"{number}", 1, [1.0]) for number in range(2)]
    for path, value in zip(paths, (0.5, 0.25), strict=True):
        score = Evaluation((value,), (1.0,), (0.0,))
        run_directory.Run(path, SACConfig(seed=1)).log_evaluation(
            score, env_step=0, gradient_step=0, wall_seconds=0.0
        )
    with pytest.raises(ValueError, match="a third return before training"):
        arithmetic.groups(compare.find_runs(tmp_path)[0])


def test_the_page_says_which_final_scores_are_of_the_same_episodes(small_study):
    """Two old runs, of which one has a final evaluation after two budgets; one new run."""
    for seed, curve in ((0, [1.0]), (1, [1.0, 2.0])):
        path = write_run(small_study / "kept" / "defaults" / f"seed-{seed}", seed, curve, 20)
        content = json.loads((path / "config.json").read_text())
        del content["commit"]
        (path / "config.json").write_text(json.dumps(content))
    write_run(small_study / "kept" / "defaults" / "seed-2", 2, [1.0, 2.0], 20)
    text = results_page.final_episodes(compare.find_runs(small_study / "kept")[0])
    assert "2 of these 3 runs are older than that rule" in text
    assert "1 run of them has a final evaluation after more than one budget" in text


def test_the_page_has_the_commit_and_the_cpu_of_the_runs(small_study):
    for seed, place in enumerate([("abc", "a CPU"), ("abc", "a CPU"), (None, None)]):
        path = write_run(small_study / "kept" / "defaults" / f"seed-{seed}", seed, [1.0], 20)
        content = json.loads((path / "config.json").read_text())
        content["commit"], content["cpu"] = place
        (path / "config.json").write_text(json.dumps(content))
    text = results_page.made_with(compare.find_runs(small_study / "kept")[0])
    assert "- commit abc, CPU a CPU: 2 runs" in text
    assert "- commit not recorded, CPU not recorded: 1 run" in text


def test_the_tracked_pages_are_what_the_command_writes():
    found, _ = compare.find_runs(results.KEPT)
    front = (ROOT / "README.md").read_text()
    assert results_page.into_readme(front, found) == front
    page = (ROOT / "results" / "minitaur" / "README.md").read_text()
    table = results_page.setting_scores(found, study.ABLATION_BUDGET)
    assert ablations.group_tables(table[~table.setting.str.startswith("source")]) in page
    assert ablations.repeats(table) in page
    assert arithmetic.paragraph(found) in page
    assert results_page.final_episodes(found) in page


def test_a_run_that_is_not_planned_is_an_error():
    done = CliRunner().invoke(results.main, ["run", "--seed", "77"])
    assert done.exit_code == 2
    assert "the study plans no such run" in done.output
