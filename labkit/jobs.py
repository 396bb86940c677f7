"""The runs of a sweep: one a seed, checked before any begins, each with its share of the cores."""

import os
import re
import subprocess
from collections.abc import Sequence
from pathlib import Path

import attrs

from labkit import launch, opening, settings
from labkit.config import ParameterError, SACConfig, refuse


@attrs.define
class Job:
    """One run: its directory, what it was asked for, the process while there is one, its cores."""

    run_dir: Path
    texts: dict[str, str]
    config: SACConfig
    process: subprocess.Popen | None = None
    cores: frozenset[int] = frozenset()
    steps: int = 0

    @property
    def name(self) -> str:
        """Its setting and seed, such as `defaults/seed-3`."""
        return "/".join(self.run_dir.parts[-2:])

    @property
    def log(self) -> Path:
        """What the run's process printed."""
        return self.run_dir.with_name(self.run_dir.name + ".log")

    def finished(self) -> bool:
        """Whether its directory holds the final evaluation."""
        return (self.run_dir / "config.json").exists() and opening.is_finished(
            self.run_dir, self.config
        )


def plan(
    notebook: Path,
    seeds: Sequence[str],
    texts: dict[str, str],
    into: Path,
    setting: str | None = None,
) -> list[Job]:
    """One job a seed, each checked before any begins.

    Args:
        notebook: with the parameters seed and run_dir.
        seeds: one run for each.
        texts: what every run gets, parameter → text, as on the command line.
        into: the folder for `setting/seed-N`.
        setting: the folder's name; None: made of what `texts` asks for beyond the defaults.

    Raises:
        ParameterError: a parameter or a seed is refused, or a directory holds another run.
    """
    if not seeds or len(set(seeds)) < len(seeds):
        raise refuse("seeds", " ".join(seeds), "one or more different seeds, such as '0 1 2'")
    taken = {"seed", "run_dir", "resume"} & set(texts)
    if taken:
        raise ParameterError(f"{min(taken)} is refused as a parameter: a sweep chooses it")
    # num_iterations is not part of it: more of them go on in the same directory.
    names = [name for name in texts if name not in settings.NOT_A_SETTING]
    words = "_".join(f"{name}-{texts[name]}" for name in names) or "defaults"
    setting = setting or re.sub(r"[^\w.+-]+", "_", words)
    jobs = []
    for seed in seeds:
        run_dir = into / setting / f"seed-{seed}"
        wanted = {**texts, "seed": seed}
        _, config = launch.check(notebook, wanted)
        job = Job(run_dir, wanted, config)
        if (run_dir / "config.json").exists() and not job.finished():
            opening.check_resumable(run_dir, config)
        jobs.append(job)
    return jobs


def free_share(workers: int, taken: Sequence[frozenset[int]]) -> frozenset[int]:
    """The cores of one of `workers` runs side by side: a share that the fewest others have.

    Runs that spread over each other's cores wait for one another: the threads of a gradient step
    meet at its end.

    Returns:
        Numbers of cores, as `os.sched_setaffinity` takes them; none where there is no such call.
    """
    if not hasattr(os, "sched_getaffinity"):
        return frozenset()
    cores = sorted(os.sched_getaffinity(0))
    count = min(workers, len(cores))
    shares = [frozenset(cores[number::count]) for number in range(count)]
    return min(shares, key=lambda share: sum(share == other for other in taken))
