"""Run directories that labkit 0.1 wrote, in tests/data/run_0.1."""

import json
import shutil
from pathlib import Path

import labkit
from labkit.config import with_added

FOLDER = Path(__file__).parent / "data" / "run_0.1"


def copy(kind: str, target: Path, num_iterations: int) -> labkit.SACConfig:
    """Copies a run without deterministic episodes in its collection, which labkit has no more.

    Args:
        kind: `reverb`, `tf_uniform` or `ray`.
        target: the new directory.
        num_iterations: of the configuration that resumes it.
    """
    shutil.copytree(FOLDER / kind, target)
    content = json.loads((target / "config.json").read_text())
    content["config"]["greedy_share"] = 0.0
    (target / "config.json").write_text(json.dumps(content))
    del content["config"]["greedy_share"]
    return labkit.SACConfig.parse(
        {**with_added(content["config"]), "num_iterations": num_iterations}
    )
