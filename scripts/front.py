"""Writes the beginning of every notebook: badges, the Colab cell, and Colab's runtime version.

    python scripts/front.py                    # as committed, without badges
    python scripts/front.py --repo owner/name  # `make badges REPO=owner/name`

With a repository, each notebook and README.md get badges that open it in Colab and Codespaces.
Without one they get none, because the badges would have no target.
"""

import argparse
import re
from pathlib import Path

import nbformat

ROOT = Path(__file__).resolve().parent.parent
RUNTIME = "2025.07"  # Colab's last version with Python 3.11
CELL_ID = "colab"
FOLDED = {"cellView": "form", "jupyter": {"source_hidden": True}}  # in Colab, in JupyterLab
BEGIN, END = "<!-- badges -->", "<!-- /badges -->"
CELL = """\
# In Colab: installs labkit from where this notebook was opened. Elsewhere: does nothing.
import sys

drive = False  # True keeps runs and their checkpoints on Google Drive
origin = "{origin}"  # labkit's Git URL; empty takes the repository of this notebook
if "google.colab" in sys.modules:
    from urllib.parse import unquote

    shell = get_ipython()
    told = shell.getoutput("curl -sm 9 $COLAB_JUPYTER_IP:$KMP_TARGET_PORT/api/sessions").n
    origin = origin or unquote(told).partition("fileId=")[2].partition("/blob/")[0]
    assert origin.startswith("https://"), "set origin to labkit's Git URL"
    shell.system(f"[ -d labkit-source ] || git clone -q --depth=1 {{origin}} labkit-source")
    sys.path.insert(0, "labkit-source/scripts")
    import colab

    colab.start(drive)"""


def badges(repo: str, path: str) -> str:
    """Markdown for the two badges of a notebook: Colab opens it, Codespaces the repository.

    Args:
        repo: owner/name on GitHub.
        path: the notebook, relative to the root of the repository.
    """
    colab = f"https://colab.research.google.com/github/{repo}/blob/main/{path}"
    codespaces = f"https://codespaces.new/{repo}"
    return (
        f"[![Open in Colab](https://colab.research.google.com/assets/colab-badge.svg)]({colab}) "
        f"[![Open in Codespaces](https://github.com/codespaces/badge.svg)]({codespaces})"
    )


def front(notebook: nbformat.NotebookNode, repo: str, path: str) -> None:
    """Writes badges, Colab cell and runtime version into a notebook, replacing existing ones."""
    first, cells = notebook.cells[0], notebook.cells
    text = re.sub(rf"\n\n{BEGIN}.*?{END}", "", first.source, flags=re.S)
    if repo:
        title, rest = text.split("\n", 1)
        text = f"{title}\n\n{BEGIN}\n{badges(repo, path)}\n{END}\n{rest}"
    first.source = text
    source = CELL.format(origin=f"https://github.com/{repo}" if repo else "")
    if cells[1].get("id") != CELL_ID:
        cells.insert(1, nbformat.v4.new_code_cell(id=CELL_ID))
    cells[1].source = source
    cells[1].metadata.update(FOLDED)
    notebook.metadata["colab"] = {"runtime_attributes": {"runtime_version": RUNTIME}}


def notebooks() -> list[Path]:
    """The course's notebooks in order."""
    return sorted((ROOT / "notebooks").glob("[0-9]*.ipynb"))


def readme(text: str, repo: str) -> str:
    """Returns README.md with the notebooks' badges between its two marks."""
    lines = [f"{path.stem[:2]} {badges(repo, f'notebooks/{path.name}')}" for path in notebooks()]
    body = "\n".join(["", *(lines if repo else []), ""])
    return re.sub(rf"{BEGIN}.*?{END}", f"{BEGIN}{body}{END}", text, flags=re.S)


def main() -> None:
    """Rewrites the notebooks and README.md where they differ."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--repo", default="", help="owner/name on GitHub")
    repo = parser.parse_args().repo
    if repo and not re.fullmatch(r"[\w.-]+/[\w.-]+", repo):
        parser.error(f"--repo must be owner/name, got {repo!r}")
    for path in notebooks():
        notebook = nbformat.read(path, as_version=4)
        front(notebook, repo, f"notebooks/{path.name}")
        nbformat.write(notebook, path)
    file = ROOT / "README.md"
    file.write_text(readme(file.read_text(), repo))


if __name__ == "__main__":
    main()
