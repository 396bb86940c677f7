"""TensorBoard shows a run's scalars: `make tensorboard`, and `%tensorboard` inside a notebook."""

import json
import os
import re
import signal
import subprocess
import sys
import time
import urllib.request
from pathlib import Path

import psutil
import pytest
import tensorflow as tf
from conftest import SMALL
from jupyter_client.manager import start_new_kernel
from small_disk import fill, small_disk
from test_signals import execute

from labkit.config import SACConfig
from labkit.environments.make import make_environment
from labkit.errors import StorageError
from labkit.replay.server import free_port
from labkit.sac import agent
from labkit.sac.rollout import Evaluation
from labkit.strategy import make_strategy
from labkit.training import logger
from labkit.training.run import Run

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="module")
def logged(tmp_path_factory):
    """A folder `runs/0001` with one row of losses and one evaluation."""
    path = tmp_path_factory.mktemp("project") / "runs" / "0001"
    path.mkdir(parents=True)
    config = SACConfig(**SMALL)
    run = Run.create(path, config)
    env = make_environment(config.env_name, seed=0)
    made = agent.create_agent(config, env, make_strategy("cpu", config.batch_size))
    written = logger.RunLogger(run, made)
    written.log(5, 7, [1.0, 2.0, 3.0], 0.5, 0.25)
    written.log_evaluation(5, 7, Evaluation((4.0,), (10.0,), (0.1,)), 1.5)
    written.close()
    return path.parent.parent


def test_events_that_cannot_be_written_do_not_stay_the_default(tmp_path, monkeypatch):
    """Else the next training in the same kernel would write into this run's events."""
    config = SACConfig(**SMALL)
    (tmp_path / "run").mkdir()
    run = Run.create(tmp_path / "run", config)
    env = make_environment(config.env_name, seed=0)
    made = agent.create_agent(config, env, make_strategy("cpu", config.batch_size))
    written = logger.RunLogger(run, made)
    other = tf.summary.create_file_writer(str(tmp_path / "the user's"))
    events = written._events

    def flush():
        if not events._closed:  # TensorFlow skips a closed writer
            raise tf.errors.ResourceExhaustedError(None, None, "No space left on device")

    monkeypatch.setattr(events, "flush", flush)
    with other.as_default():
        with pytest.raises(StorageError, match=r"events cannot be written \(No space"):
            written.log(5, 7, [1.0, 2.0, 3.0], 0.5, 0.25)
        assert tf.summary.should_record_summaries()
        tf.summary.scalar("mine", 1.0, step=1)
    assert not tf.summary.should_record_summaries(), "a default writer is left"
    written.close()  # twice is harmless


def scalars(address, seconds=60):
    """The scalar tags that a TensorBoard serves, once it serves any; within a time limit."""
    deadline, error = time.monotonic() + seconds, None
    while time.monotonic() < deadline:
        try:
            with urllib.request.urlopen(f"{address}/data/plugin/scalars/tags", timeout=5) as got:
                if found := json.load(got):
                    return found
        except OSError as refusal:
            error = refusal
        time.sleep(0.3)
    raise AssertionError(f"no scalars at {address} within {seconds} s: {error}")


def check(found):
    tags = next(tags for run, tags in found.items() if run.endswith("events"))
    assert {"critic_loss", "alpha", "eval_return"} <= set(tags)


def test_make_tensorboard_serves_the_scalars_on_this_machine_only(logged):
    recipe = re.search(r"^tensorboard:.*\n\t@(.+)$", (ROOT / "Makefile").read_text(), re.M)[1]
    port = free_port()
    command = recipe.replace("$(PY)", sys.executable).replace("$(ARGS)", f"--port {port}")
    with subprocess.Popen(command.split(), cwd=logged, stderr=subprocess.DEVNULL) as process:
        try:
            check(scalars(f"http://127.0.0.1:{port}"))
            listening = [c.laddr.ip for c in _listening() if c.laddr.port == port]
            assert listening == ["127.0.0.1"]
        finally:
            process.terminate()


def _listening():
    return [c for c in psutil.net_connections("tcp") if c.status == psutil.CONN_LISTEN]


def test_the_magic_shows_it_inside_the_notebook(logged, tmp_path):
    port = free_port()
    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    env = {**os.environ, "PATH": path, "TMPDIR": str(tmp_path)}
    manager, client = kernel = start_new_kernel(60, cwd=str(logged), env=env)
    try:
        execute(kernel, "%load_ext tensorboard")
        shown = execute(kernel, f"%tensorboard --logdir runs --host 127.0.0.1 --port {port}")
        pages = [m["content"].get("data", {}).get("text/html", "") for m in shown]
        assert any("<iframe" in page and str(port) in page for page in pages)
        check(scalars(f"http://127.0.0.1:{port}"))
    finally:
        # It is started on its own and outlives the kernel; it says where it is in a file.
        for told in (tmp_path / ".tensorboard-info").glob("pid-*.info"):
            os.kill(json.loads(told.read_text())["pid"], signal.SIGTERM)
        client.stop_channels()
        manager.shutdown_kernel(now=True)


def test_a_policy_is_deleted_only_once_the_next_one_exists(logged, tmp_path, monkeypatch):
    """A process that was killed between two renames has left `policy.before`."""
    config = SACConfig(**SMALL)
    (tmp_path / "run" / "policy.before").mkdir(parents=True)
    run = Run.create(tmp_path / "run", config)
    env = make_environment(config.env_name, seed=0)
    made = agent.create_agent(config, env, make_strategy("cpu", config.batch_size))
    written = logger.RunLogger(run, made)

    def fail(path):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(written._saver, "save", fail)
    with pytest.raises(StorageError, match="No space"):
        written.save_policy()
    assert (run.path / "policy.before").exists()


def test_after_a_full_disk_nothing_more_is_written_into_these_events(logged, tmp_path):
    """TensorFlow leaves a writer that cannot be flushed as the default one."""
    config = SACConfig(**SMALL)
    env = make_environment(config.env_name, seed=0)
    made = agent.create_agent(config, env, make_strategy("cpu", config.batch_size))
    with small_disk(tmp_path / "disk", 256) as disk:
        run = Run.create(disk, config)
        full = logger.RunLogger(run, made)
        fill(disk)
        with pytest.raises(StorageError, match=r"events cannot be written \(.*No space") as error:  # noqa: PT012
            for step in range(1_000):
                full._write_events(step, {"alpha": 0.5})
        assert "\n" not in str(error.value)
        assert not tf.summary.should_record_summaries()
