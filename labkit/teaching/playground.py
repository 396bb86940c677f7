"""The playground of notebook 06: two settings of a disturbed Minitaur, seen next to each other."""

import contextlib
import html
import tempfile
import time
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any

import attrs
import pandas as pd

from labkit.environments import disturbance
from labkit.environments.disturbance import Disturbance
from labkit.environments.make import step_seconds
from labkit.errors import ParameterError
from labkit.parameters import check_real, from_notebook, real
from labkit.plotting import video
from labkit.plotting.video import Recording
from labkit.teaching import saved_weights

SIZE, FPS = (320, 240), 15  # pixels and frames per second: drawing takes longer than the physics
SIDES = ("a", "b")
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
    """A disturbance of the robot, and how its policy chooses an action.

    Attributes:
        temperature: factor on the policy's own noise; 0 is the mean action, 1 samples as trained.
    """

    temperature: float = real(0.0, 0, 4, "factor on the noise of the policy; 1 is as trained")

    def __str__(self) -> str:
        """What differs from the undisturbed robot: `payload 2 kg; temperature 1`."""
        plain = Setting()
        values = {name: getattr(self, name) for name in SLIDERS}
        changed = [
            text.format(values[name])
            for name, (_, text, *_) in SLIDERS.items()
            if values[name] != getattr(plain, name)
        ]
        return "; ".join(changed) or "undisturbed"


def read_settings(namespace: Mapping[str, Any], others: Collection[str]) -> tuple[Setting, Setting]:
    """Settings A and B from a notebook's parameters: `payload_kg_a`, `payload_kg_b` and so on.

    `others` are the names of the notebook's other parameters.

    Raises:
        ParameterError: a value is not allowed, or a parameter does not exist.
    """
    names = [f"{field}_{side}" for side in SIDES for field in SLIDERS]
    values = from_notebook(namespace, names, others)
    first, second = (_setting(values, side) for side in SIDES)
    return first, second


def _setting(values: Mapping[str, Any], side: str) -> Setting:
    ending = f"_{side}"
    fields = {n.removesuffix(ending): v for n, v in values.items() if n.endswith(ending)}
    try:
        return Setting(**fields)
    except ParameterError as error:  # it names the field, the notebook's parameter is longer
        name, rest = str(error).removeprefix("`").split("`", 1)
        raise ParameterError(f"`{name}{ending}`{rest}") from None


class Playground:
    """Plays and records episodes of one policy; what was played is kept.

    Args:
        folder: a run directory of the Minitaur, or the tracked policy.
        seconds: of the robot, at most ten: then the episode ends.
        seed: of the robot that the environment draws, and of all noise.

    Raises:
        ParameterError: `seconds` is out of range; see also `saved_weights.load_policy`.
    """

    def __init__(self, folder: str | Path, seconds: float = 10.0, seed: int = 0):
        self._actor = saved_weights.load_policy(Path(folder))
        self._seconds = check_real("seconds", seconds, 0, 10, "seconds of the robot", above=True)
        self._seed = seed
        self._videos = tempfile.TemporaryDirectory(prefix="labkit-playground-")
        self._played: dict[Setting, Recording] = {}

    def play(self, setting: Setting) -> Recording:
        """One episode under this setting, recorded; the same setting is not played again."""
        if setting not in self._played:
            with contextlib.closing(disturbance.make(setting)) as env:
                self._played[setting] = video.record_episode(
                    env,
                    self._actor.at(setting.temperature, self._seed),
                    Path(self._videos.name) / f"{len(self._played)}.mp4",
                    seed=self._seed,
                    fps=FPS,
                    width=SIZE[0],
                    height=SIZE[1],
                    max_steps=max(1, round(self._seconds / step_seconds(env))),
                    max_bytes=400_000,
                )
        return self._played[setting]


def results(recordings: Sequence[Recording], settings: Sequence[Setting]) -> pd.DataFrame:
    """One row for each setting: what it changes, the return, and how long the robot stayed up."""
    rows = [
        {"setting": str(setting), "return": round(found.return_, 2), "seconds": found.seconds}
        for setting, found in zip(settings, recordings, strict=True)
    ]
    return pd.DataFrame(rows, index=pd.Index([side.upper() for side in SIDES][: len(rows)]))


class Screen:
    """Videos side by side and a film strip of each, in one place that can be drawn anew."""

    def __init__(self) -> None:
        self._handles: list[Any] = []

    def show(self, recordings: Sequence[Recording], settings: Sequence[Setting]) -> None:
        """Displays two recordings; the second time, in place of the first ones."""
        from IPython import display

        titles = [
            f"{side.upper()}: {setting}, return {found.return_:+.2f} in {found.seconds:.1f} s"
            for side, setting, found in zip(SIDES, settings, recordings, strict=True)
        ]
        parts: list[Any] = [
            display.HTML(video.video_html([one.path for one in recordings], titles))
        ]
        for recording, title in zip(recordings, titles, strict=True):
            strip = video.film_strip(recording, title)
            parts.append(display.Image(strip, format="png", alt=f"Film strip of {title}"))
        self._draw(parts)

    def clear(self, words: str) -> None:
        """Displays words in place of recordings."""
        from IPython import display

        self._draw([display.HTML(f"<p>{html.escape(words)}</p>")] + [display.HTML("")] * 2)

    def _draw(self, parts: Sequence[Any]) -> None:
        from IPython import display

        if self._handles:
            for handle, part in zip(self._handles, parts, strict=True):
                handle.update(part)
            return
        self._handles = [display.DisplayHandle() for _ in parts]
        for handle, part in zip(self._handles, parts, strict=True):
            handle.display(part)


# --- sliders


def sliders(playground: Playground, a: Setting, b: Setting) -> None:
    """Displays sliders for two settings; each slider that is moved plays its setting again.

    Without a front end for widgets, and on GitHub, only one line of text is displayed.
    """
    import ipywidgets
    from IPython import display

    columns = [_column(ipywidgets, side, start) for side, start in zip(SIDES, (a, b), strict=True)]
    status, screen = ipywidgets.Label("Move a slider: its robot is played again."), Screen()
    box = ipywidgets.VBox([ipywidgets.HBox([column for column, _ in columns]), status])
    everything = [slider for _, found in columns for slider in found.values()]

    def play(_change: Any) -> None:
        for slider in everything:
            slider.disabled = True
        status.value, began = "Playing and drawing, some seconds …", time.monotonic()
        try:
            settings = [Setting(**{n: s.value for n, s in found.items()}) for _, found in columns]
            screen.show([playground.play(setting) for setting in settings], settings)
            status.value = f"Ready after {time.monotonic() - began:.0f} s. Move another slider."
        except Exception as error:  # a widget would hide it in the log
            status.value = f"{type(error).__name__}: {error}"
        finally:
            for slider in everything:
                slider.disabled = False

    for slider in everything:
        slider.observe(play, names="value")
    view = {"version_major": 2, "version_minor": 0, "model_id": box.model_id}
    words = "Sliders appear here when this cell is run in JupyterLab or Colab."
    display.display(
        {"application/vnd.jupyter.widget-view+json": view, "text/plain": words}, raw=True
    )
    screen.clear("The robots appear here.")


def _column(ipywidgets: Any, side: str, start: Setting) -> tuple[Any, dict[str, Any]]:
    """The sliders of one setting: the column to display, and each slider by its field."""
    found = {
        name: ipywidgets.FloatSlider(
            value=getattr(start, name),
            min=min(low, getattr(start, name)),
            max=max(high, getattr(start, name)),
            step=step,
            description=label,
            continuous_update=False,  # only where the slider is released
            readout_format=".3f" if step < 0.01 else ".2f",
            style={"description_width": "160px"},
            layout={"width": "420px"},
        )
        for name, (label, _, low, high, step) in SLIDERS.items()
    }
    title = ipywidgets.HTML(f"<b>{side.upper()}</b>")
    return ipywidgets.VBox([title, *found.values()]), found
