"""The first cells of a notebook, executed in this process as papermill and Jupyter do it.

A kernel starts in seconds; one wrong parameter for each notebook is tested in a kernel, too.
"""

from pathlib import Path
from typing import Any

import nbformat


def execute(notebook: Path, last: str, **parameters: Any) -> dict[str, Any]:
    """Executes the code cells up to the one with the id `last`; returns their variables."""
    injected = "# Parameters\n" + "".join(f"{name} = {v!r}\n" for name, v in parameters.items())
    namespace: dict[str, Any] = {"In": [""]}
    for cell in nbformat.read(notebook, as_version=4).cells:
        if cell.cell_type != "code" or cell.id == "colab":
            continue
        tagged = "parameters" in cell.metadata.get("tags", [])
        for source in [cell.source, injected] if tagged else [cell.source]:
            namespace["In"].append(source)
            exec(source, namespace)
        if cell.id == last:
            return namespace
    raise AssertionError(f"no code cell has the id {last}")
