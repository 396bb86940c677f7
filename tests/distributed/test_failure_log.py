"""Why a process failed: the end of its log, of a real process of a real Ray."""

import os
import signal
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

from ray_processes import wait_until

from labkit.distributed import failure_log, ray_cluster

LAST_WORDS = f"""
import os
os.write(2, b"{failure_log.REASON}it hung\\n")
os.kill({{}}, {signal.SIGKILL:d})
"""


class Failing:
    """An actor that prints much and that a child process kills, as a watchdog does."""

    def pid(self):
        return os.getpid()

    def fail(self):
        print("much before\n" * failure_log.BYTES + "what it was doing", flush=True)
        subprocess.run([sys.executable, "-c", LAST_WORDS.format(os.getpid())])


def test_the_end_of_a_killed_process_s_log_is_kept(tmp_path, monkeypatch):
    import ray

    monkeypatch.setenv("PYTHONPATH", str(Path(__file__).parent))  # where `Failing` is
    run = SimpleNamespace(path=tmp_path)
    with ray_cluster.connection(None, cpus=1):
        actor = ray.remote(Failing).options(max_restarts=1).remote()
        pid = ray.get(actor.pid.remote())
        node = ray.get_runtime_context().get_node_id()
        actor.fail.remote()
        wait_until(lambda: not os.path.exists(f"/proc/{pid}"), 30, "end of the actor")
        kept = failure_log.record(run, "rollout worker 0", (node, pid))
        assert kept == (ray.util.get_node_ip_address(), "it hung")
        elsewhere = SimpleNamespace(get_node_id=lambda: "another machine")
        monkeypatch.setattr(ray, "get_runtime_context", lambda: elsewhere)
        assert "what it was doing" in failure_log.look(node, pid), "asked for from another machine"
        assert failure_log.look("ab" * 28, pid) == [], "that machine is gone"
    lines = (tmp_path / failure_log.FILE).read_text().splitlines()
    assert lines[0] == f"--- rollout worker 0, process {pid} on 127.0.0.1"
    assert {"what it was doing", f"{failure_log.REASON}it hung"} < set(lines)
