"""Pages about Ray, the lander and the benchmarks: every run listed, every limit named."""

import json
import os
import re
import signal
import subprocess
import threading

import numpy as np
import pandas as pd
import pytest
from click.testing import CliRunner
from scipy import stats

from benchmarks import lunarlander, lunarlander_page, ray_vs_local, report, status
from benchmarks.page_text import aggregate, between, listed
from labkit.cli import watch
from labkit.sac.rollout import Evaluation
from labkit.training import run_directory, signals

ROOT = status.ROOT


def tracked(page, marks):
    """What stands between the two marks of a tracked page."""
    begin, end = marks
    return page.read_text().split(begin)[1].split(end)[0].strip()


# --- Ray against local


@pytest.fixture(scope="module")
def ray_rows():
    """The rows of the tracked summary."""
    table = pd.read_csv(ray_vs_local.RESULTS / "summary.csv").replace({np.nan: None})
    return table.to_dict("records")


def test_all_runs_of_both_executors_are_compared(ray_rows):
    """Five local runs, and four sets of runs on Ray; the p-values from scipy directly."""
    lost = pd.read_csv(ray_vs_local.LOST)
    found = ray_vs_local.comparisons(ray_rows, lost)
    assert list(found.n) == [3, 5, 3, 8]
    local = [14.32, 15.17, 13.87, 11.44, 15.21]
    ray = [16.14, 14.36, 8.53, 11.4, 7.9, 10.08, 11.27, 11.53]
    sets = (ray[:3], ray[:5], ray[5:], ray)
    for runs, p in zip(sets, found.p, strict=True):
        assert p == pytest.approx(stats.ttest_ind(local, runs, equal_var=False).pvalue, rel=0.01)
    assert 0.05 < found.p.iloc[-1] < 0.055
    assert found["minus local"].iloc[-1] == pytest.approx(-2.6006, abs=1e-3)


def test_the_page_on_ray_lists_every_run(ray_rows):
    lost = pd.read_csv(ray_vs_local.LOST)
    page = ray_vs_local.page(ray_rows, lost, 50_000)
    assert page == (ray_vs_local.RESULTS / "README.md").read_text()
    assert "13 runs, of which 2 were lost" in page
    assert "labkit 0.1 collected some episodes with the mean action, and these runs do not" in page
    sentence = ray_vs_local.sentence(ray_rows, lost, 50_000)
    assert sentence == tracked(ray_vs_local.SUMMARY, ray_vs_local.MARKS)
    assert (
        "5 runs on Ray, of which the files of 2 were lost, have +11.67 (Welch's p = 0.23)"
        in sentence
    )
    assert "3 runs of an earlier version of the Ray executor have +10.96 (p = 0.01)" in sentence


def test_a_large_difference_is_called_detectable():
    rows = [{"executor": "local", "mean_return": value} for value in (10.0, 10.1, 9.9)]
    rows += [{"executor": "ray", "mean_return": value} for value in (1.0, 1.1, 0.9)]
    found = ray_vs_local.comparisons(rows, pd.DataFrame({"mean_return": []}))
    assert "correction: tracked, this version: -9.00 (p = " in ray_vs_local.conclusion(found)
    equal = found.assign(p=0.4)
    assert "before any correction: none." in ray_vs_local.conclusion(equal)


# --- the lander


def lander_run(folder, name, config, returns):
    """A run with evaluations of 20 episodes each, every 10 000 env steps."""
    run = run_directory.open_run(folder / name, config)
    for number, value in enumerate(returns):
        score = Evaluation((value,) * 20, (1.0,) * 20, (0.0,) * 20)
        step = 10_000 * number
        run.log_evaluation(score, env_step=step, gradient_step=step, wall_seconds=60.0 + value)
    return run.path


def test_the_lander_needs_new_episodes_to_count_as_solved(tmp_path, small_config):
    path = lander_run(tmp_path, "ray-0", small_config(), [-200.0, 150.0, 201.0])
    row = lunarlander_page.row(path)
    assert (row["ended"], row["evaluations"], row["last_env_step"]) == ("mean of 200", 3, 20_000)
    assert lunarlander_page.confirmation(row) == "not tested: the policy was not saved"
    unconfirmed = lunarlander_page.verdict([row])
    assert unconfirmed.startswith("1 of 1 run reached a mean of 200; 0 of these were tested")
    assert unconfirmed.endswith(
        "In 1 other case, the policy was not saved, so it cannot be tested. "
        "New runs of the same seeds have replaced 0 of these; 1 must still be repeated."
    )
    for mean, word, count in ((190.0, "no: +190.0", 0), (230.0, "yes: +230.0", 1)):
        file = path / lunarlander_page.CONFIRMATION
        file.write_text(json.dumps({"mean_return": mean, "episodes": 100}))
        row = lunarlander_page.row(path)
        assert lunarlander_page.confirmation(row) == word
        assert lunarlander_page.verdict([row]).endswith(f"which confirmed {count}.")


def test_the_confirmation_plays_new_episodes(tmp_path, small_config, monkeypatch):
    path = lander_run(tmp_path, "local-3", small_config(seed=3), [201.0])
    played = []

    def play(env, policy, episodes, seed):
        played.append((env, policy, episodes, seed))
        return Evaluation((100.0, 300.0), (1.0,) * 2, (0.0,) * 2)

    monkeypatch.setattr(watch, "load", lambda folder: (f"env of {folder.name}", "policy"))
    monkeypatch.setattr(lunarlander, "evaluate", play)
    lunarlander.confirm(path)
    assert played == [("env of local-3", "policy", 100, lunarlander.CONFIRM_SEED + 3)]
    found = json.loads((path / lunarlander_page.CONFIRMATION).read_text())
    assert (found["mean_return"], found["standard_error"]) == (200.0, pytest.approx(100.0))


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
@pytest.mark.parametrize("doing", ["training", "warm-up", "confirming"])
def test_a_stop_ends_the_whole_command_with_one_line(tmp_path, monkeypatch, number, doing):
    runs, results = tmp_path / "runs", tmp_path / "results"
    monkeypatch.setattr(lunarlander, "RUNS", runs)
    monkeypatch.setattr(lunarlander, "RESULTS", results)
    trained = []

    def train(executor, config, run):
        """As labkit trains: a signal ends it after its iteration, one in the warm-up at once."""
        trained.append(run.path.name)
        value = 210.0 if doing == "confirming" else 0.0
        score = Evaluation((value,) * 20, (1.0,) * 20, (0.0,) * 20)
        run.log_evaluation(score, env_step=0, gradient_step=0, wall_seconds=1.0)
        with signals.stop_request() as stop:
            if doing != "confirming":
                os.kill(os.getpid(), number)
                assert stop
            if doing == "warm-up":
                stop.interrupt()

    monkeypatch.setattr(lunarlander, "train", train)
    monkeypatch.setattr(lunarlander, "confirm", lambda path: os.kill(os.getpid(), number))
    monkeypatch.setenv(signals.FILE_VARIABLE, "")  # the command sets it
    signal.signal(signal.SIGINT, signal.default_int_handler)  # a job in the background ignores it
    handlers = signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGINT)
    done = CliRunner().invoke(lunarlander.main, ["--no-timing"])
    assert (signal.getsignal(signal.SIGTERM), signal.getsignal(signal.SIGINT)) == handlers
    assert (done.exit_code, trained) == (130, ["local-0"])
    why = {
        "training": "stopped during local-0, which is saved",
        "warm-up": "stopped before training began",
        "confirming": "stopped",
    }[doing]
    assert done.stderr.splitlines()[-1] == f"{why}: the same command resumes"
    assert signals.FILE_VARIABLE not in os.environ, "a later training would stop, too"
    assert not list(results.iterdir())


def test_the_run_s_watcher_survives_a_moment_without_its_file(tmp_path, small_config):
    path = lander_run(tmp_path, "local-0", small_config(), [0.0, 210.0])
    (path / "metrics.csv").rename(tmp_path / "away")
    stop, over = path / "stop", threading.Event()
    watcher = threading.Thread(target=lunarlander.stop_when_solved, args=(path, stop, over, 0.01))
    watcher.start()
    watcher.join(0.2)
    assert watcher.is_alive()
    assert not stop.exists()
    (tmp_path / "away").rename(path / "metrics.csv")
    watcher.join(30)
    over.set()
    assert stop.exists()


def test_the_policy_of_a_confirmed_run_is_kept(tmp_path, small_config, monkeypatch):
    runs, results = tmp_path / "runs", tmp_path / "results"
    monkeypatch.setattr(lunarlander, "RUNS", runs)
    monkeypatch.setattr(lunarlander, "RESULTS", results)
    run = lander_run(runs, "ray-0", small_config(), [210.0])
    (run / "policy").mkdir()
    (run / "policy" / "saved_model.pb").write_text("first")
    lunarlander.keep("ray", 0)
    assert not (results / "ray-0" / "policy").exists()  # nobody has confirmed it yet
    (run / lunarlander_page.CONFIRMATION).write_text('{"mean_return": 220.0}')
    for content in ("second", "third"):
        (run / "policy" / "saved_model.pb").write_text(content)
        lunarlander.keep("ray", 0)
        assert (results / "ray-0" / "policy" / "saved_model.pb").read_text() == content
    assert lunarlander_page.row(results / "ray-0")["confirmed_mean_return"] == 220.0


def test_a_replaced_run_stays_on_the_page(tmp_path, small_config, monkeypatch):
    runs, results = tmp_path / "runs", tmp_path / "results"
    monkeypatch.setattr(lunarlander, "RUNS", runs)
    monkeypatch.setattr(lunarlander, "RESULTS", results)
    first = lander_run(runs, "local-1", small_config(), [-5.0])
    lunarlander.keep("local", 1)
    run_directory.Run(first, small_config()).log(
        env_step=9, gradient_step=9
    )  # the same run, longer
    lunarlander.keep("local", 1)
    assert [path.name for path in results.iterdir()] == ["local-1"]
    second = lander_run(tmp_path / "again", "local-1", small_config(), [210.0])
    monkeypatch.setattr(lunarlander, "RUNS", second.parent)
    lunarlander.keep("local", 1)
    names = sorted(path.name for path in results.iterdir())
    assert names == ["local-1", "local-1-replaced-1"]
    rows = [lunarlander_page.row(results / name) for name in names]
    assert [row["last_mean_return"] for row in rows] == [210.0, -5.0]
    page = lunarlander_page.page(rows, None)
    assert "stopped, replaced by a later run" in page
    assert "For local seed 1, there is more than one run" in page


def test_the_tracked_page_of_the_lander_is_what_the_command_writes():
    folders = sorted(lunarlander_page.RESULTS.glob("*/"))
    rows = [lunarlander_page.row(path) for path in folders]
    page = (lunarlander_page.RESULTS / "README.md").read_text()
    assert lunarlander_page.page(rows, None).split("## Timing")[0].strip() in page
    assert lunarlander_page.sentence(rows) == tracked(
        lunarlander_page.SUMMARY, lunarlander_page.MARKS
    )
    assert sum(row["replaced"] for row in rows) == 7


# --- benchmarks


@pytest.fixture
def checkout(tmp_path):
    """A repository with two commits, of which the second changes labkit/."""

    def git(*arguments):
        command = ["git", "-c", "user.name=A", "-c", "user.email=a@example.org", *arguments]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=True)
        return done.stdout.strip()

    (tmp_path / "labkit").mkdir()
    git("init", "--quiet")
    commits = []
    for text in ("one", "two"):
        (tmp_path / "labkit" / "file").write_text(text)
        git("add", ".")
        git("commit", "--quiet", "-m", text)
        commits.append(git("rev-parse", "HEAD"))
    return tmp_path, commits


def test_limits_of_a_figure(checkout):
    root, (old, new) = checkout
    assert status.caveats({"commit": new, "load_before": 0.1}, root) == []
    superseded = "labkit has changed since"
    assert status.caveats({"commit": old, "load_before": 0.1}, root) == [superseded]
    assert status.caveats({"commit": "0" * 40, "load_before": 0.1}, root) == [superseded]
    assert status.caveats({"commit": f"{new}-dirty", "load_before": 2.0}, root) == [
        "the checkout had uncommitted changes",
        "other programs were running (a load of 2.0 cores)",
    ]
    assert status.caveats({}, root) == [
        "the commit was not recorded",
        "the load was not recorded",
    ]


def test_readme_has_the_measured_throughput():
    """Recomputed from the repeats; what is superseded depends on the commit and is not compared."""
    text = tracked(status.FRONT, status.MARKS)
    results = json.loads((status.RESULTS / "throughput.json").read_text())
    ours, theirs = (
        [repeat["rate"] for repeat in results["implementations"][key]["repeats"]]
        for key in ("labkit", "published")
    )
    times = np.median(np.divide(ours, theirs))  # the rounds' own ratios
    assert f"loop is {times:.1f} times as fast" in text
    shares = np.divide(results["growth"]["rates"][-1], results["growth"]["rates"][0])
    assert f"at {np.median(shares):.0%} of the speed that it had with 10 000 (median" in text
    assert f"gave {shares.min():.0%} to {shares.max():.0%}; aim: at least 90%)." in text
    assert results["machine"]["commit"] in text


def test_the_table_of_limits_names_every_result():
    text = tracked(status.README, status.MARKS)
    for name in status.FILES:
        (row,) = [line for line in text.splitlines() if f"`{name}`" in line]
        machine = status.machine_of(ROOT / name)
        if str(machine.get("commit")).endswith("-dirty"):
            assert "uncommitted changes" in row
        if machine.get("load_before", 1.0) > status.LOAD:
            assert "load" in row
    files = {path for path in status.RESULTS.iterdir() if path.suffix in (".json", ".csv")}
    assert {str(path.relative_to(ROOT)) for path in files} <= set(status.FILES)


def test_growth_is_the_median_of_paired_ratios_by_hand():
    """The ratio of the medians would be 100 / 100; the rounds' own ratios are 0.5, 1 and 0.9."""
    growth = {"rates": [[200.0, 100.0, 100.0], [100.0, 100.0, 90.0]], "sizes": [10_000, 20_000]}
    assert report.paired_ratios(growth) == [[1.0, 1.0, 1.0], [0.5, 1.0, 0.9]]
    text = status.growth({"growth": growth})
    assert "at 90% of the speed that it had with 10 000" in text
    assert "gave 50% to 100%" in text


def test_readme_names_the_fastest_other_library_and_the_aim():
    """One thread is the faster setting of SBX here, so the ratios are those next to it."""
    rates = {"labkit": [100, 120], "labkit_same": [90, 90], "sbx_sac": [50, 50]}
    rates["sbx_sac_1"] = [80, 80]
    measured = {
        key: {"label": key, "repeats": [{"rate": rate} for rate in values]}
        for key, values in rates.items()
    }
    text = " ".join(status.fastest_peer({"implementations": measured}).split())
    assert "sbx_sac_1: labkit's loop is 1.38 times as fast, and 1.12 times as fast" in text
    assert "(labkit's own aim of 1.6 is not met)" in text
    assert not status.fastest_peer({"implementations": {"labkit": measured["labkit"]}})


# --- text


def test_text_of_pages():
    assert listed([1]) == "1"
    assert listed(["a", "b", "c"]) == "a, b and c"
    assert aggregate([1.0, 2.0]) == "+1.00, +2.00"
    five = aggregate([1.0, 2.0, 3.0, 4.0, 5.0])
    assert re.fullmatch(r"\+3\.00 \(\+1\.\d\d to \+4\.\d\d; 5 seeds\)", five)
    assert between("x <a> y <b> z", ("<a>", "<b>"), "new") == "x <a>\nnew\n<b> z"
    with pytest.raises(ValueError, match="once each"):
        between("x <a> y", ("<a>", "<b>"), "new")
