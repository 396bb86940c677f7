"""Notebook 06: two disturbed Minitaurs side by side, sliders, a figure of doses, its exercises."""

import contextlib
import tempfile
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

import attrs
import ipywidgets
import numpy as np
import pandas as pd
from IPython import display
from matplotlib.figure import Figure

from labkit.environments import disturbance
from labkit.environments.disturbance import Disturbance
from labkit.environments.make import MINITAUR, step_seconds
from labkit.errors import ParameterError
from labkit.lessons.exercises import Exercise, WrongAnswer, call
from labkit.parameters import check_real, echo, from_notebook, invalid, real
from labkit.plotting import style, video
from labkit.plotting.video import Recording
from labkit.sac.rollout import load_actor
from labkit.training.records import read_config

EPISODES = Path(__file__).parents[2] / "results" / "minitaur" / "robustness" / "episodes.csv"
SLIDERS = {  # field: (label, a value as text, lowest, highest, step)
    "payload_kg": ("payload, kg", "payload {:g} kg", 0.0, 8.0, 0.5),
    "foot_friction": ("foot friction, factor", "foot friction {:g}", 0.1, 2.0, 0.05),
    "motor_strength": ("motor strength, factor", "motor strength {:g}", 0.2, 1.5, 0.05),
    "observation_noise": ("observation noise, share", "observation noise {:g}", 0.0, 0.5, 0.01),
    "control_latency_seconds": ("control latency, s", "control latency {:g} s", 0.0, 0.06, 0.002),
    "temperature": ("temperature", "temperature {:g}", 0.0, 2.0, 0.1),
}


@attrs.frozen
class Setting(Disturbance):
    """A disturbance of the robot, and the factor on the noise with which its policy acts."""

    temperature: float = real(0.0, 0, 4, "factor on the noise of the policy; 1 is as trained")

    def __str__(self) -> str:
        """What differs from the undisturbed robot: `payload 2 kg; temperature 1`."""
        given, plain = attrs.asdict(self), attrs.asdict(Setting())
        texts = {name: text for name, (_, text, *_) in SLIDERS.items()}
        changed = [text.format(given[n]) for n, text in texts.items() if given[n] != plain[n]]
        return "; ".join(changed) or "undisturbed"


def read_settings(namespace: Mapping[str, Any], others: Collection[str]) -> list[Setting]:
    """Settings A and B from a notebook's parameters: `payload_kg_a`, `payload_kg_b` and so on.

    Raises:
        ParameterError: a value is not allowed, or a parameter does not exist; `others` do.
    """
    values = from_notebook(namespace, [f"{field}_{s}" for s in "ab" for field in SLIDERS], others)
    settings = []
    for side in "ab":
        try:
            settings.append(Setting(**{f: values[f"{f}_{side}"] for f in SLIDERS}))
        except ParameterError as error:  # it names the field, the notebook's parameter is longer
            name, rest = str(error).removeprefix("`").split("`", 1)
            raise ParameterError(f"`{name}_{side}`{rest}") from None
    return settings


class Playground:
    """Records up to ten `seconds` of a run's policy; `seed` fixes the drawn robot and the noise.

    Raises:
        ParameterError: `seconds` is out of range, or the folder has no policy of the Minitaur.
    """

    def __init__(self, folder: str | Path, seconds: float = 10.0, seed: int = 0):
        config = read_config(Path(folder))
        if config.env_name != MINITAUR:
            raise invalid("policy", str(folder), f"a run of {MINITAUR}, not of {config.env_name}")
        self._actor = load_actor(Path(folder) / "policy", config.observation_scale)
        self._seconds = check_real("seconds", seconds, 0, 10, "seconds of the robot", above=True)
        self._seed, self._played = seed, dict[Setting, Recording]()
        self._videos = tempfile.TemporaryDirectory(prefix="labkit-playground-")

    def play(self, setting: Setting) -> Recording:
        """One episode under this setting, recorded; the same setting is not played again."""
        if setting not in self._played:
            file = Path(self._videos.name) / f"{len(self._played)}.mp4"
            # Drawing takes longer than the physics: few and small pictures.
            look: dict[str, Any] = {"fps": 15, "width": 320, "height": 240, "max_bytes": 400_000}
            with contextlib.closing(disturbance.make(setting)) as env:
                look["max_steps"] = max(1, round(self._seconds / step_seconds(env)))
                actor = self._actor.at(setting.temperature, self._seed)
                recording = video.record_episode(env, actor, file, seed=self._seed, **look)
            self._played[setting] = recording
        return self._played[setting]

    def show(self, settings: Sequence[Setting]) -> None:
        """Displays the videos of settings A and B side by side, and a film strip of each."""
        titles = [f"{side}: {setting}" for side, setting in zip("AB", settings, strict=True)]
        video.side_by_side(*map(self.play, settings), titles=titles)

    def sliders(self, a: Setting, b: Setting) -> None:
        """Displays sliders; one that is moved plays its setting again. On GitHub it is a text."""
        columns = [_column("A", a), _column("B", b)]
        status, screen = ipywidgets.Label("Move a slider to play its robot."), ipywidgets.Output()

        def play(_change: Any) -> None:
            status.value = "Playing and drawing, some seconds …"
            with screen:  # an error appears here, too
                settings = [Setting(**{n: s.value for n, s in c.items()}) for c in columns]
                recordings = [self.play(setting) for setting in settings]
                screen.clear_output(wait=True)
                self.show(settings)
                status.value = f"Returns: {', '.join(f'{r.return_:.1f}' for r in recordings)}."

        boxes = [ipywidgets.VBox(list(column.values())) for column in columns]
        for slider in (*boxes[0].children, *boxes[1].children):
            slider.observe(play, names="value")
        box = ipywidgets.VBox([ipywidgets.HBox(boxes), status, screen])
        words = "Sliders appear here when this cell is run in JupyterLab or Colab."
        display.display({**box._repr_mimebundle_(), "text/plain": words}, raw=True)


def _column(side: str, start: Setting) -> dict[str, Any]:
    return {
        name: ipywidgets.FloatSlider(
            value=(value := getattr(start, name)),
            min=min(low, value),
            max=max(high, value),
            step=step,
            description=f"{side}: {label}",
            continuous_update=False,  # only where the slider is released
            readout_format=".3f" if step < 0.01 else ".2f",
            style={"description_width": "190px"},
            layout={"width": "412px"},
        )
        for name, (label, _, low, high, step) in SLIDERS.items()
    }


def card(champion: pd.DataFrame, other: pd.DataFrame) -> Figure:
    """Draws the episodes of two policies under each disturbance, and their mean returns."""
    # What the environment draws: 20 % of the base's 3 kg, a friction of 0.8 to 1.5.
    covered = {"payload_kg": (0, 0.6), "foot_friction": (0.8 / 1.15, 1.5 / 1.15)}
    first = (champion, style.BLUE, "o", "the champion")
    looks = [first, (other, style.ORANGE, "s", "the earlier policy")]
    with style.subplots(10, 5.6, 2, 3, sharey=True) as (figure, grid):
        for axes, (name, (label, *_)) in zip(grid.flat, SLIDERS.items(), strict=True):
            if name in covered:
                axes.axvspan(*covered[name], color="#e4e4e4", label="drawn in training")
            neutral = float(getattr(Setting(), name))
            for played, color, marker, what in looks:
                rows = played[played.factor.isin([name, "undisturbed"])]
                values = rows.value.where(rows.factor == name, neutral)
                axes.scatter(values, rows["return"], 16, color=color, alpha=0.5, linewidths=0)
                means = rows["return"].groupby(values).mean()
                axes.plot(means.index, means, marker=marker, ms=5, color=color, label=what)
            axes.set(xlabel=label, ylabel="return of an episode" if axes in grid[:, 0] else "")
        figure.legend(*grid.flat[0].get_legend_handles_labels(), loc="outside lower left", ncols=3)
    return figure


def first_to_break(answer: Any, means: pd.Series) -> None:
    """06.1: the dose with the lowest mean return; `means` is indexed by dose."""
    if answer not in means.index:
        known = ", ".join(map(repr, means.index))
        raise WrongAnswer(f"Write one of {known}; yours is {echo(answer)}.")
    worst = str(means.idxmin())
    if answer != worst:
        place = int((means < means[answer]).sum()) + 1
        hint = "It is a dose that a picture of the robot does not show. " if place > 2 else ""
        found = f"{answer!r} leaves a mean return of {means[answer]:.1f}, and another dose leaves"
        raise WrongAnswer(f"{found} {means[worst]:.1f}. {hint}Try the other sliders.")


def delay_line(answer: Callable) -> None:
    """06.2: commands `[T, 2]` that arrive `late` steps later; before the first one, `stand`."""
    for steps, late in ((6, 2), (5, 0), (3, 5)):
        commands, stand = np.random.default_rng(0).normal(size=(steps, 2)), np.array([9.0, -9.0])
        true = np.concatenate([np.tile(stand, (late, 1)), commands])[:steps]
        given = np.asarray(call(answer, commands.copy(), late, stand.copy()))
        found = f"With {steps} commands and a latency of {late} steps: "
        if given.shape != true.shape:
            why = "" if late else " In Python, `commands[:-0]` is empty."
            raise WrongAnswer(f"{found}the shape must be {true.shape}, not {given.shape}.{why}")
        if np.allclose(given, np.roll(commands, late, axis=0)) and late:
            raise WrongAnswer(f"{found}the last commands arrive before they were chosen.")
        if not np.allclose(given, true):
            right = f"the command at t must be the one chosen at t − {late}, or `stand` before it."
            raise WrongAnswer(f"{found}{right}")


def surprises(answer: Any, champion: pd.Series, other: pd.Series) -> None:
    """06.3: the doses under which the other policy has the higher mean return."""
    right = set(other.index[other > champion])
    if not isinstance(answer, list | tuple | set) or not set(answer) <= set(other.index):
        raise WrongAnswer(f"Write a list of names out of {', '.join(map(repr, other.index))}.")
    if right and not answer:
        raise WrongAnswer("The higher score without a disturbance does not carry over to all.")
    missed, wrong = len(right - set(answer)), len(set(answer) - right)
    if missed or wrong:
        raise WrongAnswer(f"You miss {missed} and name {wrong} too many. See the figure below.")


EXERCISES = {
    "06.1": Exercise(first_to_break, "Harm that cannot be seen may do more than a heavy load."),
    "06.2": Exercise(delay_line, "A latency is a queue of commands that are still on their way."),
    "06.3": Exercise(surprises, "A score says how well a policy does where it was trained."),
}
