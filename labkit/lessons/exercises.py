"""Exercises that check an answer, and say what is wrong with it: `exercises.check("01.1", mine)`.

`MODULES` names the module with the exercises of each notebook. A check calls the answer on real
data and compares what it did; it raises `WrongAnswer` with a diagnosis, or returns nothing if the
answer is right.
"""

import dis
import importlib
import textwrap
from collections.abc import Callable, Mapping
from itertools import product
from types import FunctionType
from typing import Any

import attrs
import numpy as np

from labkit.parameters import echo, invalid

MODULES = {  # by the number of the notebook
    "01": "labkit.lessons.reverb",
    "02": "labkit.lessons.buffers",
    "03": "labkit.lessons.exercises_sac",
    "04": "labkit.lessons.ray",
    "05": "labkit.lessons.runs",
    "06": "labkit.lessons.playground",
}
EMPTY_BODY = {"RESUME", "NOP", "LOAD_CONST", "RETURN_VALUE"}  # opcodes of `...` or `pass`
NOT_ANSWERED, NOT_YET, RIGHT = "not answered yet", "not yet", "right"
WIDTH = 100  # characters; JupyterLab breaks longer lines in the middle of a word


class WrongAnswer(Exception):
    """What is wrong with an answer, as one or two sentences for the learner."""


@attrs.frozen
class Exercise:
    """One exercise of a notebook."""

    check: Callable[..., None]  # takes the answer, and by name what else it needs of the notebook
    why: str  # a right answer matters, as one sentence


@attrs.frozen
class Verdict:
    """What came out of a check: the status, and the diagnosis or the reason (empty for a stub)."""

    status: str  # one of NOT_ANSWERED, NOT_YET, RIGHT
    text: str = ""


def check(number: str, answer: Any, **material: Any) -> None:
    """Checks an answer and prints the verdict; rejects a number such as "01.9" without exercise.

    The answer is a function or a value; the stub of the notebook counts as not answered. `material`
    is what the exercise needs of the notebook besides.
    """
    verdict = grade(number, answer, **material)
    text = f"Exercise {number}: {verdict.status}{'. ' * bool(verdict.text)}{verdict.text}"
    print(textwrap.fill(text, WIDTH, break_long_words=False, break_on_hyphens=False))


def grade(number: str, answer: Any, **material: Any) -> Verdict:
    """The verdict on an answer; for arguments and errors see `check`."""
    exercise = find(number)
    if is_stub(answer):
        return Verdict(NOT_ANSWERED)
    try:
        exercise.check(answer, **material)
    except WrongAnswer as wrong:
        return Verdict(NOT_YET, str(wrong))
    except Exception as error:  # whatever a learner's code may raise
        lines = str(error).splitlines() or ["without a message"]
        return Verdict(NOT_YET, f"Your answer raised {type(error).__name__}: {lines[0]}")
    return Verdict(RIGHT, exercise.why)


def find(number: str) -> Exercise:
    """The exercise of this number; rejects one that does not exist."""
    module = MODULES.get(str(number)[:2])
    exercises = importlib.import_module(module).EXERCISES if module else {}
    if number not in exercises:
        known = ", ".join(exercises) or f"a number that begins with {' or '.join(MODULES)}"
        raise invalid("number", number, known)
    return exercises[number]


def is_stub(answer: Any) -> bool:
    """Whether an answer is still `...`, None, or a function or a method with an empty body."""
    if isinstance(answer, type):
        return any(is_stub(part) for part in vars(answer).values() if callable(part))
    if not isinstance(answer, FunctionType):
        return answer is None or answer is ...
    code = list(dis.get_instructions(answer))
    # `return 5` has the same opcodes, but another constant.
    loaded = [line.argval for line in code if line.opname == "LOAD_CONST"]
    return {line.opname for line in code} <= EMPTY_BODY and loaded in ([None], [...])


def call(answer: Any, *arguments: Any) -> Any:
    """What an answer returns; a `WrongAnswer` if it is no function, or returns nothing."""
    if not callable(answer):
        raise WrongAnswer(f"The answer must be a function, but it is {echo(answer)}.")
    result = answer(*arguments)
    if result is None:
        raise WrongAnswer("Your function returns nothing: does it lack a `return`?")
    return result


def number_of(value: Any) -> float:
    """The answer as a number; a `WrongAnswer` if it is none."""
    try:
        return float(value)
    except (TypeError, ValueError):
        raise WrongAnswer(f"The answer must be a number, but it is {echo(value)}.") from None


def mistakes(given: Any, result: Callable[..., Any], *choices: Mapping[str, Any]) -> str:
    """The mistakes that explain an answer, a number or an array, joined; empty where none do.

    Each of `choices` has the values of a part of the formula by mistake, "" for the right one;
    `result` computes an answer from one value of each.
    """
    explained: list[list[str]] = []
    for combination in product(*(part.items() for part in choices)):
        if np.allclose(given, result(*(value for _, value in combination)), rtol=1e-3):
            explained.append([mistake for mistake, _ in combination if mistake])
    return " ".join(sorted(explained, key=len)[0]) if explained else ""
