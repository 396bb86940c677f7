"""Installs labkit in Colab; the first code cell of each notebook calls `start` there.

That cell has cloned the repository with this file. labkit is not installed yet, so this file uses
the standard library only. It works on any Python that Colab may have.
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
# Colab keeps its own versions of these, which serve the page; no notebook needs newer ones.
FRONT_END = {"ipykernel", "ipython", "ipywidgets", "jupyterlab", "papermill"}


class WrongRuntimeError(RuntimeError):
    """Ends the cell, and with it Run All; IPython shows one sentence instead of a traceback."""

    def _render_traceback_(self) -> list[str]:
        return [str(self)]


def wanted() -> dict[str, str]:
    """The direct dependencies as `{name: requirement}`, without `FRONT_END`."""
    text = (REPOSITORY / "pyproject.toml").read_text()
    listed = re.search(r"^dependencies = \[\n(.*?)^\]", text, re.M | re.S)[1]
    requirements = re.findall(r'^ *"(.+)",$', listed, re.M)
    named = {re.match(r"[\w-]+", line)[0]: line for line in requirements}
    if has_gpu():
        named["tensorflow"] = named["tensorflow"].replace("==", "[and-cuda]==")
    return {name: line for name, line in named.items() if name not in FRONT_END}


def has_gpu() -> bool:
    """Whether NVIDIA's driver is installed and lists a device."""
    if not shutil.which("nvidia-smi"):
        return False
    return subprocess.run(["nvidia-smi", "-L"], capture_output=True, timeout=60).stdout != b""


def missing(requirements: dict[str, str]) -> list[str]:
    """The requirements that are not installed in exactly their version."""
    return [line for name, line in requirements.items() if f"=={installed(name)}" not in line]


def installed(name: str) -> str | None:
    """The version of an installed package, or None."""
    try:
        return importlib.metadata.version(name)
    except importlib.metadata.PackageNotFoundError:
        return None


def pip(*arguments: str) -> None:
    """Runs `pip install` without output; on failure prints pip's output.

    Raises:
        WrongRuntimeError: pip failed.
    """
    command = [sys.executable, "-m", "pip", "install", "--quiet", *arguments]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        print(done.stdout[-3000:] + done.stderr[-3000:])
        raise WrongRuntimeError("pip could not install labkit; its last output is above.")


def loaded() -> dict[str, str | None]:
    """`{package: version}` of the packages with several files that this kernel has imported.

    If pip replaces such a package, the kernel would mix its old and new files.
    """
    several = {name for name, module in sys.modules.copy().items() if hasattr(module, "__path__")}
    found = importlib.metadata.packages_distributions()
    return {dist: installed(dist) for name in several for dist in found.get(name, [])}


def install() -> list[str]:
    """Installs what is missing; returns the loaded packages that it replaced."""
    everything = wanted()
    needed = missing(everything)
    if not needed and installed("labkit"):
        return []
    gpu = ", with CUDA for the GPU" if has_gpu() else ""
    print(f"Installing labkit and {len(needed)} packages{gpu}: about two minutes ...", flush=True)
    before, lock = loaded(), str(REPOSITORY / "requirements.lock")
    # gym is a source distribution: the locked setuptools and wheel build it.
    pip("-c", lock, "setuptools", "wheel")
    # The list includes installed packages, because their dependencies may be missing.
    pip("-c", lock, "--no-build-isolation", *everything.values())
    pip("--no-deps", "--no-build-isolation", "-e", str(REPOSITORY))
    return sorted(name for name, version in before.items() if installed(name) != version)


def use_drive() -> None:
    """Links `runs/` to Google Drive, so that runs and checkpoints survive the Colab machine.

    Raises:
        WrongRuntimeError: `runs/` exists and is not there.
    """
    importlib.import_module("google.colab.drive").mount("/content/drive")
    kept = Path(os.environ.get("LABKIT_DRIVE", "/content/drive/MyDrive")) / "labkit" / "runs"
    kept.mkdir(parents=True, exist_ok=True)
    link = Path("runs")
    if not (link.exists() or link.is_symlink()):
        link.symlink_to(kept)
    if link.resolve() != kept.resolve():
        raise WrongRuntimeError(
            f"runs/ is not on Google Drive, but {link.resolve()}: rename it, then run this again"
        )
    print(f"runs/ is {kept}")


def run_with_uv(notebook: str, **parameters: object) -> None:
    """Executes a notebook with a separate Python 3.11, installed by uv, and shows the result.

    Args:
        notebook: its name, such as "03_sac_minitaur".
        parameters: notebook parameters, such as num_iterations=2000.

    Raises:
        WrongRuntimeError: the notebook failed; the message names the cell, its line and the error.
    """
    from IPython.display import HTML, display

    here = Path.cwd() / "labkit-python"
    uv = shutil.which("uv")
    if not uv:
        pip("uv")
        uv = shutil.which("uv") or str(Path(sys.executable).parent / "uv")
    python, lock = here / "bin" / "python", REPOSITORY / "requirements.lock"
    if not (here / "ready").exists():
        print("Installing a separate Python 3.11 with labkit: about two minutes ...", flush=True)
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
    # The other Python must not inherit this kernel's variables, such as its matplotlib backend.
    env = {k: v for k, v in os.environ.items() if not re.match("MPL|PYTHON|JPY|KMP|COLAB", k)}
    env["IPYTHONDIR"] = str(here / "ipython")  # Colab's profile imports google.colab
    env["PATH"] = f"{here / 'bin'}{os.pathsep}{env['PATH']}"
    print(f"Running {notebook}; the result will appear below and in {result} ...", flush=True)
    papermill = [str(python), "-m", "papermill", "--no-progress-bar", str(source), str(result)]
    status = subprocess.run([*papermill, *pairs], env=env, capture_output=True, text=True)
    page = subprocess.run(
        [str(python), "-m", "nbconvert", "--to", "html", "--stdout", str(result)],
        env=env, capture_output=True, text=True, check=True,
    )  # fmt: skip
    display(HTML(page.stdout))
    if status.returncode:
        raise WrongRuntimeError(f"{notebook}: {reason(status.stderr)}")


def reason(output: str) -> str:
    """The last line of papermill's output, with the cell and the line of it that failed, if named.

    An `assert` without a message has nothing but this place.
    """
    last = output.strip().splitlines()[-1].strip().removesuffix(":")
    cell = re.search(r'^Exception encountered at "In (\[\d+\])"', output, re.M)
    line = re.search(r"^-+> +\d+ +(.+)", output, re.M)
    return (f"cell {cell[1]}, " if cell else "") + (f"line `{line[1]}`, " if line else "") + last


def start(drive: bool = False) -> None:
    """Installs labkit; restarts the kernel if it had loaded other versions of a dependency.

    Args:
        drive: whether to keep runs on Google Drive.

    Raises:
        WrongRuntimeError: this is not Python 3.11, or pip failed.
    """
    if sys.version_info[:2] != PYTHON:
        raise WrongRuntimeError(
            "labkit needs Python 3.11, and this runtime has "
            f"{sys.version_info[0]}.{sys.version_info[1]}: choose Runtime > Change runtime type > "
            "Runtime version > 2025.07 and run this cell again; if that version is no longer "
            'there, colab.run_with_uv("NAME OF THE NOTEBOOK", num_iterations=2000) in a new cell '
            "runs a whole notebook with a separate Python 3.11."
        )
    replaced = install()
    if drive:
        use_drive()
    if replaced:
        print(
            f"Installed. This kernel had loaded other versions ({', '.join(replaced)}) and "
            "restarts now. Run the notebook again from the top.",
            flush=True,
        )
        from IPython import get_ipython

        get_ipython().kernel.do_shutdown(True)
        return
    # The kernel started before the installation, so labkit is not on its path yet.
    if str(REPOSITORY) not in sys.path:
        sys.path.insert(0, str(REPOSITORY))
    print(f"labkit is ready, with TensorFlow {installed('tensorflow')}.")
