"""A real JupyterLab, driven by a real Chromium: what a reader sees."""

import contextlib
import json
import os
import shutil
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

from playwright.sync_api import Locator, Page, TimeoutError, sync_playwright

from labkit.replay.server import free_port

TOKEN = "browser-test"
NOTEBOOK_PANEL = ".jp-Notebook .jp-WindowedPanel-outer"  # what scrolls
NAMES = ("chromium", "chromium-browser", "google-chrome-stable", "google-chrome")
# The whole notebook is in the page, not only what is scrolled to; nobody is asked about news.
SETTINGS = {
    "notebook-extension/tracker": {"windowingMode": "none"},
    "apputils-extension/notification": {"fetchNews": "false", "checkForUpdates": False},
}


def find_chromium() -> str | None:
    """The path of a Chromium or Chrome on this machine."""
    return next(filter(None, map(shutil.which, NAMES)), None)


@contextlib.contextmanager
def chromium() -> Iterator:
    """A headless browser, which draws WebGL on the CPU."""
    with sync_playwright() as playwright:
        # As root, and in most containers, Chromium's own sandbox cannot be set up.
        arguments = ["--no-sandbox"] if os.getuid() == 0 else []
        arguments += ["--use-gl=angle", "--use-angle=swiftshader", "--enable-unsafe-swiftshader"]
        browser = playwright.chromium.launch(executable_path=find_chromium(), args=arguments)
        yield browser
        browser.close()


@contextlib.contextmanager
def jupyterlab(folder: Path, home: Path) -> Iterator[str]:
    """The address of a JupyterLab in `folder`, whose settings and state live in `home`."""
    for name, values in SETTINGS.items():
        file = home / f"config/lab/user-settings/@jupyterlab/{name}.jupyterlab-settings"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(json.dumps(values))
    folders = {"CONFIG": "config", "DATA": "data", "RUNTIME": "runtime"}
    env = {**os.environ, "IPYTHONDIR": str(home / "ipython")}
    env |= {f"JUPYTER_{name}_DIR": str(home / folder) for name, folder in folders.items()}
    env["PATH"] = f"{Path(sys.executable).parent}{os.pathsep}{env['PATH']}"
    port = free_port()
    options = ["--no-browser", "--allow-root", "--expose-app-in-browser", "--ip=127.0.0.1"]
    options += [f"--port={port}", "--port-retries=0", f"--IdentityProvider.token={TOKEN}"]
    with (home / "log").open("w") as log:
        process = subprocess.Popen(
            [sys.executable, "-m", "jupyterlab", *options], cwd=folder, env=env, stderr=log
        )
        try:
            _wait_for(f"http://127.0.0.1:{port}/api?token={TOKEN}", home / "log")
            yield f"http://127.0.0.1:{port}"
        finally:
            process.terminate()  # its kernels end with it
            process.wait(30)


def _wait_for(address: str, log: Path, seconds: float = 90) -> None:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        with contextlib.suppress(OSError), urllib.request.urlopen(address, timeout=5):
            return
        time.sleep(0.5)
    raise AssertionError(f"no JupyterLab within {seconds} s: {log.read_text()[-2000:]}")


# The page knows the notebook as the file has it, and its kernel answers.
READY = """() => {
    const panel = jupyterapp.shell.currentWidget;
    const kernel = panel?.sessionContext?.session?.kernel;
    return panel?.context?.isReady && panel.sessionContext.isReady
        && kernel?.connectionStatus === 'connected' && kernel.status === 'idle';
}"""


def open_notebook(page: Page, address: str, name: str) -> None:
    """Opens a notebook and waits until its kernel may be asked."""
    # A separate workspace: another would open with the notebooks of the tests before.
    page.goto(f"{address}/lab/workspaces/{Path(name).stem}/tree/{name}?token={TOKEN}")
    page.wait_for_selector(".jp-Notebook .jp-CodeCell", timeout=90_000)
    page.wait_for_function(READY, timeout=90_000)


def run_all(page: Page, seconds: float) -> None:
    """Run, Run All Cells, as a person does it; waits until every cell is done or one failed."""
    page.get_by_role("menuitem", name="Run", exact=True).click()
    page.get_by_text("Run All Cells", exact=True).click()
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if failures(page) or not waiting(page):
            return
        time.sleep(0.5)
    raise TimeoutError(f"not idle after {seconds} s; waiting: {waiting(page)}")


def waiting(page: Page) -> list[str]:
    """The code cells that have not finished: the beginning of each, from the notebook's model."""
    return page.evaluate(
        """() => [...jupyterapp.shell.currentWidget.content.model.cells]
            .filter(cell => cell.type === 'code' && cell.sharedModel.getSource().trim()
                && cell.executionCount === null)
            .map(cell => cell.sharedModel.getSource().slice(0, 60))"""
    )


def save(page: Page) -> None:
    """Writes the notebook to its file."""
    page.evaluate("() => jupyterapp.commands.execute('docmanager:save')")
    page.wait_for_function("() => !jupyterapp.shell.currentWidget.context.model.dirty")


def type_over(cell: Locator, code: str) -> None:
    """Replaces the code of a cell, in its editor."""
    cell.locator(".cm-content").click()
    cell.page.keyboard.press("Control+A")
    cell.page.keyboard.insert_text(code)


# Pictures among the outputs, in the notebook's model.
IMAGES = """
[...jupyterapp.shell.currentWidget.content.model.cells]
    .filter(cell => cell.type === 'code')
    .flatMap(cell => cell.outputs.toJSON())
    .filter(output => output.data && Object.keys(output.data).some(kind => /^image/.test(kind)))
    .length
"""


def wait_for_pictures(page: Page) -> int:
    """Waits until every picture among the outputs stands in the page; returns how many."""
    shown = "document.querySelectorAll('.jp-Notebook .jp-OutputArea-output img').length"
    page.wait_for_function(f"() => {shown} >= {IMAGES}")
    return page.evaluate(f"() => {IMAGES}")


def failures(page: Page) -> list[str]:
    """The text of every error and of everything on stderr."""
    kinds = ("application/vnd.jupyter.error", "application/vnd.jupyter.stderr")
    query = ", ".join(f'.jp-Notebook [data-mime-type="{kind}"]' for kind in kinds)
    return page.eval_on_selector_all(query, "found => found.map(output => output.innerText)")


def change_theme(page: Page, theme: str) -> None:
    """Changes JupyterLab's theme, and waits until it is loaded."""
    page.evaluate("theme => jupyterapp.commands.execute('apputils:change-theme', {theme})", theme)
    page.wait_for_function("theme => document.body.dataset.jpThemeName === theme", arg=theme)
    page.wait_for_timeout(1500)


def photograph(
    page: Page, folder: Path, name: str, height: int = 2400, most: int | None = None
) -> list[Path]:
    """Screenshots of the notebook from top to bottom, a screen each: all, or the first `most`."""
    page.set_viewport_size({"width": page.viewport_size["width"], "height": height})
    shown = f"document.querySelector('{NOTEBOOK_PANEL}').scrollHeight"
    page.wait_for_function(f"() => {shown} > innerHeight")  # 0 while style sheets load
    total = page.eval_on_selector(NOTEBOOK_PANEL, "panel => panel.scrollHeight")
    step, files = height - 150, []
    for number, top in enumerate(range(0, total, step)[:most]):
        page.eval_on_selector(NOTEBOOK_PANEL, f"panel => panel.scrollTop = {top}")
        page.wait_for_timeout(150)
        files.append(folder / f"{name}-{number:02}.png")
        page.screenshot(path=files[-1])
    return files
