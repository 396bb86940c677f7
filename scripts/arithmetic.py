"""Which of two machines' arithmetic a tracked run of the Minitaur was made with.

Networks start from the seed alone, so two runs of one seed act alike before training, up to the
rounding of the CPU, which the physics amplifies. Equal returns before training mean equal
arithmetic. `measure` computes these returns on the machine that it runs on; results/minitaur/
arithmetic.json is such a measurement. A run with the same return is in group B, any other in A.
"""

# ruff: noqa: E501 (the lines of the page)

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from labkit.analysis.compare import TrackedRun
from labkit.config import SACConfig
from labkit.training import provenance

FILE = Path(__file__).resolve().parent.parent / "results" / "minitaur" / "arithmetic.json"
OTHER, MEASURED = "A", "B"  # the groups: all other runs, and those that match the file
PRECISION = 9  # decimals; the two kinds of arithmetic differ in the fifth or sixth
# The seeds of the study, with scaled observations (the default) and as the source document has it.
CASES = (*((seed, True) for seed in range(7)), *((seed, False) for seed in (1, 2, 3)))
Key = tuple[int, bool]  # seed, and whether observations are scaled


def measure() -> dict[str, Any]:
    """The returns of untrained policies on this machine, with its CPU; takes two minutes."""
    measured = provenance.describe()
    measured["returns_before_training"] = [
        {"seed": seed, "scaled": scaled, "return": before_training(seed, scaled)}
        for seed, scaled in CASES
    ]
    return measured


def before_training(seed: int, scaled: bool) -> float:
    """The mean return of the first interim evaluation of a run, before any gradient step."""
    from labkit.sac.evaluation import evaluate
    from labkit.sac.policies import ActorPolicy
    from labkit.training import components

    changes: dict[str, Any] = {} if scaled else {"observation_scale": ()}
    config = SACConfig(seed=seed, replay="tf_uniform", replay_buffer_capacity=300, **changes)
    made = components.build(config)
    episodes, first = config.interim_eval_episodes, components.evaluation_seed(config, False)
    return evaluate(made.eval_env, ActorPolicy(made.agent), episodes, first).mean_return


def key_of(run: TrackedRun) -> Key:
    """What the return before training depends on, besides the arithmetic."""
    return run.config.seed, run.config.observation_scale != ()


def groups(found: Sequence[TrackedRun], file: Path = FILE) -> dict[Path, str]:
    """The group of each run, by its path; a run without an evaluation at step 0 is in A.

    Raises:
        ValueError: runs of one seed that do not match the file differ among themselves, so that
            there are more than two kinds of arithmetic.
    """
    content = json.loads(file.read_text())
    rows = content["returns_before_training"]
    measured = {(row["seed"], row["scaled"]): round(row["return"], PRECISION) for row in rows}
    result, others = {}, dict[Key, float]()
    for run in found:
        start, key = run.evaluation_at(0), key_of(run)
        value = None if start is None else round(float(start.eval_return), PRECISION)
        same = value is not None and value == measured.get(key)
        result[run.path] = MEASURED if same else OTHER
        if value is not None and not same and others.setdefault(key, value) != value:
            raise ValueError(f"{run.path} has a third return before training: {value}")
    return result


def paragraph(found: Sequence[TrackedRun], seed: int = 1, file: Path = FILE) -> str:
    """Explains the groups, with the returns before training of one seed as an example."""
    group, cpu = groups(found, file), json.loads(file.read_text())["cpu"]
    starts = {
        group[run.path]: run.evaluation_at(0).eval_return
        for run in found
        if key_of(run) == (seed, True) and run.evaluation_at(0) is not None
    }
    if len(starts) < 2:
        return ""
    return (
        f"**Two kinds of arithmetic.** Before training, seed {seed} has a return of "
        f"{starts[OTHER]:.6f} in one group of runs (A) and of {starts[MEASURED]:.6f} in another (B), because "
        "two machines round differently. The machine of group A was not recorded. Group B has the arithmetic of "
        f"the machine ({cpu}) on which `python scripts/results.py arithmetic` wrote [arithmetic.json](arithmetic.json). "
        "The commits of these runs were not recorded either, so the groups may differ in more than arithmetic. "
        "Each row is compared with the defaults of the same group only."
    )
