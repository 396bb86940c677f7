"""What the notebooks' first cell runs in Colab, and nowhere else: it installs labkit.

The cell has cloned the repository that this file lies in. Nothing of labkit is installed yet, so
this file imports the standard library alone, and works on any Python that Colab may have.
"""

import importlib
import importlib.metadata
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

REPOSITORY = Path(__file__).resolve().parent.parent
PYTHON = (3, 11)
# These draw the page itself: Colab's stay. Nothing in a notebook needs a newer one.
FRONT_END = {"ipykernel", "ipython", "jupyterlab", "papermill"}


class WrongRuntimeError(RuntimeError):
    """Ends the cell, and with it Run All, with one sentence in place of a traceback."""

    def _render_traceback_(self):
        return [str(self)]


def wanted():
    """The direct dependencies as `{name: requirement}`, the page's own left out."""
    text = (REPOSITORY / "pyproject.toml").read_text()
    listed = re.search(r"^dependencies = \[\n(.*?)^\]", text, re.M | re.S)[1]
    requirements = re.findall(r'^ *"(.+)",$', listed, re.M)
    named = {re.match(r"[\w-]+", line)[0]: line for line in requirements}
    if has_gpu():
        named["tensorflow"] = named["tensorflow"].replace("==", "[and-cuda]==")
    return {name: line for name, line in named.items() if name not in FRONT_END}


def has_gpu():
    """Whether NVIDIA's driver is here and knows a device."""
    if not shutil.which("nvidia-smi"):
        return False
    return subprocess.run(["nvidia-smi", "-L"], capture_output=True, timeout=60).stdout != b""


def missing(requirements):
    """Those requirements that are not installed in exactly their version."""
    return [line for name, line in requirements.items() if f"=={installed(name)}" not in line]


def installed(name):
    """The version of an installed package, or None."""
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None


def pip(*arguments):
    """Installs quietly; shows what pip said where it fails."""
    command = [sys.executable, "-m", "pip", "install", "--quiet", *arguments]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        print(done.stdout[-3000:] + done.stderr[-3000:])
        raise WrongRuntimeError("labkit could not be installed: pip's last words stand above.")


def loaded():
    """`{package: version}` of what this kernel has imported from packages with several files.

    Such a package, replaced on disk, would mix old and new files from now on.
    """
    several = {name for name, module in sys.modules.copy().items() if hasattr(module, "__path__")}
    found = importlib.metadata.packages_distributions()
    return {dist: installed(dist) for name in several for dist in found.get(name, [])}


def install():
    """Installs what is missing; returns the loaded packages that were replaced meanwhile."""
    everything = wanted()
    needed = missing(everything)
    if not needed and installed("labkit"):
        return []
    gpu = ", with CUDA for the GPU" if has_gpu() else ""
    print(f"Installing labkit and {len(needed)} packages{gpu}: about two minutes ...", flush=True)
    before, lock = loaded(), str(REPOSITORY / "requirements.lock")
    # gym comes as source: it is built with the locked setuptools and wheel.
    pip("-c", lock, "setuptools", "wheel")
    # What is there already is named, too: what it needs in turn may not be there.
    pip("-c", lock, "--no-build-isolation", *everything.values())
    pip("--no-deps", "--no-build-isolation", "-e", str(REPOSITORY))
    return sorted(name for name, version in before.items() if installed(name) != version)


def use_drive():
    """Keeps `runs/` on Google Drive, so that runs and their checkpoints outlive this machine."""
    importlib.import_module("google.colab.drive").mount("/content/drive")
    kept = Path(os.environ.get("LABKIT_DRIVE", "/content/drive/MyDrive")) / "labkit" / "runs"
    kept.mkdir(parents=True, exist_ok=True)
    if not Path("runs").exists():
        Path("runs").symlink_to(kept)
    print(f"runs/ is {kept}")


def run_with_uv(notebook, **parameters):
    """Executes a notebook with a Python 3.11 of its own, which uv brings, and shows the result.

    Args:
        notebook: its name, such as "03_sac_minitaur".
        parameters: those of its parameters that shall differ, such as num_iterations=2000.
    """
    from IPython.display import HTML, display

    here = Path.cwd() / "labkit-python"
    uv = shutil.which("uv")
    if not uv:
        pip("uv")
        uv = shutil.which("uv") or str(Path(sys.executable).parent / "uv")
    python, lock = here / "bin" / "python", REPOSITORY / "requirements.lock"
    if not (here / "ready").exists():
        print(
            "Installing Python 3.11 and labkit beside this one: about two minutes ...", flush=True
        )
        subprocess.run([uv, "venv", "--quiet", "--clear", "--python", "3.11", here], check=True)
        into = [uv, "pip", "install", "--quiet", "--python", str(python)]
        tools = [
            line for line in lock.read_text().split() if re.match("(setuptools|wheel)==", line)
        ]
        subprocess.run([*into, *tools], check=True)
        subprocess.run([*into, "--no-build-isolation", "-r", str(lock)], check=True)
        subprocess.run(
            [*into, "--no-deps", "--no-build-isolation", "-e", str(REPOSITORY)], check=True
        )
        (here / "ready").touch()
    source, result = REPOSITORY / "notebooks" / f"{notebook}.ipynb", Path(f"{notebook}-run.ipynb")
    pairs = [str(part) for pair in parameters.items() for part in ("-p", *pair)]
    # A kernel's variables, its matplotlib backend above all, are not for the other Python.
    env = {k: v for k, v in os.environ.items() if not re.match("MPL|PYTHON|JPY|KMP|COLAB", k)}
    env["IPYTHONDIR"] = str(here / "ipython")  # Colab's own loads google.colab into every kernel
    env["PATH"] = f"{here / 'bin'}{os.pathsep}{env['PATH']}"
    print(f"{notebook} runs; its result will stand below and in {result} ...", flush=True)
    papermill = [str(python), "-m", "papermill", "--no-progress-bar", str(source), str(result)]
    status = subprocess.run([*papermill, *pairs], env=env, capture_output=True, text=True)
    page = subprocess.run(
        [str(python), "-m", "nbconvert", "--to", "html", "--stdout", str(result)],
        env=env, capture_output=True, text=True, check=True,
    )  # fmt: skip
    display(HTML(page.stdout))
    if status.returncode:
        raise WrongRuntimeError(status.stderr.strip().splitlines()[-1])


def start(drive=False):
    """What the cell asks for: everything installed, in a kernel that has loaded nothing else.

    Args:
        drive: keep runs on Google Drive.
    """
    if sys.version_info[:2] != PYTHON:
        raise WrongRuntimeError(
            "labkit needs Python 3.11, and this runtime has "
            f"{sys.version_info[0]}.{sys.version_info[1]}: choose Runtime > Change runtime type > "
            "Runtime version > 2025.07 and run this cell again; if that version is no longer "
            'there, colab.run_with_uv("NAME OF THE NOTEBOOK", num_iterations=2000) in a new cell '
            "runs a whole notebook with a Python of its own."
        )
    replaced = install()
    if drive:
        use_drive()
    if replaced:
        print(
            f"Installed. This kernel had loaded other versions ({', '.join(replaced)}) and "
            "restarts now: run the notebook again from the top.",
            flush=True,
        )
        from IPython import get_ipython

        get_ipython().kernel.do_shutdown(True)
        return
    # Installed after this kernel began, labkit is not on its path yet.
    if str(REPOSITORY) not in sys.path:
        sys.path.insert(0, str(REPOSITORY))
    print(f"labkit is ready, with TensorFlow {installed('tensorflow')}.")
