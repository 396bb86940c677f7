"""`labkit run`: one line before anything is written, Ctrl-C and resume, one line for each end."""

import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import nbformat
import psutil
import pytest
from small_notebook import START, TRAIN, interrupt_when, labkit, last_line, outputs, rows, write

from labkit.training import checkpoint
from labkit.training.records import is_finished, read_config, read_metrics

NOTEBOOK = Path(__file__).parents[2] / "notebooks" / "03_sac_minitaur.ipynb"
REFUSED = [
    ("num_iterations", "0", "`num_iterations` must be a whole number from 1.*, got '0'"),
    ("num_iterations", "1.5", "`num_iterations` must be .*, got '1.5'"),
    ("num_iterations", "abc", "`num_iterations` must be .*, got 'abc'"),
    ("gamma", "1.5", "`gamma` must be a number from 0 to 1.*, got '1.5'"),
    ("seed", "-1", "`seed` must be .*, got '-1'"),
    ("strategy", "quantum", "`strategy` must be 'auto', 'cpu'.*, got 'quantum'"),
    ("replay_buffer_capacity", "100", "must be at least `batch_size` = 256 .*, got 100"),
    ("num_iteration", "5", r"`num_iteration` is not a parameter; did you mean 'num_iterations'\?"),
    ("env_name", "MinitorBulletEnv-v0", "Did you mean: `MinitaurBulletEnv`"),
    ("env_name", "CartPole-v1", "`env_name` must be .* this one has actions of shape"),
    ("env_name", "gymnasium:CarRacing-v3", r"this one has observations of shape \(96, 96, 3\)"),
    ("run_dir", "taken", r"config\.json is damaged"),
    ("run_dir", "thesis", r"it holds mine\.txt, and no config\.json"),
    ("run_dir", "file/x", r"`run_dir` must be a directory .* create and write .*got 'file/x'"),
    ("run_dir", "linked", "`run_dir` must be a directory without symbolic links"),
    ("resume", "maybe", "`resume` must be 'auto' or 'never', got 'maybe'"),
]


@pytest.fixture
def here(tmp_path, monkeypatch):
    """A working directory in which nothing may change."""
    monkeypatch.chdir(tmp_path)
    for name, content in {"taken/config.json": "{}", "thesis/mine.txt": "", "file": ""}.items():
        Path(name).parent.mkdir(exist_ok=True)
        Path(name).write_text(content)
    Path("linked").mkdir()
    Path("linked/checkpoints").symlink_to("/tmp")
    before = sorted(tmp_path.rglob("*"))
    yield tmp_path
    assert sorted(tmp_path.rglob("*")) == before


@pytest.mark.parametrize(("name", "value", "message"), REFUSED)
def test_a_wrong_parameter_is_one_line_and_writes_nothing(here, name, value, message):
    if "CarRacing" in value:
        pytest.importorskip("gymnasium")
    done = labkit("run", NOTEBOOK, "-p", name, value)
    assert (done.exit_code, done.stdout) == (1, "")
    assert re.match(f"ParameterError: .*{message}", done.stderr), done.stderr
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize("content", [None, "{}", '{"nbformat": 4}'])
def test_a_file_that_is_no_notebook_is_one_line(tmp_path, monkeypatch, content):
    monkeypatch.chdir(tmp_path)
    if content is not None:
        Path("x.ipynb").write_text(content)
    done = labkit("run", "x.ipynb")
    assert done.exit_code == 1
    assert re.match("ParameterError: .*x.ipynb", done.stderr)
    assert done.stderr.count("\n") == 1
    assert not Path("runs").exists()


@pytest.mark.thorough
def test_ctrl_c_ends_with_a_checkpoint_and_the_same_command_resumes(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    notebook = write(tmp_path / "work", START, "print(run.config.n_step)", TRAIN, "print('on')")
    run_dir = tmp_path / "runs" / "0001"
    arguments = ["run", notebook, "-p", "n_step", "3", "-p", "num_iterations", "5e3"]
    interrupt_when(lambda: rows(run_dir) > 3)
    stopped = labkit(*arguments)
    assert stopped.exit_code == 130, stopped.stderr
    assert last_line(stopped).endswith("small.ipynb: stopped; the same command resumes it")
    *_, printed, _, after = outputs(run_dir / "small.ipynb")
    assert printed == "3\n", "a field that the parameters cell does not list"
    assert after == "", "no cell runs after the training"
    saved = int(checkpoint.latest(run_dir / "checkpoints").name)
    before = read_metrics(run_dir)
    assert before.gradient_step.max() <= saved

    done = labkit(*arguments)
    assert (done.exit_code, last_line(done)) == (0, "runs/0001/small.ipynb: done")
    assert is_finished(run_dir, read_config(run_dir))
    steps = read_metrics(run_dir).gradient_step
    assert steps.is_monotonic_increasing
    assert steps.max() == 5_000 > saved
    assert list(steps[: len(before)]) == list(before.gradient_step)


@pytest.mark.thorough
@pytest.mark.timeout(600)
def test_papermill_that_was_interrupted_resumes_when_it_runs_again(tmp_path):
    notebook, run_dir = write(tmp_path, START, TRAIN), tmp_path / "runs" / "0001"
    command = [sys.executable, "-m", "papermill", notebook, "out.ipynb", "-p", "num_iterations"]
    command += ["9e3", "-p", "checkpoint_interval", "100"]
    options = {"cwd": tmp_path, "stderr": subprocess.DEVNULL, "start_new_session": True}
    # A shell that starts the tests in the background ignores SIGINT, and so would papermill.
    options["preexec_fn"] = lambda: signal.signal(signal.SIGINT, signal.SIG_DFL)
    with subprocess.Popen(command, **options) as first:
        while checkpoint.latest(run_dir / "checkpoints") is None:
            assert first.poll() is None
            time.sleep(0.05)
        os.killpg(first.pid, signal.SIGINT)  # Ctrl-C in a terminal
    assert not is_finished(run_dir, read_config(run_dir))
    subprocess.run(command, **options, check=True)
    assert is_finished(run_dir, read_config(run_dir))
    printed = "".join(outputs(tmp_path / "out.ipynb"))
    assert "runs/0001 is an unfinished run of this configuration: it resumes from" in printed


@pytest.mark.parametrize(
    ("cell", "line"),
    [
        ("raise KeyError('early')", "KeyError: 'early'"),
        (
            "import os; os.kill(os.getpid(), 9)",
            r"killed \(.*\); "
            "last good checkpoint: here/checkpoints/000000007",
        ),
        ("1", "RunError: the notebook left no finished run in here"),
    ],
)
def test_each_bad_end_is_one_line(tmp_path, monkeypatch, cell, line):
    monkeypatch.chdir(tmp_path)
    kept = "(run.path / 'checkpoints' / f'{7:09}').mkdir(parents=True)"
    done = labkit("run", write(tmp_path, START, kept, cell), "-p", "run_dir", "here")
    assert done.exit_code == 1
    assert re.fullmatch(f"here/small.ipynb: {line}", last_line(done))


SLEEPS = "import time\nopen('begun', 'w').close()\nwhile True: time.sleep(1)"
DEAF = "import signal\nsignal.signal(signal.SIGINT, signal.SIG_IGN)\n" + SLEEPS


@pytest.mark.parametrize(("cell", "requests"), [(SLEEPS, 1), (DEAF, 2)])
def test_any_cell_is_interrupted_and_a_second_ctrl_c_kills(tmp_path, monkeypatch, cell, requests):
    monkeypatch.chdir(tmp_path)
    begun = Path("begun")
    interrupt_when(begun.exists, signal.SIGTERM)
    if requests == 2:
        interrupt_when(lambda: begun.exists() and time.time() > begun.stat().st_mtime + 3)
    done = labkit("run", write(tmp_path, cell, parameters="a = 1"))
    assert done.exit_code == 130
    assert last_line(done).endswith("runs/0001/small.ipynb: stopped; the same command resumes it")
    assert done.stderr.count("stopping after this iteration") == requests


@pytest.mark.thorough
def test_the_kernel_of_a_killed_launcher_ends(tmp_path):
    """ipykernel looks for its parent once a second."""
    cell = "import os, time\nopen('kernel', 'w').write(str(os.getpid()))\ntime.sleep(600)"
    command = ["-m", "labkit.cli.main", "run", write(tmp_path, cell, parameters="a = 1")]
    launcher = subprocess.Popen([sys.executable, *command], cwd=tmp_path, stderr=subprocess.DEVNULL)
    kernels = []
    while not kernels and launcher.poll() is None:
        kernels = psutil.Process(launcher.pid).children() if (tmp_path / "kernel").exists() else []
        time.sleep(0.1)
    launcher.kill()
    launcher.wait()
    gone, _ = psutil.wait_procs(kernels, timeout=60)
    assert len(gone) == 1


HOLDS = """
import time, labkit
run = labkit.open_run("here", labkit.SACConfig(env_name="Pendulum-v1"))
print("held", flush=True)
time.sleep(600)
"""


def test_a_run_that_another_process_writes_to_is_left_alone(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    command = [sys.executable, "-c", HOLDS]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as other:
        assert other.stdout.readline() == "held\n"
        done = labkit("run", write(tmp_path, START), "-p", "run_dir", "here")
        other.kill()
    assert done.exit_code == 1
    assert f"no other process is writing to (process {other.pid} is), got 'here'" in done.stderr
    assert not (tmp_path / "here" / "small.ipynb").exists()


def test_a_notebook_is_never_its_own_output(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    notebook = write(tmp_path / "work", START)
    before = notebook.read_bytes()
    done = labkit("run", notebook, "-p", "run_dir", "work")
    assert done.exit_code == 1
    assert "another folder than that of the notebook" in done.stderr
    assert notebook.read_bytes() == before


def test_another_notebook_gets_its_own_parameters_with_their_types(tmp_path, monkeypatch):
    """labkit judges no value of a notebook that does not train with it, such as 02 or 05."""
    monkeypatch.chdir(tmp_path)
    parameters = 'gamma = 1.0\nname = "a"\nlayers = (8,)\nbudget = None'
    cells = "print([gamma, name, layers, budget])", "# lesson, which is skipped\n1 / 0"
    notebook = write(tmp_path, *cells, parameters=parameters)
    pairs = {"gamma": "2.5", "name": "7", "layers": "[1, 2]", "budget": "6e4"}
    words = [word for name, text in pairs.items() for word in ("-p", name, text)]
    assert labkit("run", notebook, *words).exit_code == 0
    executed = Path("runs/0001/small.ipynb")
    assert "[2.5, '7', [1, 2], 60000.0]\n" in outputs(executed)
    assert nbformat.read(notebook, as_version=4).cells[1].outputs == []
    done = labkit("run", notebook, "-p", "n_step", "3")
    assert done.stderr.startswith("ParameterError: `n_step` is not a parameter")
