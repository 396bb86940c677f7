"""The benchmark measures what it says, and draws what it measured."""

import sys
import time

import click
import numpy as np
import pytest

from benchmarks import (
    collection,
    contenders,
    floor,
    growth,
    lunarlander,
    ray_vs_local,
    report,
    throughput,
)
from benchmarks.contenders import Contender
from benchmarks.stopwatch import Stopwatch
from labkit.sac.evaluation import Evaluation
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
    "contenders": {
        "published": {
            "label": "published",
            "repeats": [{"rate": r, "cpu_ms": 30.0, "peak_mib": 700.0} for r in (52, 50, 10)],
        },
        "labkit": {
            "label": "labkit",
            "repeats": [{"rate": r, "cpu_ms": 9.0, "peak_mib": 800.0} for r in (120, 125, 600)],
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
        "in_loop": {"policy": 0.05, "physics engine": 2.5, "gradient step": 6.5, "the rest": 0.5},
    },
    "growth": growth.summary(
        [10_000, 100_000, 1_000_000],
        {10_000: 700.0, 100_000: 900.0, 1_000_000: 2_000.0},
        [(120, 121, 122), (118, 119, 120), (115, 116, 114)],
        raw_bytes=264,
    ),
}


def test_flops_by_hand():
    """Batch 2, 3 observations, 1 action, actor of one layer of 4, critics of one layer of 5."""
    actor = 3 * 4 + 4 * 2  # 20 multiplications forward
    critic = 4 * 5 + 5 * 1  # 25
    critic_loss = actor + 4 * critic + 2 * (critic + 5)  # 180: inputs' gradient: last layer only
    actor_loss = actor + 2 * critic + 2 * (5 + 1 * 5) + actor + 4 * 2  # 118
    assert (critic_loss, actor_loss) == (180, 118)
    assert floor.update_flops(2, 3, 1, (4,), (5,)) == 2 * 2 * (180 + 118 + 20)


def test_flops_of_the_benchmarked_update():
    # Issue 6 names about 0.73 GFLOP with every input gradient counted.
    flops = floor.update_flops(256, 28, 8, (256, 256), (256, 256))
    assert flops == 637_009_920


@pytest.mark.parametrize(
    ("physics_ms", "flops", "cores", "expected"),
    [
        (2.0, 600_000_000, 2, 2.5),  # shared perfectly
        (2.0, 600_000_000, 1, 5.0),  # one after the other
        (2.0, 600_000_000, 8, 2.0),  # one robot's physics is not shared
    ],
)
def test_floor(physics_ms, flops, cores, expected):
    assert floor.floor_ms(physics_ms, flops, 200e9, cores) == pytest.approx(expected)


def test_stopwatch_counts_after_warmup_only():
    stopwatch = Stopwatch(warmup=2, iterations=3)
    for done in range(6):
        if done == 1:
            time.sleep(0.3)  # within the warm-up
        if done >= 3:
            time.sleep(0.02)
        enough = stopwatch.tick(done)
        assert enough == (done >= 5)
    assert 15 < stopwatch.result()["rate"] < 51  # 3 iterations in at least 60 ms; not in 360
    with pytest.raises(RuntimeError, match="fewer than"):
        Stopwatch(2, 3).result()


def test_table():
    text = report.text(RESULTS)
    assert "| 125.0 " in text, "the median, not the mean"
    assert "2.50 × (aim 2.0)" in text
    assert "skipped: not there" in text
    assert "| computed floor | 400 " in text
    assert "| 1 000 000 " in text
    assert "0.95" in text, "115 of 121"
    assert f"{1300 * 2**20 / 990_000:.0f} bytes a transition" in text
    without = {key: RESULTS[key] for key in ("contenders",)}
    assert "floor" not in report.text(without)


def test_figure():
    drawn = report.figure(RESULTS)
    rates, parts, sizes = drawn.axes
    assert [bar.get_width() for bar in rates.patches] == [50, 125]
    assert [label.get_text() for label in rates.get_yticklabels()] == ["published", "labkit"]
    assert [bar.get_width() for bar in parts.patches] == [0.05, 2.5, 6.5, 0.5, 2.0, 3.0]
    np.testing.assert_array_equal(sizes.lines[-1].get_ydata(), [121, 119, 115])
    assert len(report.figure({"contenders": RESULTS["contenders"]}).axes) == 1


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


def test_what_cannot_run_is_said(monkeypatch):
    broken = Contender("x", "X", "benchmarks.nowhere")
    absent = Contender("y", "Y", "benchmarks.nowhere", unavailable="no Y here")
    results = contenders.take_turns([broken, absent], 2, TINY)
    assert "No module named benchmarks.nowhere" in results["x"]["skipped"]
    assert results["y"] == {"label": "Y", "skipped": "no Y here"}
    monkeypatch.setattr(contenders, "SB3_VENV", contenders.ROOT / "pyproject.toml" / "no")
    monkeypatch.setattr(sys, "executable", "false")
    assert "could not be made" in {c.key: c for c in contenders.contenders(True)}["sb3"].unavailable


def test_each_worker_runs_small():
    by_key = {c.key: c for c in contenders.contenders(with_sb3=False)}
    results = contenders.take_turns([by_key["published"], by_key["labkit"]], 1, TINY)
    for entry in results.values():
        assert "repeats" in entry, entry.get("skipped")
        assert entry["repeats"][0]["rate"] > 0
        assert 300 < entry["repeats"][0]["peak_mib"] < 4096
    parts = contenders.run("benchmarks.breakdown", TINY)
    in_loop = parts["in_loop"]
    assert min(in_loop[name] for name in ("policy", "writing", "gradient step")) > 0
    assert in_loop["physics engine"] > 0.3
    grown = contenders.run("benchmarks.growth", [*TINY, "--sizes", "300", "600"])
    assert grown["sizes"] == [300, 600]
    assert min(grown["rate"]) > 0


def test_the_ray_executor_beside_its_peers():
    measured = {"rate": 130.0, "cpu_ms": 14.0, "peak_mib": 2_500.0, "samples_per_insert": 257.25}
    measured |= {"staleness_median": 60.0, "staleness_max": 140.0}
    ray = {"label": "ray", "repeats": [measured]}
    text = report.text({**RESULTS, "contenders": {**RESULTS["contenders"], "ray": ray}})
    assert "2.60 × published (aim 2.4)" in text
    assert "32% of the floor" in text  # 130 of 400
    assert "257.2 for 256" in text
    assert "60 env steps older than the newest in the median, 140 at most" in text


@pytest.mark.slow
def test_the_ray_workers_run_small():
    """The contender's rate is the learner's; collecting alone reports both servers."""
    measured = contenders.run("benchmarks.contender_ray", TINY)
    assert 0 < measured["rate"] < 1_000
    assert measured["staleness_max"] >= measured["staleness_median"] >= 0
    case = collection.measure(1, 2.0)
    assert case["env_steps_per_second"] > 1
    assert case["alone"] > 1
    assert set(case["cores_busy"]) == {"rollout workers", "replay", "parameter server"}
    drawn = collection.draw({"machine": {"cores": 2}, "cases": [case, {**case, "collectors": 2}]})
    straight, _, found = drawn.axes[0].lines
    np.testing.assert_array_equal(straight.get_ydata(), np.array([1, 2]) * found.get_ydata()[0])


def test_a_lander_is_solved_by_twenty_episodes_of_two_hundred(tmp_path, small_config):
    run = run_directory.open_run(tmp_path, small_config())
    for step, returns in ((10, [250.0] * 5), (20, [199.0] * 20), (30, [210.0] * 20)):
        score = Evaluation(tuple(returns), (1.0,) * len(returns), (0.0,) * len(returns))
        run.log_evaluation(score, env_step=step, gradient_step=step, wall_seconds=1)
    assert lunarlander.solved_at(tmp_path) == (30, 210.0)
    assert len(lunarlander.draw([tmp_path]).axes[0].lines[0].get_xdata()) == 3


def test_executors_are_compared_by_final_evaluations_after_as_many_steps(tmp_path, small_config):
    run = run_directory.open_run(tmp_path, small_config())
    for step, returns in ((10, [9.0] * 5), (10, [1.0, 3.0] * 10), (20, [5.0] * 20)):
        score = Evaluation(tuple(returns), (1.0,) * len(returns), (0.0,) * len(returns))
        run.log_evaluation(score, env_step=step, gradient_step=step, wall_seconds=60.0)
    found = ray_vs_local.score(tmp_path, 10)
    assert found == {"mean_return": 2.0, "deviation": 1.03}
    with pytest.raises(click.ClickException, match="no final evaluation after 30"):
        ray_vs_local.score(tmp_path, 30)
