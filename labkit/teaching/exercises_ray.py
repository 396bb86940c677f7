"""The exercises of notebook 04. No check starts Ray: where Ray is needed, a model stands in for it.

Weights are counter-valued or tiny, so that a diagnosis can name what an answer did with them.
"""

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from labkit.replay.transitions import Layout
from labkit.teaching.exercises import Exercise, WrongAnswer, call, number_of

MOST_WAITS = 100  # an answer that waits more often does not end


class FakeRay:
    """Ray's `wait` and `get` for tasks that end in a known order, and a log of the calls.

    A reference is a name; the task of the k-th name in `arrivals` is the k-th to end.
    """

    def __init__(self, arrivals: Sequence[str]):
        self._arrivals, self._waits = list(arrivals), 0
        self.ended: list[str] = []  # so far
        self.log: list[tuple[str, int]] = []  # reference, and how many tasks had ended at its get

    def wait(
        self,
        references: Sequence[str],
        *positional: Any,
        num_returns: int = 1,
        timeout: float | None = None,
        fetch_local: bool = True,
    ) -> tuple[list[str], list[str]]:
        """As `ray.wait`: the references whose tasks have ended, and the others.

        With a time limit, no task ends before it is over; one ends afterwards.
        """
        if positional:  # Ray's other parameters are keyword-only
            raise WrongAnswer(
                "Ray raises TypeError: wait() takes 1 positional argument but "
                f"{1 + len(positional)} were given. Write num_returns={positional[0]!r}."
            )
        if not isinstance(references, list):
            raise WrongAnswer(
                "Ray raises TypeError: wait() expected a list of references, and yours is a "
                f"{type(references).__name__}."
            )
        references, self._waits = list(references), self._waits + 1
        if self._waits > MOST_WAITS:
            raise WrongAnswer(
                f"After {MOST_WAITS} calls of ray.wait your loop still runs: wait for the second "
                "list that it returned, which no longer has what was ready."
            )
        if num_returns > len(references) or not references:
            raise WrongAnswer("ray.wait raises for an empty list: end the loop before it.")
        while timeout is None and sum(one in self.ended for one in references) < num_returns:
            self._end_next()
        ready = [one for one in self.ended if one in references][:num_returns]
        if len(ready) < num_returns:
            self._end_next()
        return ready, [one for one in references if one not in ready]

    def get(self, references: Any) -> Any:
        """As `ray.get`: waits for one reference, or for a list of them."""
        if not isinstance(references, str):
            return [self.get(one) for one in references]
        while references not in self.ended:
            self._end_next()
        self.log.append((references, len(self.ended)))
        return f"result of {references}"

    def _end_next(self) -> None:
        left = [one for one in self._arrivals if one not in self.ended]
        self.ended.append(left[0])


def as_they_come(answer: Callable) -> None:
    """04.1: results in the order in which the tasks end."""
    asked, arrivals = ["slow", "fast", "medium"], ["fast", "medium", "slow"]
    ray = FakeRay(arrivals)
    given = list(call(answer, ray, list(asked)))  # a generator runs only now
    expected = [ray_result(one) for one in arrivals]
    late = [one for one, ended in ray.log if ended > arrivals.index(one) + 1]
    if given == expected and not late:
        return
    if sorted(given) != sorted(expected):
        raise WrongAnswer(f"There are three results, each once; yours are {given}.")
    if given == [ray_result(one) for one in asked]:
        raise WrongAnswer(
            "Your results are in the order of the list: ray.get waited for the slow task while the "
            "others were ready."
        )
    raise WrongAnswer(
        f"The result of {(late or asked)[0]!r} was fetched only after later tasks had ended: ask "
        "for one result at a time, num_returns=1."
    )


def ray_result(reference: str) -> str:
    """What `FakeRay.get` returns for a reference."""
    return f"result of {reference}"


def keep_newest(answer: Callable) -> None:
    """04.2: a push that copies, and that an older push does not replace."""
    server: dict[str, Any] = {"version": 0, "weights": np.zeros(3)}
    weights = np.full(3, 10.0)

    def holds(version: int, value: float) -> bool:
        same = np.asarray(server["weights"]) == value
        return bool(server["version"] == version and same.all())

    answer(server, 10, weights)
    if not holds(10, 10):
        raise WrongAnswer(
            f"After a push of version 10 the server has version {server['version']} and the "
            f"weights {np.asarray(server['weights']).tolist()}: store both."
        )
    weights[:] = 11
    if not holds(10, 10):
        raise WrongAnswer(
            "Your server keeps the learner's own array: when the learner changed it to 11, the "
            "server's version 10 changed too. Store a copy."
        )
    answer(server, 5, np.full(3, 5.0))
    if not holds(10, 10):
        raise WrongAnswer(
            "Version 5 arrived after version 10 and replaced it. With several learners, or after "
            "a restart, a push may be late: ignore what is older."
        )
    answer(server, 10, np.full(3, 12.0))
    if not holds(10, 10):
        raise WrongAnswer(
            "Another push of version 10 replaced the first one. Two learners may both push a "
            "version 10: the second one is not newer."
        )
    answer(server, 20, np.full(3, 20.0))
    if not holds(20, 20):
        raise WrongAnswer("Version 20 is newer than 10, and your server did not take it.")


def follow(answer: Callable) -> None:
    """04.3: target weights after k soft updates towards constant weights."""
    target, critic, tau = np.array([0.0, 8.0]), np.array([10.0, 10.0]), 0.1
    for steps in (1, 3, 20):
        given = np.asarray(call(answer, target.copy(), critic, tau, steps), float)
        left = (1 - tau) ** steps
        true = critic + left * (target - critic)
        if given.shape != target.shape:
            raise WrongAnswer(f"Return weights of shape {target.shape}, not {given.shape}.")
        if np.allclose(given, true):
            continue
        one = np.flatnonzero(~np.isclose(given, true))[0]
        found = f"From {target[one]:g} towards {critic[one]:g} with τ = 0.1, {steps} updates: "
        found += f"yours is {given[one]:g}. "
        if np.allclose(given, critic):
            raise WrongAnswer(
                f"{found}That is a full copy, as set_weights makes it; a soft update moves a share "
                "τ of the way."
            )
        if np.allclose(given, critic + tau**steps * (target - critic)):
            raise WrongAnswer(f"{found}τ is the share of the new weights, not of the old ones.")
        if np.allclose(given, critic + (1 - tau) * (target - critic)):
            raise WrongAnswer(f"{found}That is one update: each starts from the last one's result.")
        if np.allclose(given, target + tau * steps * (critic - target)):
            raise WrongAnswer(
                f"{found}You move τ of the first distance each time, and after ten updates past "
                "the goal: each update moves τ of the distance that is left."
            )
        if np.allclose(given, critic * (1 - left)):
            raise WrongAnswer(f"{found}A share (1 − τ)ᵏ of the first target is left: add it.")
        raise WrongAnswer(f"{found}It must be {true[one]:g}.")


def no_step_lost(answer: Callable) -> None:
    """04.4: a server that adds what each learner changed."""
    start, first, second = np.array([1.0, 1.0]), np.array([0.5, -0.25]), np.array([0.25, -0.5])
    after_one = np.asarray(call(answer, start.copy(), start, start + first), float)
    given = np.asarray(call(answer, after_one, start, start + second), float)
    if np.allclose(given, start + first + second):
        return
    found = f"Two learners pulled {start.tolist()} and moved by {first.tolist()} and "
    found += f"{second.tolist()}; the server ends at {given.tolist()}. "
    if np.allclose(given, start + second):
        raise WrongAnswer(f"{found}The last push wins, and the first learner's step is lost.")
    if np.allclose(after_one, start + first / 2):
        raise WrongAnswer(f"{found}An average counts each step half, or less.")
    raise WrongAnswer(f"{found}Add what the learner changed: pushed − pulled.")


def lost_rows(answer: Callable) -> None:
    """04.5: env steps of a killed worker that never reach the replay table."""
    for taken, chunk in ((1_234, 50), (1_000, 50), (30, 50)):
        given, true = number_of(call(answer, taken, chunk)), taken % chunk
        if given == true:
            continue
        found = f"Killed after {taken} env steps, chunks of {chunk}: you say {given:g}. "
        if given == chunk:
            raise WrongAnswer(
                f"{found}A whole chunk is the most that can be lost. How many steps were waiting "
                "to be sent?"
            )
        if given == taken:
            raise WrongAnswer(f"{found}What was sent is in the table, which still runs.")
        if given == taken // chunk * chunk:
            raise WrongAnswer(f"{found}That many arrived.")
        raise WrongAnswer(f"{found}Full chunks arrived; the rest, {true}, is lost.")


def workers_fed(answer: Callable) -> None:
    """04.6: how many workers never wait for the learner."""
    for learner, steps, worker in ((150, 4, 200), (200, 1, 400), (100, 32, 200)):
        given, true = number_of(call(answer, learner, steps, worker)), learner * steps / worker
        if np.isclose(given, true):
            continue
        found = f"{learner} gradient steps/s, {steps} env steps for each, workers of {worker} env "
        found += f"steps/s: you say {given:g}. "
        if np.isclose(given, learner / steps / worker):
            raise WrongAnswer(
                f"{found}You divide by `collect_steps`: each gradient step asks for {steps} env "
                "steps, so the learner takes more of them, not fewer."
            )
        if np.isclose(given, 1 / true):
            raise WrongAnswer(f"{found}That is inverted: it is how many learners one worker needs.")
        if np.isclose(given, learner / worker):
            raise WrongAnswer(f"{found}You left out `collect_steps`.")
        if given in (np.floor(true), np.ceil(true)):
            raise WrongAnswer(
                f"{found}Do not round: with half a worker, one worker waits half of the time."
            )
        raise WrongAnswer(f"{found}The learner uses {learner * steps} env steps a second.")


def traffic(answer: Callable) -> None:
    """04.7: bytes out and in, per env step of a worker."""
    for observation, action, weights, pull in ((28, 8, 77_200, 10), (5, 1, 4_600, 1_000)):
        pair = call(answer, observation, action, weights, pull)
        if np.shape(pair) != (2,):
            raise WrongAnswer("Return two numbers: bytes out, bytes in.")
        out, into = map(number_of, pair)
        row, pulled = 4 * Layout(observation, action).width, 4 * weights / pull
        if np.isclose(out, row) and np.isclose(into, pulled):
            continue
        found = f"{observation} observations, {action} actions: you say {out:g} B out. "
        if np.isclose(out, 2 * row):
            raise WrongAnswer(f"{found}A float32 has 4 bytes, not 8.")
        if np.isclose(out, row - 4 * observation):
            raise WrongAnswer(f"{found}A row has the next observation, too.")
        if np.isclose(out, row - 8):
            raise WrongAnswer(f"{found}A row has a reward and a discount, too.")
        if not np.isclose(out, row):
            raise WrongAnswer(f"{found}A row is [obs | action | reward | discount | next obs].")
        found = f"{weights} weights, pulled every {pull} env steps: you say {into:g} B in. "
        if np.isclose(into, 4 * weights):
            raise WrongAnswer(f"{found}That is one pull: it serves {pull} env steps.")
        raise WrongAnswer(f"{found}One pull has 4 bytes for each weight, and serves {pull} steps.")


EXERCISES = {
    "04.1": Exercise(
        as_they_come,
        "A driver that fetches in the order of its list learns of a failed worker last.",
    ),
    "04.2": Exercise(
        keep_newest, "Workers use what the server holds, whichever learner pushed it and when."
    ),
    "04.3": Exercise(
        follow, "A learner that pulls often, and copies each time, has no slow target any more."
    ),
    "04.4": Exercise(
        no_step_lost,
        "This is how asynchronous SGD keeps every step, at the price of stale gradients.",
    ),
    "04.5": Exercise(lost_rows, "A larger chunk loses more env steps when a worker fails."),
    "04.6": Exercise(workers_fed, "More workers than this wait for the rate limiter."),
    "04.7": Exercise(
        traffic, "For a worker that pulls every few steps, the weights are the heavier load."
    ),
}
