"""The benchmarks' computations, tables and figures, and small runs of each worker."""

import os
import re
import subprocess
import sys
import time

import attrs
import click
import numpy as np
import psutil
import pytest

import labkit
from benchmarks import (
    collection,
    floor,
    growth,
    implementations,
    lunarlander_page,
    ray_vs_local,
    report,
    throughput,
)
from benchmarks import stopwatch as stopwatch_module
from benchmarks.breakdown import REST
from benchmarks.implementations import Implementation
from benchmarks.stopwatch import Stopwatch
from labkit.analysis import compare
from labkit.sac.rollout import Evaluation
from labkit.training import run_directory

TINY = ("--warmup", "4", "--iterations", "8", "--initial", "260")
RESULTS = {
    "machine": {
        "cpu": "a CPU",
        "cores": 2,
        "memory_gib": 8,
        "python": "3.11.2",
        "load_before": 0.1,
        "date": "2024-01-02",
        "commit": "abc",
    },
    "settings": ["--warmup", "1"],
    "repeats": 3,
    "minutes": 7.5,
    "implementations": {
        "published": {
            "label": "published",
            "repeats": [{"rate": r, "cpu_ms": 30.0, "peak_mib": 700.0} for r in (52, 50, 10)],
        },
        "labkit": {
            "label": "labkit",
            "repeats": [{"rate": r, "cpu_ms": 9.0, "peak_mib": 800.0} for r in (120, 125, 600)],
        },
        "labkit_same": {
            "label": "the same work",
            "repeats": [{"rate": r, "cpu_ms": 10.8, "peak_mib": 800.0} for r in (78, 75, 15)],
        },
        "labkit_earlier": {
            "label": "labkit 0.1",
            "repeats": [{"rate": 100, "cpu_ms": 12.0, "peak_mib": 800.0}],
        },
        "ray": {"label": "ray", "skipped": "not there"},
    },
    "floor": {
        "physics_ms": 2.0,
        "flops": 600_000_000,
        "flops_per_second": 200e9,
        "arithmetic_ms": 3.0,
        "cores": 2,
        "floor_ms": 2.5,
    },
    "breakdown": {
        "alone": {"policy": 0.03, "environment": 2.8, "gradient step": 6.0},
        "cpu_alone": {"policy": 0.03, "environment": 2.77, "gradient step": 7.2},
        "cpu_alone_earlier": {"environment": 3.3, "gradient step": 8.1},
        "cpu_in_loop": {"acting thread": 3.5, "gradient step": 7.0},
        "cpu_ms": 10.5,
        "in_loop": {"policy": 0.05, "physics engine": 2.5, "gradient step": 6.5, "the rest": 0.5},
    },
    "growth": growth.summary(
        [10_000, 100_000, 1_000_000],
        {10_000: 700.0, 100_000: 900.0, 1_000_000: 2_000.0},
        [(120, 121, 122), (118, 119, 120), (115, 116, 114)],
        raw_bytes=264,
    ),
}


@pytest.mark.skipif(not sum(psutil.cpu_times()), reason="the kernel counts no CPU time")
def test_the_load_is_that_of_now(monkeypatch):
    """A load average would rise only in the course of a minute."""
    monkeypatch.setattr(throughput, "LOAD_SECONDS", 1)
    with subprocess.Popen([sys.executable, "-c", "while True: pass"]) as busy:
        time.sleep(0.5)
        load = throughput.machine()["load_before"]
        busy.kill()
    assert 0.5 < load <= os.cpu_count()


def test_flops_by_hand():
    """Batch 2, 3 observations, 1 action, actor of one layer of 4, critics of one layer of 5."""
    actor = 3 * 4 + 4 * 2  # 20 multiplications forward
    critic = 4 * 5 + 5 * 1  # 25
    critic_loss = actor + 4 * critic + 2 * (critic + 5)  # 180: input gradients of last layers only
    actor_loss = actor + 2 * critic + 2 * (5 + 1 * 5) + actor + 4 * 2  # 118
    assert (critic_loss, actor_loss) == (180, 118)
    assert floor.update_flops(2, 3, 1, (4,), (5,)) == 2 * 2 * (180 + 118 + 20)
    assert floor.update_flops(2, 3, 1, (4,), (5,), 2) == 2 * 2 * (180 + (118 + 20) / 2)


def test_flops_of_the_benchmarked_update():
    # Issue 6 names about 0.73 GFLOP with every input gradient counted.
    flops = floor.update_flops(256, 28, 8, (256, 256), (256, 256))
    assert flops == 637_009_920


@pytest.mark.parametrize(
    ("physics_ms", "flops", "cores", "expected"),
    [
        (2.0, 600_000_000, 2, 2.5),  # the cores share the work perfectly
        (2.0, 600_000_000, 1, 5.0),  # one core does all the work
        (2.0, 600_000_000, 8, 2.0),  # the physics runs on one core
    ],
)
def test_floor(physics_ms, flops, cores, expected):
    assert floor.floor_ms(physics_ms, flops, 200e9, cores) == pytest.approx(expected)


def test_stopwatch_counts_after_warmup_only(monkeypatch):
    now = [0.0]
    monkeypatch.setattr(stopwatch_module.time, "perf_counter", lambda: now[0])
    monkeypatch.setattr(stopwatch_module.time, "process_time", lambda: 2 * now[0])
    stopwatch = Stopwatch(warmup=2, iterations=3)
    for done in range(6):
        now[0] += 100 if done < 3 else 0.5  # long warm-up
        assert stopwatch.tick(done) == (done >= 5)
    result = stopwatch.result()
    assert (result["rate"], result["wall_ms"], result["cpu_ms"]) == (2.0, 500, 1000)
    with pytest.raises(RuntimeError, match="fewer than"):
        Stopwatch(2, 3).result()


def test_table():
    text = re.sub(" +", " ", report.text(RESULTS))
    assert "| 125.0 " in text, "the median, not the mean"
    assert "| published | 50.0 | 10.0 to 52.0 | 2.50 × (aim 3.0) | 1.50 × | 30.0 | 700 |" in text
    assert "skipped: not there" in text
    assert "| computed floor | 400 " in text
    less = "25% less CPU time with the defaults and 10% less CPU time with the same work"
    assert f"Next to labkit 0.1 in the same rounds, an iteration takes {less}" in text
    assert "| gradient step | 6.50 | 6.00 | 7.20 | 8.10 | 3.00 |" in text
    assert "| sum of the components alone / cores | 200 " in text, "10 ms on two cores"
    loop = "acting thread 3.50; gradient step 7.00; in all, measured separately, 10.50"
    assert f"milliseconds: {loop}" in text
    assert "| 1 000 000 " in text
    assert "| 0.96 " in text, "115 of 120: the median of 115/120, 116/121 and 114/122"
    assert "below 4096 MiB: met." in text
    assert f"A stored transition takes {1300 * 2**20 / 990_000:.0f} bytes;" in text
    without = {key: RESULTS[key] for key in ("implementations",)}
    assert "floor" not in report.text(without)


def test_a_ratio_is_the_median_of_the_rounds_own_ratios():
    rounds = {"a": (10, 20, 90), "b": (10, 40, 30)}  # 1, 0.5 and 3; the medians give 20 of 30
    compared = {
        key: {"repeats": [{"rate": rate} for rate in rates]} for key, rates in rounds.items()
    }
    assert report.ratio(compared, "a", "b") == 1
    assert report.ratio(compared, "b", "a") == 1
    dearer = {**RESULTS["implementations"]}
    dearer["labkit"] = {"label": "labkit", "repeats": [{"rate": 1, "cpu_ms": 15, "peak_mib": 1}]}
    assert "25% more CPU time with the defaults" in report.text({"implementations": dearer})


def test_a_failed_part_leaves_the_other_results(monkeypatch):
    def run(module, *arguments, **options):
        if module != "benchmarks.floor":
            return {"cpu_alone": {}, "of": module}
        raise implementations.UnavailableError("no compiler")

    monkeypatch.setattr(implementations, "run", run)
    rounds = {"labkit_earlier": {"label": "labkit 0.1", "skipped": "no history"}}
    monkeypatch.setattr(implementations, "run_in_rounds", lambda *given: rounds)
    monkeypatch.setattr(implementations, "list_implementations", lambda peers: [])
    results = throughput.measure(quick=True, with_peers=False, repeats=1)
    assert "floor" not in results
    assert results["breakdown"]["of"] == "benchmarks.breakdown"
    assert results["growth"]["of"] == "benchmarks.growth"


def test_figure():
    drawn = report.figure(RESULTS)
    rates, parts, sizes = drawn.axes
    assert [bar.get_width() for bar in rates.patches] == [50, 125, 75, 100]
    labels = [label.get_text() for label in rates.get_yticklabels()]
    assert labels == ["published", "labkit", "the same work", "labkit 0.1"]
    assert [bar.get_width() for bar in parts.patches] == [0.05, 2.5, 6.5, 0.5, 2.0, 3.0]
    rounds = [line.get_ydata() for line in sizes.lines]
    np.testing.assert_array_equal(np.transpose(rounds), RESULTS["growth"]["rates"])
    assert len(report.figure({"implementations": RESULTS["implementations"]}).axes) == 1


def test_page_and_files(tmp_path):
    begin, end = throughput.MARKS
    once = throughput.with_results(f"before\n{begin}old\n{end}after\n", RESULTS)
    assert once.startswith("before\n")
    assert once.endswith("after\n")
    assert "a CPU, 2 cores" in once
    assert "old" not in once
    assert throughput.with_results(once, RESULTS) == once
    assert begin in throughput.README.read_text()
    throughput.write(RESULTS, tmp_path, into_readme=False)
    assert {path.name for path in tmp_path.iterdir()} == {"throughput.json", "throughput.png"}


def test_results_give_the_reason_for_a_skipped_implementation(monkeypatch):
    broken = Implementation("x", "X", "benchmarks.nowhere")
    absent = Implementation("y", "Y", "benchmarks.nowhere", unavailable="no Y here")
    results = implementations.run_in_rounds([broken, absent], 2, TINY)
    assert "No module named benchmarks.nowhere" in results["x"]["skipped"]
    assert results["y"] == {"label": "Y", "skipped": "no Y here"}
    monkeypatch.setattr(
        implementations, "PEERS_VENV", implementations.ROOT / "pyproject.toml" / "no"
    )
    monkeypatch.setattr(sys, "executable", "false")
    monkeypatch.setattr(implementations, "EARLIER_COMMIT", "0" * 40)
    monkeypatch.setattr(implementations, "EARLIER", implementations.ROOT / "build" / "nowhere")
    by_key = {one.key: one for one in implementations.list_implementations(True)}
    assert "could not be made" in by_key["sbx_crossq_1"].unavailable
    assert "git fetch --unshallow" in by_key["labkit_earlier"].unavailable


@pytest.mark.slow
@pytest.mark.parametrize("key", ["published", "labkit"])
def test_each_implementation_runs_small(key):
    by_key = {one.key: one for one in implementations.list_implementations(with_peers=False)}
    entry = implementations.run_in_rounds([by_key[key]], 1, TINY)[key]
    assert "repeats" in entry, entry.get("skipped")
    assert entry["repeats"][0]["rate"] > 0
    assert 300 < entry["repeats"][0]["peak_mib"] < 4096


@pytest.mark.slow
def test_the_breakdown_runs_small():
    parts = implementations.run("benchmarks.breakdown", TINY)
    in_loop = parts["in_loop"]
    assert set(parts["cpu_in_loop"]) == {"acting thread", "gradient step", REST}
    assert min(parts["cpu_in_loop"].values()) > 0
    assert sum(parts["cpu_in_loop"].values()) == pytest.approx(parts["cpu_ms"], rel=0.3)
    assert min(in_loop[name] for name in ("policy", "writing", "gradient step")) > 0
    assert in_loop["physics engine"] > 0


@pytest.mark.slow
def test_growth_runs_small():
    grown = implementations.run(
        "benchmarks.growth", [*TINY, "--rounds", "1", "--sizes", "300", "600"]
    )
    assert grown["sizes"] == [300, 600]
    assert min(grown["rate"]) > 0


def test_the_text_compares_the_ray_executor_with_baselines():
    measured = {"rate": 130.0, "cpu_ms": 14.0, "peak_mib": 2_500.0, "samples_per_insert": 257.25}
    measured |= {"staleness_median": 60.0, "staleness_max": 140.0}
    ray = {"label": "ray", "repeats": [measured]}
    peer = {"label": "SBX", "repeats": [{"rate": 50.0, "cpu_ms": 9.0, "peak_mib": 900.0}]}
    compared = {**RESULTS["implementations"], "sbx_sac": peer, "ray": ray}
    text = report.text({**RESULTS, "implementations": compared})
    assert "2.60 × SBX (aim 1.3)" in text
    assert "32% of the floor" in text  # 130 of 400
    assert "drew 257.2 samples per inserted transition; 256 is configured" in text
    assert "by a median of 60 env steps, and by 140 at most" in text


@pytest.mark.slow
def test_the_ray_workers_run_small():
    """The Ray worker measures the learner's rate; the collection benchmark covers both servers."""
    # The learner may be 100 steps ahead of the worker, which asks for weights every 10 env steps.
    longer = ["--warmup", "4", "--iterations", "160", "--initial", "260"]
    measured = implementations.run("benchmarks.run_ray", longer)
    assert measured["rate"] > 0
    assert measured["staleness_max"] >= measured["staleness_median"] >= 0
    case = collection.measure(1, 2.0)
    assert min(case["env_steps_per_second"], case["alone"]) > 0
    assert set(case["cores_busy"]) == {"rollout workers", "replay", "parameter server"}
    drawn = collection.draw({"machine": {"cores": 2}, "cases": [case, {**case, "collectors": 2}]})
    linear, _, found = drawn.axes[0].lines
    np.testing.assert_array_equal(linear.get_ydata(), np.array([1, 2]) * found.get_ydata()[0])


def test_a_lander_run_ends_at_a_mean_of_200_over_20_episodes(tmp_path, small_config):
    run = run_directory.open_run(tmp_path, small_config())
    for step, returns in ((10, [250.0] * 5), (20, [199.0] * 20), (30, [210.0] * 20)):
        score = Evaluation(tuple(returns), (1.0,) * len(returns), (0.0,) * len(returns))
        run.log_evaluation(score, env_step=step, gradient_step=step, wall_seconds=1)
    assert lunarlander_page.solved_at(tmp_path) == (30, 210.0)
    assert len(lunarlander_page.draw([tmp_path]).axes[0].lines[0].get_xdata()) == 3


def test_executors_are_compared_by_the_final_evaluation_at_one_step(tmp_path, small_config):
    run = run_directory.open_run(tmp_path, small_config())
    for step, returns in ((10, [9.0] * 5), (10, [1.0, 3.0] * 10), (20, [5.0] * 20)):
        score = Evaluation(tuple(returns), (1.0,) * len(returns), (0.0,) * len(returns))
        run.log_evaluation(score, env_step=step, gradient_step=step, wall_seconds=60.0)
    found = ray_vs_local.score(tmp_path, 10)
    assert found == {"mean_return": 2.0, "deviation": 1.03}
    with pytest.raises(click.ClickException, match="no final evaluation after 30"):
        ray_vs_local.score(tmp_path, 30)


def test_new_runs_on_ray_have_the_hyperparameters_of_the_tracked_ones():
    config = labkit.SACConfig(seed=1, **ray_vs_local.EARLIER_DEFAULTS)
    _, folder, prefix, _ = ray_vs_local.LOCAL
    for path in (folder / f"{prefix}1", ray_vs_local.RESULTS / "ray-1"):
        tracked = run_directory.read_config(path)
        same = {name: getattr(config, name) for name in compare.NOT_A_SETTING}
        assert attrs.evolve(tracked, **same) == config
