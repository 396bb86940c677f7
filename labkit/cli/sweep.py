"""Runs a notebook with several seeds in parallel, then compares the runs: `labkit sweep`.

Each run has its directory, `INTO/SETTING/seed-N`. A second sweep skips finished runs and resumes
the others from their last checkpoints.
"""

import re
import sys
from collections.abc import Sequence
from pathlib import Path

from labkit.analysis.runs import NOT_A_SETTING, setting_name
from labkit.cli.run import Execution, Notebook, run_all
from labkit.errors import storage
from labkit.parameters import check_no_wildcards, invalid
from labkit.training import run as training

COMPARISON = "05_compare_runs.ipynb"  # next to the notebook of the sweep


def plan(
    path: Path, seeds: Sequence[str], texts: dict[str, str], into: Path
) -> dict[Path, Execution]:
    """Run directory → execution of each seed, all checked; `texts` are parameter → text.

    Raises:
        ParameterError: a parameter or a seed is not allowed, or a directory holds another run.
    """
    notebook = Notebook.read(path)
    if not notebook.trains or "run_dir" not in notebook.defaults:
        allowed = "a notebook that trains with labkit.start_run, such as 03_sac_minitaur.ipynb"
        raise invalid("notebook", str(path), allowed)
    if taken := {"seed", "run_dir", "resume"} & set(texts):
        raise invalid("-p", min(taken), "a parameter that the sweep does not set itself")
    check_no_wildcards("--into", into)
    executions: dict[Path, Execution] = {}
    for seed in seeds:
        parameters, config = notebook.check({**texts, "seed": seed})
        assert config is not None  # the notebook trains
        words = [  # one setting has one name, however its values are spelled
            f"{name}-{parameters[name]}"
            for name in texts
            if name not in NOT_A_SETTING and parameters[name] != notebook.defaults.get(name)
        ]
        setting = re.sub(r"[^\w.+-]+", "_", "_".join(words) or "defaults")[:200]
        run_dir = into / setting / f"seed-{config.seed}"
        one = Execution(path, run_dir, {**parameters, "run_dir": str(run_dir)}, config)
        if one.finished():  # it may have lost its checkpoints
            theirs = training.read_config(run_dir)
            training.check_same(run_dir, theirs, config, but=("num_iterations",))
        else:
            training.check_usable(run_dir, config)
            training.check_free(run_dir)
        executions[run_dir] = one
    if len(executions) != max(len(seeds), 1):
        raise invalid("--seeds", " ".join(seeds), "one or more different seeds, such as '0 1 2'")
    return executions


def run_sweep(
    path: Path, seeds: Sequence[str], texts: dict[str, str], into: Path, workers: int
) -> int:
    """Runs every seed, `workers` at a time, then executes notebook 05 on all runs in `into`.

    Returns the highest exit status, see `run_all`.

    Raises:
        ParameterError: see `plan`, or `into` holds the original notebook 05; no run has started.
    """
    executions = plan(path, seeds, texts, into)
    config = next(iter(executions.values())).config
    assert config is not None  # the notebook trains
    shown = {"runs": str(into.resolve()), "budget": config.num_iterations}
    shown["baseline"] = setting_name(config)
    comparison = Execution(path.with_name(COMPARISON), into, shown)
    if comparison.notebook.is_file():
        comparison.check_output("--into")
    with storage(into):
        for run_dir in executions:
            run_dir.mkdir(parents=True, exist_ok=True)
    if status := run_all([one for one in executions.values() if not one.finished()], workers):
        return status
    if not comparison.notebook.is_file():
        print(f"no comparison: there is no {comparison.notebook}", file=sys.stderr)
        return 0
    return run_all([comparison])
