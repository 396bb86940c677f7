"""The runs of a million gradient steps, of one seed each, in the pages of results.

They are `results/minitaur/million` and folders beside it whose names begin with `million-`.
"""

# ruff: noqa: E501 (the lines of the page)

from pathlib import Path

import attrs
import numpy as np
import study

from labkit.analysis import compare
from labkit.analysis.robustness import FULL_LENGTH
from labkit.config import SACConfig
from labkit.parameters import grouped

RESULTS = Path(__file__).resolve().parent.parent / "results" / "minitaur"


@attrs.frozen
class LongRun:
    """A finished run; `distance` in metres, `setting` its name in the study.

    `falls` counts the final episodes that terminated, `episodes` all final ones.
    """

    folder: Path
    seed: int
    env_steps: int
    score: float
    distance: float
    falls: int
    episodes: int
    setting: str

    @property
    def parameters(self) -> str:
        """`earlier defaults`, or the setting's name, such as `defaults`."""
        return "earlier defaults" if self.setting in study.EARLIER else self.setting

    @property
    def line(self) -> str:
        """The run in the page of the study."""
        where, steps = f"[its page]({self.folder.name}/README.md)", grouped(self.env_steps)
        fell = (
            f"; the robot fell in {self.falls} of the {self.episodes} episodes"
            if self.falls
            else ""
        )
        return f"- `{self.setting}`, seed {self.seed}: {self.score:+.2f} after {steps} env steps{fell} ({where})"


def finished() -> list[LongRun]:
    """The runs with a final evaluation, those with today's defaults first."""
    folders = [RESULTS / "million", *sorted(RESULTS.glob("million-*"))]
    runs = [scored(folder) for folder in folders if (folder / "metrics.csv").exists()]
    return sorted((run for run in runs if run), key=lambda run: run.setting != "defaults")


def scored(folder: Path) -> LongRun | None:
    """The run in a folder; None without a final evaluation."""
    (run,), _ = compare.find_runs(folder)
    table = compare.scores([run], run.config.num_iterations)
    if table.empty or table.episodes.iloc[0] < run.config.num_eval_episodes:
        return None
    row, steps = table.iloc[0], int(run.metrics.env_step.max())
    lengths = np.array(run.evaluation_at(run.config.num_iterations).eval_lengths)
    falls = int((lengths < FULL_LENGTH).sum())
    return LongRun(
        folder,
        row.seed,
        steps,
        row["return"],
        row.distance,
        falls,
        len(lengths),
        setting_of(run.config),
    )


def setting_of(config: SACConfig) -> str:
    """The defaults of the study, present or earlier, or else the parameters that differ."""
    name = compare.setting_name(config)
    for setting in ("defaults", *study.EARLIER):
        if compare.setting_name(SACConfig.parse(study.SETTINGS[setting])) == name:
            return setting
    return name


def rows() -> list[list[str]]:
    """The first run's row in the table of the project's README; none if there is no run."""
    return [
        [
            f"labkit, {run.parameters}, 1 seed",
            grouped(run.env_steps),
            f"{run.score:+.2f}",
            "",
            f"{run.distance:.1f} m",
        ]
        for run in finished()[:1]
    ]


def section() -> str:
    """Their section in the page of the study; nothing if there is no run."""
    lines = "\n".join(run.line for run in finished())
    return (
        lines
        and f"""## A million gradient steps

Each of these runs is a single one, and not part of the study. Their pages have their curves and a clip:

{lines}"""
    )
