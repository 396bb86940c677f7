"""The exercises of notebook 06: predictions about a disturbed robot, and its disturbances by hand.

No score is written here: what is right follows from the table of tracked episodes that the notebook
passes. Its columns are factor, value, iqm and others, see `robustness.summary`.
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pandas as pd

from labkit.parameters import echo
from labkit.teaching.exercises import Exercise, WrongAnswer, call, number_of

Condition = tuple[str, float]  # a factor's name and value


def _iqm(table: pd.DataFrame, condition: Condition) -> float:
    factor, value = condition
    rows = table[(table.factor == factor) & np.isclose(table.value, value)]
    if rows.empty or not np.isfinite(rows.iqm.iloc[0]):
        raise WrongAnswer(f"The tracked episodes do not show it: none has {factor} = {value:g}.")
    return float(rows.iqm.iloc[0])


def order(answer: Any, table: pd.DataFrame, conditions: Sequence[Condition]) -> None:
    """06.1: three disturbances, first the one that lowers the return least."""
    found = {factor: _iqm(table, (factor, value)) for factor, value in conditions}
    right = sorted(found, key=lambda factor: found[factor], reverse=True)
    if not isinstance(answer, list | tuple) or sorted(map(str, answer)) != sorted(found):
        raise WrongAnswer(
            f"The answer must be a list of {', '.join(map(repr, found))} in your order, but it is "
            f"{echo(answer)}."
        )
    if list(answer) == right:
        return
    scores = ", ".join(f"{factor!r} {found[factor]:+.1f}" for factor in right)
    if list(answer) == right[::-1]:
        raise WrongAnswer(f"That is from most to least. The returns are: {scores}.")
    raise WrongAnswer(f"The returns, from least to most harm, are: {scores}.")


def breaking(answer: Any, table: pd.DataFrame, breaks: float | None) -> None:
    """06.2: the first share of observation noise at which the policy breaks.

    `breaks` is what `robustness.breaking_point` returns.
    """
    if breaks is None:
        raise WrongAnswer("The tracked episodes do not show it: no noise of the grid breaks it.")
    given = number_of(answer)
    if np.isclose(given, breaks):
        return
    rows = table[table.factor == "observation_noise"]
    played = [value for value in rows.value if value]
    scores = ", ".join(f"{row.value:g} {row.iqm:+.1f}" for row in rows.itertuples())
    if np.isclose(given, 100 * breaks):
        raise WrongAnswer("That is in percent: write the share.")
    if not np.isclose(given, played).any():
        listed = ", ".join(f"{value:g}" for value in played)
        raise WrongAnswer(f"The noise that was played is {listed}: choose one of these.")
    side = "already broken with less noise" if given > breaks else "not yet broken there"
    raise WrongAnswer(f"It is {side}: {scores}.")


def delay_line(answer: Callable) -> None:
    """06.3: commands `[T, 2]` that arrive `late` steps later; before the first one, `stand`."""
    rng = np.random.default_rng(0)
    for steps, late in ((6, 2), (5, 0), (3, 5)):
        commands, stand = rng.normal(size=(steps, 2)), np.array([9.0, -9.0])
        true = np.concatenate([np.tile(stand, (late, 1)), commands])[:steps]
        given = np.asarray(call(answer, commands.copy(), late, stand.copy()))
        if given.shape != true.shape:
            why = "" if late else " In Python, `commands[:-0]` is empty."
            raise WrongAnswer(
                f"For {steps} commands and a latency of {late} steps the motors receive {steps} "
                f"commands, shape {true.shape}; yours has shape {given.shape}.{why}"
            )
        if np.allclose(given, true):
            continue
        found = f"With {steps} commands and a latency of {late} steps: "
        if np.allclose(given, np.roll(commands, late, axis=0)):
            raise WrongAnswer(f"{found}the last commands arrive before they were chosen.")
        if np.allclose(given[min(late, steps) :], true[min(late, steps) :]):
            raise WrongAnswer(f"{found}until the first command arrives, the motors have `stand`.")
        if late and np.allclose(given[: steps - late], commands[late:]):
            raise WrongAnswer(f"{found}you move the commands forward in time: they must be late.")
        raise WrongAnswer(f"{found}the command at t must be the one chosen at t − {late}.")


def temper(answer: Callable) -> None:
    """06.4: the action tanh(mean + temperature · std · noise) `[act]`."""
    rng = np.random.default_rng(0)
    mean, std, noise = rng.normal(size=8), rng.uniform(0.2, 0.9, 8), rng.normal(size=8)
    for temperature in (0.0, 1.0, 0.5):
        true = np.tanh(mean + temperature * std * noise)
        given = np.asarray(call(answer, mean.copy(), std.copy(), noise.copy(), temperature))
        if given.shape == true.shape and np.allclose(given, true):
            continue
        found = f"At temperature {temperature:g}: "
        wrong = {
            "an action may leave ±1: the tanh comes last": mean + temperature * std * noise,
            "tanh squashes an action into ±1: clipping gives another action": np.clip(
                mean + temperature * std * noise, -1, 1
            ),
            "the noise is added before the tanh": np.tanh(mean) + temperature * std * noise,
            "the temperature multiplies the noise alone, not the mean": np.tanh(
                temperature * (mean + std * noise)
            ),
            "you forget the temperature": np.tanh(mean + std * noise),
            "you forget the standard deviation of the policy": np.tanh(mean + temperature * noise),
            "`std` is a standard deviation: do not take its root": np.tanh(
                mean + temperature * np.sqrt(std) * noise
            ),
        }
        for diagnosis, values in wrong.items():
            if given.shape == values.shape and np.allclose(given, values):
                raise WrongAnswer(f"{found}{diagnosis}.")
        raise WrongAnswer(
            f"{found}first write the action as sampled in training; then find the one factor that "
            "removes its noise at temperature 0."
        )


def paired_error(answer: Callable) -> None:
    """06.5: the standard error of the mean difference of returns with the same seeds."""
    rng = np.random.default_rng(0)
    for n in (20, 9):
        robot = rng.normal(10, 5, n)  # what both episodes of a seed share
        with_it, without = robot - 2 + rng.normal(0, 1, n), robot + rng.normal(0, 1, n)
        given = number_of(call(answer, with_it.copy(), without.copy()))
        _compare_error(given, with_it, without)


def _compare_error(given: float, with_it: np.ndarray, without: np.ndarray) -> None:
    n, difference = len(with_it), with_it - without
    true = float(np.std(difference, ddof=1) / np.sqrt(n))
    if np.isclose(given, true):
        return
    found = f"For {n} pairs it is {true:.3f}, yours is {given:.3f}. "
    variances = np.var(with_it, ddof=1), np.var(without, ddof=1)
    if np.isclose(given, np.sqrt(sum(variances) / n)):
        raise WrongAnswer(f"{found}You treat the two as independent: take the difference first.")
    if np.isclose(given, true * np.sqrt(n)):
        raise WrongAnswer(f"{found}That is the spread of one difference: divide by the root of n.")
    if np.isclose(given, np.std(difference) / np.sqrt(n)):
        raise WrongAnswer(f"{found}The mean was estimated from the same values: use n − 1.")
    if np.isclose(given, abs(difference.mean())) or np.isclose(given, difference.mean()):
        raise WrongAnswer(f"{found}That is the mean difference, not its error.")
    raise WrongAnswer(f"{found}Begin with one difference for each seed; their mean has the error.")


EXERCISES = {
    "06.1": Exercise(order, "A disturbance that sounds bad may cost little return."),
    "06.2": Exercise(breaking, "A policy uses every sensor as if it were as good as in training."),
    "06.3": Exercise(delay_line, "A latency is a queue of commands that are still on their way."),
    "06.4": Exercise(
        temper, "The temperature leads from the mean action (0) to the policy as trained (1)."
    ),
    "06.5": Exercise(
        paired_error,
        "The variation that both episodes of a pair share cancels in their difference.",
    ),
}
