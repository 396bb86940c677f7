"""The notebooks' cell for Colab, in a stand-in: what Colab of Python 3.11 has installed, a stub of
`google.colab`, its sessions service, and a local git repository behind GitHub's address."""

import importlib
import json
import os
import re
import subprocess
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import nbformat
import pytest
from jupyter_client.manager import KernelManager
from nbclient import NotebookClient
from packaging.requirements import Requirement
from test_signals import execute, printed

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "scripts"))

import colab  # noqa: E402
import front  # noqa: E402

# As the list that Google publishes for runtime 2025.07 has them.
PREINSTALLED = """
    numpy==2.0.2 tensorflow==2.18.0 tf_keras==2.18.0 tensorflow-probability==0.25.0 pandas==2.2.2
    matplotlib==3.10.0 scipy==1.15.3 pillow==11.2.1 attrs==25.3.0 protobuf==5.29.5 psutil==5.9.5
    ipykernel==6.17.1 ipython==7.34.0 jupyter-client==6.1.12 tornado==6.4.2 traitlets==5.7.1
    pyzmq==24.0.1 setuptools==75.2.0 wheel==0.45.1 packaging==24.2 requests==2.32.3
"""
REPO = "https://github.com/someone/labkit"
NOTEBOOK = ROOT / "notebooks" / "01_overlapping_trajectories.ipynb"


def test_what_is_installed_is_what_labkit_names_but_for_the_page_itself():
    wanted = colab.wanted()
    assert "ipython" not in wanted
    assert wanted["numpy"] == "numpy==1.26.4"
    assert all(str(Requirement(line).specifier) for line in wanted.values())
    assert colab.missing(wanted) == [], "here they all are"
    assert colab.missing({"numpy": "numpy==1.0", "no-such": "no-such==1"}) == [
        "numpy==1.0",
        "no-such==1",
    ]


def test_with_a_gpu_cuda_comes_along(monkeypatch):
    monkeypatch.setattr(colab, "has_gpu", lambda: True)
    assert colab.wanted()["tensorflow"] == "tensorflow[and-cuda]==2.15.1"


def test_only_loaded_packages_of_several_files_need_a_new_kernel():
    for name in ("attrs", "typing_extensions"):
        importlib.import_module(name)
    assert "attrs" in colab.loaded()
    assert "typing_extensions" not in colab.loaded(), "one file, which is loaded whole"


def test_another_python_is_one_sentence_with_the_way_out(monkeypatch):
    monkeypatch.setattr(colab.sys, "version_info", (3, 12, 11))
    with pytest.raises(colab.WrongRuntimeError) as error:
        colab.start()
    (line,) = error.value._render_traceback_()
    assert "this runtime has 3.12: choose Runtime > Change runtime type" in line
    assert "2025.07" in line
    assert "run_with_uv" in line


def test_a_failed_notebook_names_the_cell_and_its_line(tmp_path):
    cells = [
        nbformat.v4.new_code_cell("a = 3"),
        nbformat.v4.new_code_cell("if a:\n    assert a < 1"),
    ]
    metadata = {"kernelspec": {"name": "python3", "display_name": "", "language": "python"}}
    nbformat.write(nbformat.v4.new_notebook(cells=cells, metadata=metadata), tmp_path / "a.ipynb")
    papermill = [sys.executable, "-m", "papermill", "--no-progress-bar", "a.ipynb", "b.ipynb"]
    done = subprocess.run(papermill, cwd=tmp_path, capture_output=True, text=True, timeout=120)
    assert colab.reason(done.stderr) == "cell [2], line `assert a < 1`, AssertionError"
    assert colab.reason("a warning\nOSError: no space\n") == "OSError: no space"


def test_drive_keeps_the_runs(tmp_path, monkeypatch):
    stub = tmp_path / "stub" / "google" / "colab"
    stub.mkdir(parents=True)
    (stub / "__init__.py").touch()
    (stub / "drive.py").write_text("def mount(place): print('mounted', place)")
    code = "import sys; sys.path.insert(0, sys.argv[1]); import colab; colab.use_drive()"
    env = {**os.environ, "PYTHONPATH": str(tmp_path / "stub"), "LABKIT_DRIVE": str(tmp_path / "d")}
    for _ in range(2):  # the cell may be run again
        subprocess.run(
            [sys.executable, "-c", code, str(ROOT / "scripts")],
            cwd=tmp_path, env=env, check=True, timeout=60,
        )  # fmt: skip
    (tmp_path / "runs" / "0001").mkdir()
    assert (tmp_path / "d" / "labkit" / "runs" / "0001").is_dir()
    (tmp_path / "runs").unlink()
    (tmp_path / "runs").mkdir()  # as a first start without Drive leaves it
    refused = subprocess.run(
        [sys.executable, "-c", code, str(ROOT / "scripts")],
        cwd=tmp_path, env=env, capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    assert refused.returncode == 1
    assert f"runs/ is not on Google Drive, but {tmp_path / 'runs'}: rename" in refused.stderr


# --- the whole of it, minutes long: pytest -m slow tests/test_colab.py


class Sessions(BaseHTTPRequestHandler):
    """Colab's own service, which says where the open notebook is from."""

    def do_GET(self):
        path = f"fileId=https%3A//github.com/someone/labkit/blob/main/notebooks/{NOTEBOOK.name}"
        self.send_response(200)
        self.end_headers()
        self.wfile.write(json.dumps([{"name": NOTEBOOK.name, "path": path}]).encode())

    def log_message(self, *_):
        pass


@pytest.fixture(scope="module")
def machine(tmp_path_factory):
    """The environment variables of a kernel in the stand-in, and its Python."""
    home = tmp_path_factory.mktemp("colab")
    venv = Path(os.environ.get("COLAB_STAND_IN") or home / "venv")
    if not venv.exists():
        # uv prepares the stand-in, because pip needs minutes. In it, colab.py finds pip alone.
        tools, python = home / "tools", venv / "bin" / "python"
        subprocess.run([sys.executable, "-m", "venv", venv], check=True, timeout=300)
        pip = [python, "-m", "pip", "install", "-q", "--target", tools, "uv"]
        subprocess.run(pip, check=True, timeout=300)
        uv = [tools / "bin" / "uv", "pip", "install", "-q", "--python", python]
        subprocess.run([*uv, *PREINSTALLED.split()], check=True, timeout=1500)
    stub = home / "stub" / "google" / "colab"
    stub.mkdir(parents=True)
    (stub / "__init__.py").touch()
    startup = home / "ipython" / "profile_default" / "startup"
    startup.mkdir(parents=True)
    (startup / "colab.py").write_text(
        f"import google; google.__path__.append({str(stub.parent)!r}); import google.colab, pandas"
    )
    origin = home / "origin"
    subprocess.run(["git", "clone", "-q", "--bare", ROOT, origin], check=True, timeout=60)
    (home / "gitconfig").write_text(f'[url "file://{origin}"]\n\tinsteadOf = {REPO}\n')
    service = HTTPServer(("127.0.0.1", 0), Sessions)
    threading.Thread(target=service.serve_forever, daemon=True).start()
    variables = {k: v for k, v in os.environ.items() if not k.startswith(("JPY", "PYTHON"))}
    variables |= {
        "IPYTHONDIR": str(home / "ipython"),
        "GIT_CONFIG_GLOBAL": str(home / "gitconfig"),
        "COLAB_JUPYTER_IP": "127.0.0.1",
        "KMP_TARGET_PORT": str(service.server_port),
        "COLAB_RELEASE_TAG": "stand-in",
    }
    spec = home / "kernels" / "colab"
    spec.mkdir(parents=True)
    argv = [str(venv / "bin" / "python"), "-m", "ipykernel_launcher", "-f", "{connection_file}"]
    (spec / "kernel.json").write_text(
        json.dumps({"argv": argv, "display_name": "Colab", "language": "python", "env": {}})
    )
    yield home, variables
    service.shutdown()


def begin(home, variables, folder):
    """A fresh kernel of the stand-in in `folder`, as (manager, client)."""
    manager = KernelManager(kernel_name="colab")
    manager.kernel_spec_manager.kernel_dirs.insert(0, str(home / "kernels"))
    manager.start_kernel(cwd=str(folder), env=variables)
    client = manager.client()
    client.start_channels()
    client.wait_for_ready(timeout=120)
    return manager, client


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_a_bare_colab_installs_restarts_and_runs_a_notebook(machine, tmp_path):
    home, variables = machine
    cell = front.CELL.format(origin="")
    manager, client = begin(home, variables, tmp_path)
    client.execute(cell)
    text, deadline = "", time.monotonic() + 1800
    while manager.is_alive() and time.monotonic() < deadline:
        if client.iopub_channel.msg_ready():
            message = client.get_iopub_msg(timeout=1)
            assert message["msg_type"] != "error", message["content"]
            text += message["content"].get("text", "")
        time.sleep(0.05)
    assert not manager.is_alive(), f"no restart: {text}"
    assert re.match(r"Installing labkit and \d+ packages: about", text)
    assert re.search(r"had loaded other versions \(.*\bnumpy\b.*\) and restarts now", text)
    client.stop_channels()

    kernel = manager, client = begin(home, variables, tmp_path)
    assert printed(execute(kernel, cell)) == "labkit is ready, with TensorFlow 2.15.1.\n"
    versions = "import numpy, IPython, labkit; print(numpy.__version__, IPython.__version__)"
    assert printed(execute(kernel, versions)) == "1.26.4 7.34.0\n", "the page's own stays"
    client.stop_channels()
    manager.shutdown_kernel(now=True)

    notebook = nbformat.read(NOTEBOOK, as_version=4)
    manager = KernelManager(kernel_name="colab")
    manager.kernel_spec_manager.kernel_dirs.insert(0, str(home / "kernels"))
    client = NotebookClient(notebook, timeout=600, km=manager)
    client.execute(cwd=str(tmp_path), env=variables)
    assert not (tmp_path / "labkit").exists()


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_the_second_way_needs_only_uv(machine, tmp_path):
    kernel = manager, client = begin(*machine, tmp_path)
    load = f"import sys; sys.path.insert(0, {str(ROOT / 'scripts')!r}); import colab"
    execute(kernel, load)
    client.execute('colab.run_with_uv("01_overlapping_trajectories", measured_items=200)')
    pages, deadline = [], time.monotonic() + 1800
    while time.monotonic() < deadline:
        message = client.get_iopub_msg(timeout=1800)
        assert message["msg_type"] != "error", message["content"]
        pages.append(message["content"].get("data", {}).get("text/html", ""))
        if message["content"].get("execution_state") == "idle" and any(pages):
            break
    assert "What a replay buffer holds" in "".join(pages)
    result = nbformat.read(tmp_path / "01_overlapping_trajectories-run.ipynb", as_version=4)
    assert all(cell.execution_count for cell in result.cells if cell.cell_type == "code")
    client.stop_channels()
    manager.shutdown_kernel(now=True)
