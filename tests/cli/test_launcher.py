"""`labkit run` as a process: who writes where, who stops whom, and one line for each ending."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import nbformat
import pytest
from small_disk import fill, small_disk

from labkit.cli import run as launcher
from labkit.config import SACConfig
from labkit.errors import ParameterError, poll
from labkit.training import run_lock
from labkit.training.run import choose_directory, open_run

PARAMETERS = """
run_dir: str = ""  # directory
resume: str = "auto"  # auto or never
num_iterations: int = 30  # gradient steps
gamma: float = 0.5  # discount
"""
# The kernel opens its run and waits until it is asked to stop, in place of training.
WAITS = """
import os
import time
from pathlib import Path

import labkit
from labkit.training.progress import stop_request

config = labkit.SACConfig(num_iterations=num_iterations, gamma=gamma)
run = labkit.open_run(run_dir, config, resume)
(run.path / "kernel").write_text(str(os.getpid()))
with stop_request() as stop:
    while not stop:
        time.sleep(0.05)
print("stopped by request")
"""
OPENS = "import labkit\nlabkit.open_run(run_dir, labkit.SACConfig(gamma=gamma), resume)"
KILLED = OPENS + "\nimport os\nos.kill(os.getpid(), 9)"


def write_notebook(folder: Path, body: str) -> Path:
    cells = [nbformat.v4.new_code_cell(text.strip()) for text in (PARAMETERS, body)]
    cells[0].metadata["tags"] = ["parameters"]
    content = nbformat.v4.new_notebook(cells=cells)
    content.metadata["kernelspec"] = {"name": "python3", "display_name": "", "language": "python"}
    folder.mkdir(exist_ok=True)
    nbformat.write(content, folder / "small.ipynb")
    return folder / "small.ipynb"


STARTED: list[subprocess.Popen] = []


@pytest.fixture(autouse=True)
def ended():
    """A test that fails leaves no process: a kernel ends with its launcher."""
    yield
    while STARTED:
        process = STARTED.pop()
        process.kill()
        process.communicate()


def start(notebook: Path, run_dir: str, *prefix: str) -> subprocess.Popen:
    command = [sys.executable, "-m", "labkit.cli.main", "run", str(notebook)]
    process = subprocess.Popen(
        [*prefix, *command, "-p", "run_dir", run_dir],
        cwd=notebook.parent,
        stderr=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    STARTED.append(process)
    return process


def wait_for(file: Path, process: subprocess.Popen) -> str:
    deadline = time.monotonic() + 90
    while not file.exists() or not file.read_text():
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline, f"no {file}"
        time.sleep(0.05)
    return file.read_text()


def lines(text: str) -> list[str]:
    """What remains on the terminal, without the bars, which are redrawn with carriage returns."""
    last = [line.rpartition("\r")[2].strip() for line in text.splitlines()]
    return [line for line in last if line and not line.startswith("cells:")]


def is_alive(pid: str) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except OSError:
        return False


def test_the_same_command_twice_leaves_the_first_alone(tmp_path):
    notebook = write_notebook(tmp_path / "work", WAITS)
    run_dir = tmp_path / "work" / "here"
    first = start(notebook, "here")
    kernel = wait_for(run_dir / "kernel", first)
    executed = (run_dir / "small.ipynb").read_bytes()
    second = start(notebook, "here")
    second.send_signal(signal.SIGINT)
    second.communicate(timeout=60)
    assert second.returncode != 0
    third = start(notebook, "here")
    _, err = third.communicate(timeout=60)
    assert third.returncode == 2
    assert lines(err) == [
        "ParameterError: `run_dir` must be a run that no other process is writing to "
        f"(process {kernel} is), got 'here'"
    ]
    assert (run_dir / "small.ipynb").read_bytes() == executed
    assert first.poll() is None
    assert is_alive(kernel)
    first.send_signal(signal.SIGINT)
    _, err = first.communicate(timeout=60)
    assert first.returncode == 130, err
    assert "stopped; the results so far are in" in lines(err)[-1]
    assert "stopped by request" in (run_dir / "small.ipynb").read_text()
    assert not list(run_dir.glob(".stop-*"))


def test_resume_never_takes_a_new_directory(tmp_path, monkeypatch):
    notebook = write_notebook(tmp_path / "work", OPENS)
    monkeypatch.chdir(tmp_path)
    for resume in ("never", "never", "auto"):
        texts = {"run_dir": "here", "resume": resume}
        assert launcher.run_notebook(notebook, texts) == 0
    runs = sorted(file.parent.name for file in tmp_path.glob("here*/config.json"))
    assert runs == ["here", "here-2"]


def test_a_launcher_whose_kernel_is_still_starting_holds_the_directory(tmp_path):
    notebook = write_notebook(tmp_path / "work", OPENS)
    run_lock.hold(tmp_path / "work", run_lock.LAUNCHER)
    done = start(notebook, ".")
    _, err = done.communicate(timeout=60)
    run_lock.release(tmp_path / "work", run_lock.LAUNCHER)
    assert done.returncode == 2
    assert len(lines(err)) == 1


SUBREAPER = """
import ctypes, subprocess, sys, time
ctypes.CDLL(None).prctl(36, 1)  # PR_SET_CHILD_SUBREAPER, as systemd for each user's session
child = subprocess.Popen(sys.argv[1:])
print(child.pid, flush=True)
time.sleep(120)
"""


def test_a_killed_launcher_takes_its_kernel_with_it(tmp_path):
    """Where orphans go to another process than the first one."""
    notebook = write_notebook(tmp_path / "work", WAITS)
    session = start(notebook, "here", sys.executable, "-c", SUBREAPER)
    try:
        kernel = wait_for(tmp_path / "work" / "here" / "kernel", session)
        os.kill(int(session.stdout.readline()), signal.SIGKILL)
        deadline = time.monotonic() + 20
        while is_alive(kernel):
            assert time.monotonic() < deadline, "the kernel trains on"
            time.sleep(0.05)
    finally:
        session.kill()
    # Its last thread may hold the lock a moment longer.
    here = tmp_path / "work" / "here"
    poll(lambda: run_lock.check_free(here, run_lock.TRAINING), ParameterError, seconds=20)


def test_a_killed_kernel_is_one_line(tmp_path):
    notebook = write_notebook(tmp_path / "work", KILLED)
    done = start(notebook, "here")
    _, err = done.communicate(timeout=90)
    assert done.returncode == 1
    assert lines(err)[1:] == [
        "RunError: the process that ran the notebook was killed (its memory may have run out); "
        "last good checkpoint: none yet"
    ]


def test_a_full_disk_is_one_line(tmp_path):
    notebook = write_notebook(tmp_path / "work", OPENS)
    with small_disk(tmp_path / "disk", 256) as disk:
        fill(disk, leave=12_000)  # enough for the locks, not for the executed notebook
        done = start(notebook, str(disk / "run"))
        _, err = done.communicate(timeout=90)
        assert done.returncode in (1, 2)
        assert len(lines(err)) <= 2
        assert "No space left on device" in lines(err)[-1]


def test_a_directory_with_braces(tmp_path):
    notebook = write_notebook(tmp_path / "{work}", OPENS)
    done = start(notebook, "lr{0}")
    _, err = done.communicate(timeout=90)
    assert done.returncode == 0, err
    assert (tmp_path / "{work}" / "lr{0}" / "small.ipynb").exists()
    assert (tmp_path / "{work}" / "lr{0}" / "config.json").exists()


def test_a_run_is_compared_with_the_notebook_s_own_defaults(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    notebook = write_notebook(tmp_path / "work", OPENS)
    _, config = launcher.check(notebook, {"num_iterations": "40"})
    assert config == SACConfig(num_iterations=40, gamma=0.5)
    open_run("here", config).log(env_step=301, gradient_step=1)
    assert choose_directory("here", config) == Path("here")
    with pytest.raises(ParameterError, match=r"gamma is 0\.5 there and 0\.9 here"):
        launcher.run_notebook(notebook, {"gamma": "0.9", "run_dir": "here"})


def test_what_an_early_end_leaves_does_not_block_the_next_start(tmp_path, monkeypatch):
    """The notebook failed before it opened its run: its copy is there, and no config.json."""
    monkeypatch.chdir(tmp_path)
    notebook = write_notebook(tmp_path / "work", "raise KeyError('early')")
    for _ in range(2):
        assert launcher.run_notebook(notebook, {"run_dir": "here"}) == 1
    (tmp_path / "here" / "mine.txt").write_text("mine")
    with pytest.raises(ParameterError, match=r"it holds mine\.txt, and no config\.json"):
        launcher.run_notebook(notebook, {"run_dir": "here"})


def test_a_user_s_notebook_of_the_same_name_is_not_overwritten(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    notebook = write_notebook(tmp_path / "work", OPENS)
    mine = tmp_path / "here" / notebook.name
    mine.parent.mkdir()
    mine.write_text("mine")
    with pytest.raises(ParameterError, match=r"a directory without a .*which would be overwritten"):
        launcher.run_notebook(notebook, {"run_dir": "here"})
    assert [path.name for path in mine.parent.iterdir()] == [mine.name]
    assert mine.read_text() == "mine"
    (mine.parent / "config.json").write_text("{}")  # a run that was not started from a notebook
    with pytest.raises(ParameterError, match=r"would be overwritten \(rename it first\)"):
        launcher.execute(notebook, mine.parent, {})
    assert mine.read_text() == "mine"


def test_a_kernel_whose_program_is_gone_is_named(tmp_path, monkeypatch):
    kernel = tmp_path / "share" / "kernels" / "gone"
    kernel.mkdir(parents=True)
    command = ["/nowhere/python", "-m", "ipykernel", "-f", "{connection_file}"]
    (kernel / "kernel.json").write_text(json.dumps({"argv": command, "display_name": "gone"}))
    monkeypatch.setenv("JUPYTER_PATH", str(tmp_path / "share"))
    notebook = write_notebook(tmp_path / "work", OPENS)
    book = nbformat.read(notebook, as_version=4)
    book.metadata["kernelspec"] = {"name": "gone", "display_name": "gone", "language": "python"}
    nbformat.write(book, notebook)
    (tmp_path / "here").mkdir()
    with pytest.raises(
        ParameterError, match="/nowhere/python, the program of its kernel, does not"
    ):
        launcher.execute(notebook, tmp_path / "here", {})


def test_a_default_that_is_no_literal_is_left_to_the_notebook(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(launcher, "execute", lambda *arguments: 0)
    declares = 'import os\nrun_dir = os.environ.get("X", "")\nresume = "auto"'
    notebook = write_notebook(tmp_path / "work", declares)
    assert launcher.run_notebook(notebook, {}) == 0


def test_a_notebook_is_never_its_own_output(tmp_path):
    notebook = write_notebook(tmp_path / "work", OPENS)
    before = notebook.read_bytes()
    with pytest.raises(ParameterError, match="another directory than that of the notebook"):
        launcher.execute(notebook, tmp_path / "work", {})
    assert notebook.read_bytes() == before
