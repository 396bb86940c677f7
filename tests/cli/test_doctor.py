"""`labkit doctor`: one screen, an exit status, and a line for each failure."""

import subprocess
import sys

import numpy as np
import pytest

from labkit.cli import doctor
from labkit.errors import RunError
from labkit.replay import server as ports


def test_every_check_passes_on_this_machine():
    command = [sys.executable, "-m", "labkit.cli.main", "doctor"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=250)
    lines = done.stdout.splitlines()
    assert done.returncode == 0, done.stdout
    assert [line.split()[1] for line in lines[1:-1]] == list(doctor.CHECKS)
    assert all(line.split()[0] in ("ok", "note") for line in lines[1:-1])
    assert len(lines) <= 24
    assert done.stderr == ""


def test_an_exception_in_a_check_is_a_failure_of_that_check(monkeypatch, capsys):
    def broken():
        raise OSError("no space left\non device")

    monkeypatch.setattr(doctor, "CHECKS", {"fine": lambda: ("ok", "good"), "disk": broken})
    assert doctor.run_checks() == 1
    assert (
        "  fails  disk       OSError: no space left\n1 of 2 checks fail" in capsys.readouterr().out
    )


def test_a_version_that_differs_from_the_lock_is_named(monkeypatch, tmp_path):
    lock = tmp_path / "requirements.lock"
    lock.write_text("# a comment with ==\nattrs==1.0\nnot-there==2.0; sys_platform == 'linux'\n")
    monkeypatch.setattr(doctor, "LOCK", lock)
    status, text = doctor.versions()
    assert status == "fails"
    assert "not 1.0" in text
    assert "not-there is missing, not 2.0" in text


def test_a_wheel_without_the_lock_is_compared_with_labkit_s_pins(monkeypatch, tmp_path):
    pins = ["attrs==1.0", "not-there==2.0; sys_platform == 'linux'", "ray==0.1; extra == 'ray'"]
    monkeypatch.setattr(doctor, "LOCK", tmp_path / "requirements.lock")
    monkeypatch.setattr(doctor.importlib.metadata, "requires", {"labkit": pins}.get)
    status, text = doctor.versions()
    assert status == "fails"
    assert text.endswith("not 1.0; not-there is missing, not 2.0 (labkit's pins)")


def test_a_lost_video_frame_is_a_failure(monkeypatch):
    import imageio_ffmpeg

    read = imageio_ffmpeg.read_frames
    monkeypatch.setattr(imageio_ffmpeg, "read_frames", lambda path: iter(list(read(path))[:-1]))
    assert doctor.ffmpeg() == ("fails", "8 frames became 7")


def test_without_egl_mujoco_is_a_note_that_names_the_packages(monkeypatch):
    from labkit.plotting import rendering

    def frame(env):
        raise RunError("MuJoCo cannot draw on this machine (x): apt install libegl1")

    monkeypatch.setattr(rendering, "frame", frame)
    status, text = doctor.mujoco()
    assert status == "note"
    assert text.endswith("steps; MuJoCo cannot draw on this machine (x): apt install libegl1")


def test_without_the_extra_mujoco_is_a_note_that_says_what_to_install(monkeypatch):
    monkeypatch.setattr(doctor, "installed_version", {"gymnasium": "1"}.get)
    assert doctor.mujoco() == (
        "note",
        "not installed: mujoco; only Gymnasium's robots need it (pip install '.[gymnasium]')",
    )


def test_without_the_extra_onnx_is_a_note_that_says_what_to_install(monkeypatch):
    monkeypatch.setattr(doctor, "installed_version", {}.get)
    note = "not installed; only labkit export needs it (pip install '.[export]')"
    assert doctor.onnx() == ("note", note)


def test_an_onnx_model_with_wrong_actions_is_a_failure(monkeypatch):
    from labkit.sac import onnx_policy

    assert doctor.onnx()[0] == "ok"
    monkeypatch.setattr(onnx_policy, "actions", lambda model, observations: np.zeros([1, 1]))
    assert doctor.onnx() == ("fails", "an ONNX model returned the wrong action")


def test_a_taken_port_is_a_note(monkeypatch):
    import socket

    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        monkeypatch.setattr(doctor, "PORTS", {port: "a test"})
        assert doctor.ports() == (
            "note",
            f"taken: {port} (a test); each program can use another port",
        )


@pytest.mark.parametrize(("address", "outward"), [("127.0.0.1", False), ("198.51.100.7", True)])
def test_only_an_outward_facing_host_gets_the_note(monkeypatch, capsys, address, outward):
    class Socket:
        def __init__(self, family, kind):
            self.family = family

        def __enter__(self):
            return self

        def __exit__(self, *error):
            pass

        def connect(self, where):
            if self.family == ports.socket.AF_INET6:
                raise OSError("no route")

        def getsockname(self):
            return address, 1

    monkeypatch.setattr(ports.socket, "socket", Socket)
    assert ports.faces_outward() is outward
    ports.warn_once.cache_clear()
    ports.warn_once()
    ports.warn_once()
    assert capsys.readouterr().out == (f"{ports.WARNING}\n" if outward else "")


def test_a_slow_ray_is_a_note(monkeypatch):
    pytest.importorskip("ray")
    monkeypatch.setattr(doctor, "RAY_TASK", "import time; time.sleep(60)")
    monkeypatch.setattr(doctor, "RAY_LIMIT_SECONDS", 0.5)
    status, text = doctor.ray()
    assert status == "note"
    assert text.endswith("no answer in 0.5 s; only notebook 04 needs it")


def test_without_a_build_of_reverb_the_doctor_says_what_to_do(monkeypatch, tmp_path):
    """As on macOS, or on Linux with an ARM processor."""
    monkeypatch.setattr(doctor, "HAS_REVERB", False)
    lock = tmp_path / "requirements.lock"
    lock.write_text("dm-reverb==999; sys_platform == 'linux'\n")
    monkeypatch.setattr(doctor, "LOCK", lock)
    assert doctor.versions()[0] == "ok"
    status, text = doctor.reverb()
    assert status == "note"
    assert "replay=tf_uniform" in text


def test_the_doctor_and_the_lock_name_the_same_systems_for_reverb():
    (line,) = [n for n in doctor.LOCK.read_text().splitlines() if n.startswith("dm-reverb==")]
    assert line.endswith("; sys_platform == 'linux' and platform_machine == 'x86_64'")
