"""TensorBoard shows a run's scalars, and a disk that is full ends with one line."""

import json
import re
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

import psutil
import pytest
import tensorflow as tf
from small import SMALL
from small_disk import fill, small_disk

from labkit.config import SACConfig
from labkit.errors import StorageError
from labkit.replay.server import free_port
from labkit.sac.rollout import Evaluation
from labkit.training import components
from labkit.training.learner import Learner
from labkit.training.run import open_run

ROOT = Path(__file__).resolve().parents[2]


def open_logger(path):
    config = SACConfig(**{**SMALL, "env_name": "Pendulum-v1", "replay": "tf_uniform"})
    made = components.build(config)
    components.warm_up(config, made)
    run = open_run(path, config)
    learner = Learner(config, run, made.agent, made.strategy, made.layout, made.replay)
    learner.start()
    return learner


def test_make_tensorboard_serves_the_scalars_on_this_machine_only(tmp_path):
    written = open_logger(tmp_path / "runs" / "0001")
    written._write_events({"gradient_step": 5, "critic_loss": 1.0, "td_error": 0.5})
    written.log_evaluation(5, 7, Evaluation((4.0,), (10.0,), (0.1,)), True, 1.5)
    written.close()
    recipe = re.search(r"^tensorboard:.*\n\t@(.+)$", (ROOT / "Makefile").read_text(), re.M)[1]
    port, deadline, found = free_port(), time.monotonic() + 120, {}
    command = recipe.replace("$(PY)", sys.executable).replace("$(ARGS)", f"--port {port}")
    with subprocess.Popen(command.split(), cwd=tmp_path, stderr=subprocess.DEVNULL) as process:
        try:
            while not found and time.monotonic() < deadline:
                time.sleep(0.3)
                address = f"http://127.0.0.1:{port}/data/plugin/scalars/tags"
                try:
                    with urllib.request.urlopen(address, timeout=5) as got:
                        found = json.load(got)
                except OSError:
                    continue
            tags = next(tags for run, tags in found.items() if run.endswith("events"))
            assert set(tags) == {"critic_loss", "td_error", "eval_return"}
            listening = [c for c in psutil.net_connections("tcp") if c.status == "LISTEN"]
            assert [c.laddr.ip for c in listening if c.laddr.port == port] == ["127.0.0.1"]
        finally:
            process.terminate()


def test_after_a_full_disk_nothing_more_is_written_into_these_events(tmp_path):
    """TensorFlow leaves a writer that cannot be flushed as the default one."""
    with small_disk(tmp_path / "disk", 256) as disk:
        full = open_logger(disk / "run")
        fill(disk)
        with pytest.raises(StorageError, match=r"events cannot be written \(.*No space") as error:  # noqa: PT012
            for step in range(1_000):
                full._write_events({"gradient_step": step, "alpha": 0.5})
        assert "\n" not in str(error.value)
        assert not tf.summary.should_record_summaries()
