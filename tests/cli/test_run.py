"""`labkit run`: one line for a wrong parameter, before anything is written."""

import json
import re
import sys
import threading
import time
from pathlib import Path

import nbformat
import pytest

from labkit.cli import run as launcher
from labkit.cli.main import main
from labkit.cli.run import check, execute
from labkit.config import SACConfig
from labkit.errors import ParameterError, RunError, poll
from labkit.training.run import importlib


def run(*arguments: str) -> int:
    """The exit status of `labkit run` with these arguments."""
    with pytest.raises(SystemExit) as ended:
        main(["run", *arguments])
    return ended.value.code


NOTEBOOK = str(Path(__file__).parents[2] / "notebooks" / "03_sac_minitaur.ipynb")

REFUSED = [
    (["num_iterations", "0"], "`num_iterations` must be a whole number from 1.*, got '0'"),
    (["num_iterations", "-5"], "`num_iterations` must be .*, got '-5'"),
    (["num_iterations", "1.5"], "`num_iterations` must be .*, got '1.5'"),
    (["num_iterations", "abc"], "`num_iterations` must be .*, got 'abc'"),
    (["batch_size", "0"], "`batch_size` must be .*, got '0'"),
    (["gamma", "1.5"], "`gamma` must be a number from 0 to 1.*, got '1.5'"),
    (["critic_learning_rate", "-3e-4"], "`critic_learning_rate` must be .*, got '-3e-4'"),
    (["target_update_tau", "2"], "`target_update_tau` must be .*, got '2'"),
    (["seed", "-1"], "`seed` must be .*, got '-1'"),
    (["num_collectors", "65"], "`num_collectors` must be a whole number from 0 to 64 .*, got '65'"),
    (["env_name", "MinitorBulletEnv-v0"], r"did you mean 'MinitaurBulletEnv-v0'\?"),
    (["strategy", "quantum"], "`strategy` must be 'auto', 'cpu'.*, got 'quantum'"),
    (
        ["replay_buffer_capacity", "100"],
        "`replay_buffer_capacity` must be at least `batch_size` = 256 .*, got 100",
    ),
    (["run_dir", "taken"], r"config\.json is damaged"),
    (["resume", "maybe"], "`resume` must be 'auto' or 'never', got 'maybe'"),
    (["run_dir", "file/x"], "`run_dir` must be a directory that this process can create and write"),
    (
        ["num_iteration", "5"],
        r"`num_iteration` is not a parameter; did you mean 'num_iterations'\?",
    ),
]


@pytest.mark.parametrize(("pair", "message"), REFUSED)
def test_a_wrong_parameter_prints_one_line_and_writes_nothing(
    pair, message, tmp_path, monkeypatch, capfd
):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "taken").mkdir()
    (tmp_path / "taken" / "config.json").write_text("{}")
    (tmp_path / "file").write_text("")
    before = sorted(tmp_path.rglob("*"))
    assert run(NOTEBOOK, "-p", *pair) == 2
    out, err = capfd.readouterr()
    assert out == ""
    assert err.startswith("ParameterError: ")
    assert re.search(message, err)
    assert err.count("\n") == 1
    assert sorted(tmp_path.rglob("*")) == before


def test_a_missing_notebook_is_named(capfd):
    assert run("nowhere.ipynb") == 2
    assert capfd.readouterr().err == "ParameterError: there is no notebook 'nowhere.ipynb'\n"


def test_a_file_that_is_no_notebook_is_named(capfd, tmp_path):
    """papermill alone would print a warning of its own, with the line of its code."""
    (tmp_path / "x.sh").write_text("echo")
    assert run(str(tmp_path / "x.sh")) == 2
    start = "ParameterError: `notebook` must be a file whose name ends in .ipynb, got "
    assert capfd.readouterr().err == f"{start}'{tmp_path / 'x.sh'}'\n"


@pytest.mark.parametrize(
    "content",
    ["{}", "[]", "null", '{"cells": 3}', '{"nbformat": 4, "metadata": {}}', "[" * 100_000],
)
def test_a_file_that_is_no_notebook_is_one_line(tmp_path, capfd, content):
    (tmp_path / "x.ipynb").write_text(content)
    assert run(str(tmp_path / "x.ipynb")) == 2
    err = capfd.readouterr().err
    assert err.startswith(f"ParameterError: '{tmp_path / 'x.ipynb'}' cannot be read: ")
    assert err.count("\n") == 1


def test_texts_of_the_command_line_become_typed_values():
    texts = {"num_iterations": "1e3", "actor_fc_layer_params": "(8, 8)", "run_dir": "x"}
    checked, config = check(Path(NOTEBOOK), texts)
    assert config == SACConfig(num_iterations=1000, actor_fc_layer_params=(8, 8))
    assert checked == {"num_iterations": 1000, "actor_fc_layer_params": (8, 8), "run_dir": "x"}
    assert type(checked["num_iterations"]) is int


@pytest.mark.parametrize("notebook", sorted(Path(NOTEBOOK).parent.glob("0*.ipynb")))
def test_a_notebook_gets_only_parameters_that_it_declares(notebook, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    given = []
    monkeypatch.setattr(launcher, "execute", lambda *arguments: given.append(arguments) or 0)
    assert launcher.run_notebook(notebook, {}) == 0
    [(_, run_dir, parameters)] = given
    declares = "run_dir" in launcher.declared(notebook)
    paths = {name: parameters.pop(name) for name in ("runs", "policy") if name in parameters}
    assert parameters == ({"run_dir": str(run_dir)} if declares else {})
    # The defaults of 05 and 06 name folders from notebooks/; here they are seen from elsewhere.
    assert [*paths] == {"05": ["runs"], "06": ["policy"]}.get(notebook.name[:2], [])
    assert all(Path(path).is_dir() for path in paths.values())


def own_notebook(path, parameters, *cells):
    """A notebook with a parameters cell."""
    book = nbformat.v4.new_notebook()
    book.metadata["kernelspec"] = {"name": "python3", "display_name": "", "language": "python"}
    book.cells = [nbformat.v4.new_code_cell(text) for text in (parameters, *cells)]
    book.cells[0].metadata["tags"] = ["parameters"]
    nbformat.write(book, path)
    return path


def test_a_text_that_python_cannot_parse_stays_a_text(tmp_path):
    deep = "-" * 20_000 + "1"
    notebook = own_notebook(tmp_path / "a.ipynb", f"budget = 7\nother = {deep}")
    assert check(notebook, {"budget": deep})[0] == {"budget": deep}


def test_labkit_judges_no_parameters_of_a_notebook_without_labkit(tmp_path):
    words = 'resume = "last.ckpt"\ngamma = 1.0\nseed = "a"\nenv_name = "x"\nnum_collectors = 1'
    texts = {"gamma": "2.4", "seed": "xyz", "env_name": "staging", "num_collectors": "200"}
    checked, config = check(own_notebook(tmp_path / "a.ipynb", words), texts)
    assert checked == {"gamma": 2.4, "seed": "xyz", "env_name": "staging", "num_collectors": 200}
    assert config == SACConfig()
    with pytest.raises(ParameterError, match="`gamma` must be a number from 0 to 1"):
        check(own_notebook(tmp_path / "b.ipynb", words, "import labkit"), {"gamma": "2.4"})


@pytest.fixture
def started(tmp_path, monkeypatch):
    """`started(notebook, **texts)`: the run directory of `labkit run`, which executes nothing."""
    monkeypatch.chdir(tmp_path)
    given = []
    monkeypatch.setattr(launcher, "execute", lambda *arguments: given.append(arguments) or 0)

    def start(notebook, **texts):
        launcher.run_notebook(notebook, texts)
        return given[-1][1]

    return start


def test_a_notebook_s_own_run_dir_is_used(started, tmp_path):
    words = 'run_dir: str = "out/mine"\nresume: str = "auto"'
    notebook = own_notebook(tmp_path / "a.ipynb", words, "import labkit")
    assert started(notebook) == Path("out/mine")
    assert started(notebook, run_dir="other") == Path("other")
    assert started(own_notebook(tmp_path / "b.ipynb", words)) == Path("runs/0001"), "no labkit"
    several = Path(NOTEBOOK).with_name("04_distributed_sac.ipynb")
    assert started(several).parent == Path("runs"), "its own run_dir is the parent of several runs"


def test_without_reverb_only_notebooks_that_need_it_are_refused(started, monkeypatch):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with pytest.raises(ParameterError, match="`replay` must be 'tf_uniform' here"):
        started(Path(NOTEBOOK))
    started(Path(NOTEBOOK), replay="tf_uniform")
    started(Path(NOTEBOOK).with_name("05_compare_runs.ipynb"))


def test_parameters_of_one_notebook_alone_have_their_types_too():
    notebook = Path(NOTEBOOK).with_name("04_distributed_sac.ipynb")
    checked, _ = check(notebook, {"fault_iterations": "0", "solved_return": "-150.5"})
    assert checked == {"fault_iterations": 0, "solved_return": -150.5}
    texts = {"runs": "7", "budget": "6e4", "baseline": "None"}
    notebook = Path(NOTEBOOK).with_name("05_compare_runs.ipynb")
    checked, _ = check(notebook, texts)
    assert checked == {"runs": "7", "budget": 60_000.0, "baseline": "None"}
    # In notebook 03, None would be labkit's default; notebook 02 has its own agent.
    notebook = Path(NOTEBOOK).with_name("02_replay_buffers.ipynb")
    assert check(notebook, {"gamma": "None"})[0] == {"gamma": None}


@pytest.mark.parametrize(
    ("metadata", "named"),
    [
        ({"kernelspec": {"name": "julia", "display_name": "", "language": "julia"}}, "julia"),
        ({}, "not named"),
    ],
)
def test_a_kernel_that_is_not_installed_is_named(tmp_path, capfd, monkeypatch, metadata, named):
    monkeypatch.chdir(tmp_path)
    cells = [nbformat.v4.new_code_cell("1")]
    nbformat.write(nbformat.v4.new_notebook(cells=cells, metadata=metadata), "small.ipynb")
    assert run("small.ipynb") == 2
    err = capfd.readouterr().err
    assert "must be a notebook whose kernel is installed here, such as python3" in err
    assert f"small.ipynb (kernel {named})" in err
    assert "Traceback" not in err
    assert (tmp_path / "runs").exists() == bool(metadata), "no work began"


def test_a_stop_during_the_warm_up_is_reported(tmp_path, capfd):
    """One cell replaces the notebook, and creates the stop file as Ctrl-C does."""
    cell = """
import os, pathlib
import labkit
from labkit.training import components
config = labkit.SACConfig(initial_collect_steps=10**7, batch_size=32)
made = components.build(config)
pathlib.Path(os.environ["LABKIT_STOP"]).touch()
components.warm_up(config, made)
"""
    content = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell.strip())])
    content.metadata["kernelspec"] = {"name": "python3", "display_name": "", "language": "python"}
    nbformat.write(content, tmp_path / "small.ipynb")
    (tmp_path / "run").mkdir()
    assert execute(tmp_path / "small.ipynb", tmp_path / "run", {}) == 130
    err = capfd.readouterr().err
    assert "stopped before training began; the same command starts it again" in err
    assert not list((tmp_path / "run").glob(".stop-*"))


@pytest.mark.parametrize(("last", "status"), [(10, 130), (20, 0)])
def test_a_run_that_was_asked_to_stop_after_its_end_is_done(tmp_path, last, status):
    """In a figure or a video, for example; one cell replaces the notebook."""
    cell = f"""
import os, pathlib
import labkit
from labkit.sac.rollout import Evaluation
config = labkit.SACConfig(num_iterations=20, num_eval_episodes=2)
run = labkit.open_run({str(tmp_path / "run")!r}, config)
score = Evaluation((1.0, 2.0), (9.0, 9.0), (0.0, 0.0))
run.log_evaluation(score, env_step=30, gradient_step={last}, wall_seconds=1)
pathlib.Path(os.environ["LABKIT_STOP"]).touch()
"""
    content = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(cell.strip())])
    content.metadata["kernelspec"] = {"name": "python3", "display_name": "", "language": "python"}
    nbformat.write(content, tmp_path / "small.ipynb")
    (tmp_path / "run").mkdir()
    assert execute(tmp_path / "small.ipynb", tmp_path / "run", {}) == status


@pytest.mark.parametrize(("failures", "status"), [(1, 0), (2, "the notebook's kernel ended twice")])
def test_a_kernel_that_cannot_start_is_started_once_more(
    tmp_path, monkeypatch, capfd, failures, status
):
    """A kernel ends at once if another program took one of its ports, as this one does at first."""
    start = f"{sys.executable} -m ipykernel_launcher -f {{connection_file}}"
    script = f"echo >> starts; [ $(wc -l < starts) -gt {failures} ] || exit 1; exec {start}"
    spec = tmp_path / "kernels" / "unlucky"
    spec.mkdir(parents=True)
    argv = ["sh", "-c", f"cd {tmp_path}; {script}"]
    spec.joinpath("kernel.json").write_text(json.dumps({"argv": argv, "display_name": "unlucky"}))
    monkeypatch.setenv("JUPYTER_PATH", str(tmp_path))
    cell = nbformat.v4.new_code_cell("open('executed', 'x').close()")
    content = nbformat.v4.new_notebook(cells=[cell])
    content.metadata["kernelspec"] = {"name": "unlucky", "display_name": "", "language": "python"}
    nbformat.write(content, tmp_path / "small.ipynb")
    (tmp_path / "run").mkdir()
    if status == 0:
        assert execute(tmp_path / "small.ipynb", tmp_path / "run", {}) == 0
    else:
        with pytest.raises(RunError, match=status):
            execute(tmp_path / "small.ipynb", tmp_path / "run", {})
    again = "the kernel ended before its first cell; it is started again\n"
    assert capfd.readouterr().err.count(again) == 1
    assert (tmp_path / "executed").exists() == (status == 0)
    assert len((tmp_path / "starts").read_text()) == 2


def test_the_bar_of_a_resumed_run_begins_with_its_steps(tmp_path, monkeypatch):
    bars = []

    class Bar:
        def __init__(self, **options):
            self.options, self.n = options, options["initial"]
            bars.append(self)

        def update(self, count):
            self.n += count

        set_postfix = close = lambda self, *facts, **options: None

    monkeypatch.setattr(launcher, "tqdm", Bar)
    state, done = tmp_path / "progress.json", threading.Event()
    now = {"label": "training", "done": 50, "total": 90, "unit": "it", "facts": {}}
    state.write_text(json.dumps(now))
    drawing = threading.Thread(target=launcher._draw_bars, args=(state, done))
    drawing.start()
    try:
        poll(lambda: bars[0], IndexError)
        state.write_text(json.dumps({**now, "done": 53}))
        deadline = time.monotonic() + 30
        while bars[0].n != 53:
            assert time.monotonic() < deadline, bars[0].n
            time.sleep(0.05)
    finally:
        done.set()
        drawing.join()
    assert (bars[0].options["initial"], bars[0].options["desc"]) == (50, "training")
    assert len(bars) == 1
