"""Runs a notebook with several seeds in parallel, then compares the runs: `labkit sweep`.

Each run has its directory, `INTO/SETTING/seed-N`. A second sweep skips finished runs and resumes
the others from their last checkpoints.
"""

import re
from collections.abc import Sequence
from pathlib import Path

from labkit.analysis.runs import NOT_A_SETTING, setting_name
from labkit.cli.run import Execution, check_notebook, run_all
from labkit.parameters import invalid
from labkit.training import run as training

COMPARISON = "05_compare_runs.ipynb"  # next to the notebook of the sweep


def run_sweep(
    path: Path, seeds: Sequence[str], texts: dict[str, str], into: Path, workers: int
) -> int:
    """Runs every seed, `workers` at a time, then executes notebook 05 on all runs in `into`.

    `texts` are parameter → text. Returns the highest exit status, see `run_all`.

    Raises:
        ParameterError: a parameter or a seed is not allowed, or a directory holds another run; no
            run has started.
    """
    if taken := {"seed", "run_dir", "resume"} & set(texts):
        raise invalid("-p", min(taken), "a parameter that the sweep does not set itself")
    executions: dict[Path, Execution] = {}
    for seed in seeds:
        defaults, parameters, config = check_notebook(path, {**texts, "seed": seed})
        if config is None or "run_dir" not in defaults:
            allowed = "a notebook that trains with labkit.start_run, such as 03_sac_minitaur.ipynb"
            raise invalid("notebook", str(path), allowed)
        words = [  # one setting has one name, however its values are spelled
            f"{name}-{parameters[name]}"
            for name in texts
            if name not in NOT_A_SETTING and parameters[name] != defaults.get(name)
        ]
        setting = re.sub(r"[^\w.+-]+", "_", "_".join(words) or "defaults")
        run_dir = into / setting / f"seed-{config.seed}"
        training.check_usable(run_dir, config)
        training.check_free(run_dir)
        parameters["run_dir"] = str(run_dir)
        executions[run_dir] = Execution(path, run_dir, parameters, config)
        shown = {"budget": config.num_iterations, "baseline": setting_name(config)}
    if len(executions) != max(len(seeds), 1):
        raise invalid("--seeds", " ".join(seeds), "one or more different seeds, such as '0 1 2'")
    status = run_all([one for one in executions.values() if not one.finished()], workers)
    comparison = path.with_name(COMPARISON)
    if status or not comparison.is_file():
        return status
    return run_all([Execution(comparison, into, {"runs": str(into.resolve()), **shown})])
