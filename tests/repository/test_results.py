"""The Minitaur study: its plan, its tracked runs and its page."""

import re
import sys
from pathlib import Path

import attrs
import pandas as pd
import pytest
from click.testing import CliRunner

ROOT = Path(__file__).parents[2]
sys.path[:0] = [str(ROOT / "scripts"), str(ROOT / "tests" / "analysis")]
import results_page  # noqa: E402
import study  # noqa: E402
from test_compare import write_run  # noqa: E402

import results  # noqa: E402
from labkit.analysis import compare  # noqa: E402
from labkit.cli.sweep import plan  # noqa: E402
from labkit.config import SACConfig  # noqa: E402


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
    assert "The defaults after 10 020 env steps: +3.00 (95 % interval +" in page
    assert "5 seeds)" in page
    assert re.search(r"\| 4 \| \+5\.00 ± 0\.62 \| \+4\.00, \+6\.00 \| 2\.50 m \| 200 of 1000", page)
    assert re.search(
        r"\| defaults \| nothing \| (\+9\.00 ?){5} \| \+9\.00 \| 100 \| 20, 20, 20, 20, 20 \|", page
    )
    assert re.search(r"\| +no-greedy_share \| `greedy_share 0` \| (-4\.50 \| ){2}100 \| – \|", page)
    assert "- defaults, 10 020 env steps: seed 5\n" in page
    assert "10 010 env steps: seed" not in page, "a finished run is listed as not run"
    assert "numpy 1.26" in page
    for name in re.findall(r"\]\(([\w-]+\.png)\)", page):
        assert (small_study / name).stat().st_size > 5_000
    assert "After 10 020 env steps:" not in page


def test_an_ablation_with_a_larger_budget_gets_a_second_table(small_study):
    write_run(small_study / "kept" / "defaults" / "seed-0", 0, [9, 1], 20)
    longer = small_study / "kept" / "no-greedy_share" / "seed-0"
    write_run(longer, 0, [-4.5, 7], 20, greedy_share=0)
    results_page.write(compare.find_runs(small_study / "kept")[0], small_study)
    page = (small_study / "README.md").read_text()
    before, after = page.split("After 10 020 env steps:")
    assert re.search(r"\| +no-greedy_share \| `greedy_share 0` \| -4\.50 \|", before)
    assert re.search(r"\| +no-greedy_share \| `greedy_share 0` \| \+7\.00 \|", after)


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
    assert "| source-and-n_step | all of `source` but `n_step` | +1.50 |" in after
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
    assert re.search(rf"\| {name} \| `collect_steps_per_iteration 2` \| \+3\.00 \|", page)
    assert re.search(r"\| defaults \| nothing \| \+8\.00 \|", page)
    assert f"- {name}" not in page, "a finished run is listed as not run"


def test_readme_gets_the_same_numbers_and_keeps_the_rest(small_study):
    for seed in range(5):
        write_run(small_study / "kept" / "defaults" / f"seed-{seed}", seed, [9, seed + 1], 20)
    found, _ = compare.find_runs(small_study / "kept")
    begin, end = results_page.MARKS
    text = results_page.into_readme(f"above\n{begin}\nold\n{end}\nbelow\n", found)
    assert text.startswith(f"above\n{begin}\n| Minitaur |")
    assert text.endswith(f"\n{end}\nbelow\n")
    assert "old" not in text
    assert re.search(r"\| 10 020 \| \+3\.00 \(95 % .*\| 1\.5 m \| 200 of 1000 \|", text)
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


def test_a_run_that_is_not_planned_is_an_error():
    done = CliRunner().invoke(results.main, ["run", "--seed", "77"])
    assert done.exit_code == 2
    assert "the study plans no such run" in done.output
