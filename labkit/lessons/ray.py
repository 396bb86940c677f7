"""Notebook 04: its exercises, the figures of processes and of throughput, and a failure."""

import contextlib
import threading
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pandas as pd
import ray
from matplotlib.figure import Figure
from matplotlib.patches import FancyBboxPatch

from labkit.lessons.exercises import Exercise, WrongAnswer, call
from labkit.plotting.style import BLUE, GREEN, GREY, ORANGE, label_axes, subplots
from labkit.training.run import Run

BOXES = {  # name: (x, y, its content)
    "rollout workers": (0.0, 1.0, "environment, actor"),
    "replay": (1.0, 1.0, "the newest transitions"),
    "learner": (2.0, 0.5, "SAC, optimizers"),
    "parameter server": (1.0, 0.0, "the newest weights"),
    "evaluator": (0.0, 0.0, "deterministic episodes"),
}
FLOWS = {  # (from, to): what flows
    ("rollout workers", "replay"): "transitions",
    ("replay", "learner"): "batches",
    **{("parameter server", to): "weights" for to in ("rollout workers", "evaluator")},
    ("learner", "parameter server"): "weights",
}


def processes() -> Figure:
    """The five parts as boxes, and the data between them as arrows."""
    width, height = 0.66, 0.46
    with subplots(9, 3.2) as (figure, axes):
        for name, (x, y, content) in BOXES.items():
            corner, color = (x - width / 2, y - height / 2), ORANGE if name == "learner" else BLUE
            box = corner, width, height, "round,pad=0,rounding_size=0.05"
            axes.add_patch(FancyBboxPatch(*box, edgecolor=color, facecolor=color + "26"))
            axes.text(x, y + 0.07, name, ha="center", va="center", weight="bold")
            axes.text(x, y - 0.09, content, ha="center", va="center", fontsize=8.5)
        for (start, end), what in FLOWS.items():
            (x0, y0, _), (x1, y1, _) = BOXES[start], BOXES[end]
            side, up = np.sign(x1 - x0) * width / 2, np.sign(y1 - y0) * 0.1
            ends = (x1 - side, y1 - up), (x0 + side, y0 + up)
            axes.annotate("", *ends, arrowprops={"arrowstyle": "->"})
            shift, va = (-0.05, "top") if side * up > 0 else (0.02, "bottom")  # no line through it
            place = (x0 + x1) / 2, (y0 + y1) / 2 + shift
            axes.text(*place, f" {what}", ha="left" if up else "center", va=va, fontsize=9)
        axes.set(xlim=(-0.37, 2.37), ylim=(-0.3, 1.3))
        axes.set_ylabel("data between the five parts")  # only in the alt text: the axis is off
        axes.axis("off")
    return figure


def throughput(counts: pd.DataFrame, events: Mapping[str, float], window: float = 2.0) -> Figure:
    """Env steps per second of each worker; `counts` has their env steps, indexed by seconds."""
    with subplots(8, 3.4) as (figure, axes):
        seconds = counts.index.to_numpy(float)
        times = seconds[seconds >= seconds[0] + window]
        looks = [(BLUE, "-"), (GREEN, "-"), ("black", "--")]
        columns = counts.assign(together=counts.sum(axis=1)).fillna(0.0).items()
        for (name, steps), (color, line) in zip(columns, looks, strict=False):
            gained = np.subtract(*(np.interp(t, seconds, steps) for t in (times, times - window)))
            axes.plot(times, gained / window, line, color=color, label=str(name))
        for what, when in events.items():
            axes.axvline(when, color=GREY, linewidth=1, linestyle=":")
            axes.annotate(what, (when, 1.01), xycoords=axes.get_xaxis_transform(), ha="center")
        label_axes(axes, "seconds", f"env steps/s, over {window:g} s")
        figure.legend(loc="outside lower center", ncols=3)
    return figure


@contextlib.contextmanager
def kill_once(run: Run, actor: str) -> Iterator[None]:
    """Kills the Ray actor whose name ends with `actor` as soon as the run has logged losses."""
    over = threading.Event()

    def watch() -> None:
        while not over.wait(0.1):
            if run.metrics().gradient_step.max() > 0 and ray.is_initialized():
                for name in (n for n in ray.util.list_named_actors() if n.endswith(actor)):
                    ray.kill(ray.get_actor(name), no_restart=False)  # Ray restarts it
                    over.set()

    with ThreadPoolExecutor() as pool:
        watching = pool.submit(watch)
        try:
            yield
        finally:
            over.set()
    watching.result()  # raises what went wrong there


class FakeRay:
    """Ray's `wait` and `get` for tasks that end in a known order, and a log of the calls."""

    def __init__(self, *arrivals: str):
        self.arrivals, self.ended, self.waits = list(arrivals), 0, 0
        self.late: list[str] = []  # fetched after later tasks had ended

    def wait(self, references: list, *, num_returns: int = 1, timeout: Any = None) -> tuple:
        """The references whose tasks have ended first, and the others."""
        self.waits += 1
        if self.waits > 20:
            raise WrongAnswer("Your loop still runs: wait for the second list that it returned.")
        if not 0 < num_returns <= len(references):
            raise WrongAnswer("ray.wait raises for an empty list: end the loop before it.")
        ready = [one for one in self.arrivals if one in references][:num_returns]
        self.ended = max(self.ended, self.arrivals.index(ready[-1]) + 1)
        return ready, [one for one in references if one not in ready]

    def get(self, reference: Any) -> Any:
        """The result of one reference, or of a list of them."""
        if isinstance(reference, list):
            return [self.get(one) for one in reference]
        place = self.arrivals.index(reference) + 1
        self.ended = max(self.ended, place)
        self.late += [reference] if self.ended > place else []
        return f"result of {reference}"


def as_they_come(answer: Callable) -> None:
    """04.1: results in the order in which the tasks end."""
    stand_in = FakeRay("fast", "medium", "slow")
    given = list(call(answer, stand_in, ["slow", "fast", "medium"]))  # a generator runs only now
    expected = [f"result of {one}" for one in stand_in.arrivals]
    if sorted(map(str, given)) != sorted(expected):
        raise WrongAnswer(f"There are three results, each once; yours are {given}.")
    if stand_in.late or given != expected:
        raise WrongAnswer("A result that was ready had to wait for a slower one: fetch it first.")


def parameter_server(answer: type) -> None:
    """04.2: a server that keeps a copy of the newest push."""
    server, weights = answer([np.zeros(3)]), [np.full(3, 10.0)]
    server.push(10, weights)
    pulled = call(server.pull)
    if not isinstance(pulled, tuple) or len(pulled) != 2 or pulled[0] != 10:
        raise WrongAnswer(f"After a push of version 10, `pull` must return (10, weights): {pulled}")
    weights[0][:] = 11
    if not np.array_equal(call(server.pull)[1], [np.full(3, 10.0)]):
        raise WrongAnswer("The learner changed its array, and your version 10 changed too: copy.")


def replay(answer: type) -> None:
    """04.3: a ring of rows that is sampled uniformly."""
    table = answer(8, 1)
    table.write(0, np.full((3, 1), 7.0, np.float32))
    drawn = np.asarray(call(table.sample, 200))
    if drawn.shape != (200, 1):
        raise WrongAnswer(f"`sample(200)` must have the shape (200, 1), not {drawn.shape}.")
    if (drawn == 0).any():
        raise WrongAnswer("You draw places that were never written: they hold zeros.")
    table.write(1, np.arange(20.0, 27.0, dtype=np.float32)[:, None])  # passes the end of the ring
    found, expected = set(np.asarray(table.sample(999)).ravel()), {7.0, *range(20, 27)}
    if found != expected:
        have = ", ".join(f"{value:g}" for value in sorted(found))
        raise WrongAnswer(f"Of the rows 7, 7, 7, 20 … 26 the newest 8 must be there, not {have}.")


def merge(answer: Callable) -> None:
    """04.4: a server that adds what each learner changed."""
    start, first, second = np.array([1.0, 1.0]), np.array([0.5, -0.25]), np.array([0.25, -0.5])
    after_one = np.asarray(call(answer, start.copy(), start, start + first), float)
    given = np.asarray(call(answer, after_one, start, start + second), float)
    if np.allclose(given, start + second):
        raise WrongAnswer("The last push wins, and the first learner's step is lost.")
    if not np.allclose(given, start + first + second):
        raise WrongAnswer("Add what the learner changed: pushed − pulled.")


EXERCISES = {
    "04.1": Exercise(as_they_come, "A driver that waits in order learns of a failure last."),
    "04.2": Exercise(parameter_server, "Workers use exactly what the server holds."),
    "04.3": Exercise(replay, "Old and new rows are equally likely, which is what SAC assumes."),
    "04.4": Exercise(merge, "This is how asynchronous SGD keeps every step."),
}
