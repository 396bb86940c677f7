"""The notebooks' cell for Colab: what it does elsewhere, and in a stand-in for Colab.

The stand-in has what Colab of Python 3.11 has installed, a stub of `google.colab`, its sessions
service, and a local git repository behind GitHub's address.
"""

import json
import os
import re
import subprocess
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import books
import nbformat
import pytest
from jupyter_client.manager import KernelManager
from nbclient import NotebookClient

sys.path.insert(0, str(books.ROOT / "scripts"))
import colab
import front

# As the list that Google publishes for runtime 2025.07 has them.
PREINSTALLED = """
    numpy==2.0.2 tensorflow==2.18.0 tf_keras==2.18.0 tensorflow-probability==0.25.0 pandas==2.2.2
    matplotlib==3.10.0 scipy==1.15.3 pillow==11.2.1 attrs==25.3.0 protobuf==5.29.5 psutil==5.9.5
    ipykernel==6.17.1 ipython==7.34.0 jupyter-client==6.1.12 tornado==6.4.2 traitlets==5.7.1
    pyzmq==24.0.1 setuptools==75.2.0 wheel==0.45.1 packaging==24.2 requests==2.32.3
"""
REPO = "https://github.com/someone/labkit"
NOTEBOOK = books.NOTEBOOKS["01"]
CELL = front.CELL.format(origin="")


@pytest.mark.parametrize("path", front.notebooks(), ids=lambda path: path.stem)
def test_every_notebook_has_the_cell_and_no_badges(path):
    committed, made = (nbformat.read(path, as_version=4) for _ in range(2))
    front.front(made, "", f"notebooks/{path.name}")
    assert made == committed, "run python scripts/front.py, then execute the notebook again"
    front.front(made, "someone/labkit", f"notebooks/{path.name}")
    assert f"/github/someone/labkit/blob/main/notebooks/{path.name})" in made.cells[0].source


def test_outside_colab_the_cell_does_nothing():
    command = [sys.executable, "-c", f"{CELL}\nprint('google' in sys.modules)"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert (done.stdout, done.stderr) == ("False\n", "")


def test_it_installs_what_labkit_names_but_for_the_page_itself(monkeypatch):
    wanted = colab.wanted()
    assert "ipython" not in wanted
    assert wanted["numpy"] == "numpy==1.26.4"
    assert colab.missing(wanted) == [], "here they all are"
    assert colab.missing({"numpy": "numpy==1.0"}) == ["numpy==1.0"]
    monkeypatch.setattr(colab, "has_gpu", lambda: True)
    assert colab.wanted()["tensorflow"] == "tensorflow[and-cuda]==2.15.1"


def test_another_python_is_one_sentence_with_the_way_out(monkeypatch):
    monkeypatch.setattr(colab.sys, "version_info", (3, 12, 11))
    with pytest.raises(colab.WrongRuntimeError) as error:
        colab.start()
    (line,) = error.value._render_traceback_()
    assert "this runtime has 3.12: choose Runtime > Change runtime type" in line


# --- the whole of it, minutes long, with packages to download


class Sessions(BaseHTTPRequestHandler):
    """Colab's own service, which says where the open notebook is from."""

    def do_GET(self):
        path = f"fileId=https%3A//github.com/someone/labkit/blob/main/notebooks/{NOTEBOOK.name}"
        self.send_response(200)
        self.end_headers()
        self.wfile.write(json.dumps([{"name": NOTEBOOK.name, "path": path}]).encode())

    def log_message(self, *_):
        pass


@pytest.fixture
def machine(tmp_path):
    """The folder and the environment variables of the stand-in's kernels."""
    home = tmp_path
    venv, tools = home / "venv", home / "tools"
    # uv prepares the stand-in, because pip needs minutes. In it, colab.py finds pip alone.
    subprocess.run([sys.executable, "-m", "venv", venv], check=True, timeout=300)
    pip = [venv / "bin" / "python", "-m", "pip", "install", "-q", "--target", tools, "uv"]
    subprocess.run(pip, check=True, timeout=300)
    uv = [tools / "bin" / "uv", "pip", "install", "-q", "--python", venv / "bin" / "python"]
    subprocess.run([*uv, *PREINSTALLED.split()], check=True, timeout=1500)
    stub, startup = home / "stub/google/colab", home / "ipython/profile_default/startup"
    spec = home / "kernels" / "colab"
    for folder in (stub, startup, spec):
        folder.mkdir(parents=True)
    (stub / "__init__.py").touch()
    (startup / "colab.py").write_text(
        f"import google; google.__path__.append({str(stub.parent)!r}); import google.colab, pandas"
    )
    argv = [str(venv / "bin" / "python"), "-m", "ipykernel_launcher", "-f", "{connection_file}"]
    described = {"argv": argv, "display_name": "Colab", "language": "python", "env": {}}
    (spec / "kernel.json").write_text(json.dumps(described))
    subprocess.run(["git", "clone", "-q", "--bare", books.ROOT, home / "origin"], check=True)
    (home / "gitconfig").write_text(f'[url "file://{home / "origin"}"]\n\tinsteadOf = {REPO}\n')
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
    yield home, variables
    service.shutdown()


def kernel_manager(home: Path) -> KernelManager:
    """Starts kernels of the stand-in."""
    manager = KernelManager(kernel_name="colab")
    manager.kernel_spec_manager.kernel_dirs.insert(0, str(home / "kernels"))
    return manager


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_a_bare_colab_installs_restarts_and_runs_a_notebook(machine):
    home, variables = machine
    manager = kernel_manager(home)
    manager.start_kernel(cwd=str(home), env=variables)
    client = manager.client()
    client.start_channels()
    client.wait_for_ready(timeout=120)
    client.execute(CELL)
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

    notebook = nbformat.read(NOTEBOOK, as_version=4)  # in a new kernel, from its first cell
    client = NotebookClient(notebook, timeout=600, km=kernel_manager(home))
    client.execute(cwd=str(home), env=variables)
    assert "labkit is ready, with TensorFlow 2.15.1." in books.text(books.outputs(notebook))
