"""Whether a run directory holds a run that a configuration can resume, or one that is finished."""

from pathlib import Path

from labkit.config import FREE_TO_CHANGE, SACConfig
from labkit.parameters import invalid
from labkit.training import checkpoint, metrics
from labkit.training.config_file import read_config


def check_resumable(path: Path, config: SACConfig) -> None:
    """Rejects a directory whose run is damaged, or of another configuration.

    A run can be resumed with more iterations than before, or with fewer if it has not yet taken
    more than these. One that has finished, with however many iterations, needs its checkpoint:
    without it, training would start anew. A start that ended before its first row and its first
    checkpoint leaves nothing to resume: any configuration may follow it.

    Raises:
        ParameterError: names the file that is damaged, or each field that differs.
    """
    theirs = read_config(path)
    if not has_begun(path):
        return
    check_same(path, theirs, config, but=("num_iterations",))
    taken = max(_saved(path), default=None)
    if taken is None or not metrics.is_lost(path):
        metrics.check_columns(path)
    # An interim evaluation with as many episodes looks like a final one. At step 0, both do.
    told_apart = theirs.interim_eval_episodes < theirs.num_eval_episodes
    finished_before = told_apart and _final_steps(path, theirs) - {0}
    if taken is None and (finished_before or is_finished(path, theirs)):
        allowed = "a new directory, or '' for the next number under runs/"
        why = "a finished run is never overwritten, and this one has no checkpoint to open it from"
        raise invalid("run_dir", str(path), f"{allowed}: {why}")
    if taken is not None and taken > config.num_iterations:
        allowed = f"{taken} or more, the gradient steps that {path} has already taken"
        raise invalid("num_iterations", config.num_iterations, allowed)


def has_begun(path: Path) -> bool:
    """Whether a run directory has a row or a checkpoint, or its `metrics.csv` was lost."""
    return bool(_saved(path)) or not metrics.is_empty(path)


def _saved(path: Path) -> list[int]:
    """The gradient steps of its checkpoints, with those that a crash left under another name."""
    folder = path / "checkpoints"
    return [*checkpoint.steps(folder), *checkpoint.interrupted(folder)]


def check_same(path: Path, theirs: SACConfig, ours: SACConfig, but: tuple[str, ...] = ()) -> None:
    """Rejects a run of another configuration; `FREE_TO_CHANGE` and `but` may differ.

    Raises:
        ParameterError: names each field that differs.
    """
    names = [name for name in SACConfig.names() if name not in (*FREE_TO_CHANGE, *but)]
    differing = [
        f"{name} is {getattr(theirs, name)!r} there and {getattr(ours, name)!r} here"
        for name in names
        if getattr(theirs, name) != getattr(ours, name)
    ]
    if differing:
        allowed = f"a new directory or a run of this configuration ({'; '.join(differing)})"
        raise invalid("run_dir", str(path), allowed)


def is_finished(path: Path, config: SACConfig) -> bool:
    """Whether the run in `path` has the final evaluation after `config.num_iterations`."""
    return config.num_iterations in _final_steps(path, config)


def _final_steps(path: Path, config: SACConfig) -> set[int]:
    """The gradient steps of its evaluations with as many episodes as a final one.

    A run that was continued has several. A run whose metrics are lost has none.
    """
    if metrics.is_lost(path):
        return set()
    table = metrics.read(path, repaired=True)
    return set(table.gradient_step[table.eval_returns.map(len) >= config.num_eval_episodes])
