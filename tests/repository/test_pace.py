"""Following a real training process, and a table of its speed computed by hand."""

import os
import subprocess
import sys

import pandas as pd
import pytest

from benchmarks import pace
from labkit.config import SACConfig
from labkit.training import run_directory

WRITER = """
import sys, time
from labkit.config import SACConfig
from labkit.training.run_directory import open_run

run = open_run(sys.argv[1], SACConfig())
for step in range(1, 31):
    run.log(gradient_step=step, env_step=step, wall_seconds=step / 10)
    time.sleep(0.05)
time.sleep(2)  # so that a busy machine sees the last row, too
"""


def test_a_run_is_followed_to_its_end(tmp_path, monkeypatch):
    monkeypatch.setattr(pace, "SECONDS_BETWEEN_LOOKS", 0.02)
    child = subprocess.Popen([sys.executable, "-c", WRITER, str(tmp_path)])
    table = pace.follow(tmp_path, until=10**6)
    child.wait(timeout=30)
    assert table.gradient_step.is_monotonic_increasing
    assert table.gradient_step.iloc[-1] == 30
    assert (table.wall_seconds == table.gradient_step / 10).all()
    assert table.cpu_seconds.iloc[0] > 0.1, "importing labkit alone takes longer"
    assert 20 < table.resident_mib.max() < 4_000


def test_following_ends_at_the_given_step(tmp_path, monkeypatch):
    monkeypatch.setattr(pace, "SECONDS_BETWEEN_LOOKS", 0.01)
    run = run_directory.open_run(tmp_path, SACConfig())
    run.log(gradient_step=5, env_step=5, wall_seconds=1)
    run.log(gradient_step=50, env_step=50, wall_seconds=2)
    assert pace.follow(tmp_path, until=20).empty, "the run is at step 50 already"


def test_a_run_that_has_no_file_of_metrics_yet_is_at_step_minus_one(tmp_path):
    row = pace.look(os.getpid(), tmp_path)
    assert (row["gradient_step"], row["wall_seconds"]) == (-1, 0.0)
    assert row["resident_mib"] > 20


def test_a_run_without_a_process_is_an_error(tmp_path, monkeypatch):
    monkeypatch.setattr(pace, "SECONDS_TO_BEGIN", 0.1)
    monkeypatch.setattr(pace, "SECONDS_BETWEEN_LOOKS", 0.1)
    with pytest.raises(SystemExit, match="no process opened the run"):
        pace.follow(tmp_path, until=1)


def test_tenths_by_hand():
    steps = range(0, 101, 5)
    table = pd.DataFrame(
        {
            "gradient_step": steps,
            "wall_seconds": [step / (100 if step <= 50 else 50) for step in steps],
            "cpu_seconds": [step * 0.014 for step in steps],
            "resident_mib": [500.0 + step for step in steps],
        }
    )
    rows = pace.tenths(table)
    assert rows["to step"].tolist() == list(range(10, 101, 10))
    assert rows["it/s"].iloc[[0, -1]].tolist() == pytest.approx([100, 50])
    assert rows["CPU ms/it"].tolist() == pytest.approx([14] * 10)
    assert rows["resident MiB"].iloc[-1] == 600
