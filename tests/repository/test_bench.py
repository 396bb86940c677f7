"""The benchmark of throughput: its computations, and a small run of every implementation."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks import floor, report
from benchmarks.stopwatch import Stopwatch

ROOT = Path(__file__).resolve().parents[2]


def test_flops_by_hand():
    """One observation, one action, one hidden unit: pi has 1·1 + 1·2 products, q 2·1 + 1·1."""
    pi, q, pi_x, q_x = 3, 3, 2, 1
    critics = pi + 2 * q + 2 * q + 2 * (q + q_x)
    actor = pi + 2 * q + 2 * (q_x + 1) + pi + pi_x
    assert floor.update_flops(1, 1, 1, (1,), (1,)) == 2 * (critics + actor + pi)
    assert floor.update_flops(1, 1, 1, (1,), (1,), 2) == 2 * (critics + (actor + pi) // 2)


def test_the_floor_is_physics_on_one_core_or_all_work_shared():
    assert floor.floor_ms(4.0, 10**9, 1e12, 2) == 4.0  # 1 ms of arithmetic fits beside it
    assert floor.floor_ms(4.0, 10**10, 1e12, 2) == 7.0


def test_a_ratio_is_the_median_of_the_rounds_own_ratios():
    rates = {"a": [10, 90, 30], "b": [10, 30, 15]}
    found = {key: {"repeats": [{"rate": r} for r in values]} for key, values in rates.items()}
    assert report.ratio(found, "a", "b") == 2


def test_the_stopwatch_counts_after_the_warm_up_only():
    stopwatch = Stopwatch(2, 3)
    assert [stopwatch.tick(done) for done in range(6)] == [False] * 5 + [True]
    assert stopwatch.result()["rate"] > 0
    with pytest.raises(RuntimeError, match="fewer than"):
        Stopwatch(2, 3).result()


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_everything_but_the_peers_runs_small(tmp_path):
    command = [sys.executable, "-m", "benchmarks.throughput", "--quick", "--out", str(tmp_path)]
    subprocess.run(command, cwd=ROOT, check=True)
    results = json.loads((tmp_path / "throughput.json").read_text())
    ran = {key for key, entry in results["implementations"].items() if entry["repeats"]}
    assert ran == {"published", "labkit", "labkit_same", "ray"}
    assert results["breakdown"]["in_loop"].keys() > {"policy", "gradient step"}
    assert (tmp_path / "throughput.png").exists()
