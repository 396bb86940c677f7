"""The exercises of notebook 01. Each check runs the answer on a small Reverb server."""

import contextlib
import io
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import reverb
import tensorflow as tf

from labkit.parameters import echo
from labkit.replay import reverb_replay
from labkit.runtime import quiet
from labkit.teaching import rate_limiter
from labkit.teaching.exercises import Exercise, WrongAnswer, call, number_of
from labkit.teaching.reverb_inspect import ServerContents, inspect_server

STEP_BYTES = 100
STEP = np.zeros(STEP_BYTES, np.uint8)  # [100] uint8: what a stored step takes is easy to count
APART = 5  # env steps between the two observations of exercise 1
DRAWS = 50  # samples of a table with three items: each is drawn, but for 1 time in 200 million
WAIT = 1.0  # seconds for which a check waits on an answer's table


def plain_table(name: str) -> reverb.Table:
    """A table that takes and gives everything at once."""
    uniform, fifo = reverb.selectors.Uniform(), reverb.selectors.Fifo()
    return reverb.Table(name, uniform, fifo, 1_000, reverb.rate_limiters.MinSize(1))


@contextlib.contextmanager
def serve(table: reverb.Table) -> Iterator[reverb.Client]:
    """A client of a new server with this table; the server stops with the block."""
    server = reverb_replay.start_server([table])
    try:
        yield reverb.Client(f"localhost:{server.port}")
    finally:
        with quiet():
            server.stop()


def draw(client: reverb.Client, table: str, count: int = 1) -> list[Any]:
    """Samples of a table, or a `StalledError` after `WAIT` seconds; prints nothing."""
    with contextlib.redirect_stdout(io.StringIO()):
        return rate_limiter.sample(client, table, count, WAIT, WAIT)


class RecordingClient:
    """A client that remembers the `num_keep_alive_refs` of its last writer."""

    def __init__(self, client: reverb.Client):
        self._client, self.window = client, 0

    def trajectory_writer(self, num_keep_alive_refs: int, **options: Any) -> Any:
        """As the client's own."""
        self.window = num_keep_alive_refs
        return self._client.trajectory_writer(num_keep_alive_refs, **options)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._client, name)


def five_apart(answer: Callable) -> None:
    """01.1: items of the observations at t and t + 5, written with the smallest window."""
    observations = [np.full(STEP_BYTES, t, np.uint8) for t in range(8)]
    expected: list[tuple[int, ...]] = [(t, t + APART) for t in range(len(observations) - APART)]
    with serve(plain_table("pairs")) as client:
        recorder = RecordingClient(client)
        try:
            answer(recorder, observations)
        except ValueError as error:
            if "None data references" not in str(error):
                raise
            raise WrongAnswer(
                f"A window of {recorder.window} no longer holds the first step of the item: "
                f"from t to t + {APART} there are {APART + 1} steps."
            ) from None
        contents = inspect_server(client)
        items = [tuple(step for _, step in item.steps) for item in contents.tables["pairs"].items]
        _compare_pairs(items, expected)
        # Steps are in order of time there, whatever the order in the item; samples show that order.
        samples = draw(client, "pairs", DRAWS)
    _compare_order([sample.data for sample in samples], expected)
    if recorder.window > APART + 1:
        raise WrongAnswer(
            f"The items are right, but a window of {recorder.window} keeps more steps in the "
            f"writer's memory than the {APART + 1} that an item spans."
        )


def _compare_pairs(items: list[tuple[int, ...]], expected: list[tuple[int, ...]]) -> None:
    if not items:
        raise WrongAnswer("The table is empty: no item was created, or the writer was not flushed.")
    first = items[0]
    if len(first) > 2:
        raise WrongAnswer(
            f"Your first item holds the steps {list(first)}: a slice takes all between its ends, "
            "a list of indices takes only the steps that it names."
        )
    if len(first) == 2 and first[1] - first[0] != APART:
        raise WrongAnswer(
            f"The two observations of your first item are {first[1] - first[0]} steps apart: "
            f"{list(first)}. Index -1 is the newest step, so count back from there."
        )
    if items != expected:
        raise WrongAnswer(
            f"Of {expected[-1][1] + 1} observations, the items are {expected}; yours are {items}."
        )


def _compare_order(samples: list[Any], expected: list[tuple[int, ...]]) -> None:
    """Compares the data of items, each one column of two steps or two columns of one step."""
    for given in sorted({_numbers(columns) for columns in samples} - set(expected)):
        if given[::-1] in expected:
            raise WrongAnswer(
                f"Your item begins with the later observation: {list(given)}. A list of indices "
                "gives the steps in the order of the list."
            )
        raise WrongAnswer(
            f"An item holds the observations {list(given)}: append each observation once, as it is."
        )


def _numbers(columns: Any) -> tuple[int, ...]:
    """The numbers of an item's observations, in their order within one column."""
    numbers = [np.ravel(column)[::STEP_BYTES].tolist() for column in tf.nest.flatten(columns)]
    flat = tuple(number for column in numbers for number in column)
    return flat if len(numbers) == 1 else tuple(sorted(flat))  # Reverb orders columns by name


def sharing(answer: Callable) -> None:
    """01.2: bytes of copies over bytes stored, for items of L steps in an episode of T."""
    for steps, length in ((12, 4), (5, 5), (20, 3)):
        measured, items = _measured_sharing(steps, length)
        given = number_of(call(answer, steps, length))
        if np.isclose(given, measured):
            continue
        found = f"T = {steps}, L = {length}: measured {measured:.3g}, yours {given:.3g}. "
        if np.isclose(given, 1 / measured):
            raise WrongAnswer(f"{found}It is inverted: the copies need more memory.")
        if np.isclose(given, length):
            raise WrongAnswer(f"{found}Steps near both ends are in fewer than L items.")
        if np.isclose(given, length * (items - 1) / steps):
            raise WrongAnswer(f"{found}There is one item more: {items} of them, not {items - 1}.")
        raise WrongAnswer(f"{found}There are {items} items of {length} steps, and {steps} steps.")


def _measured_sharing(steps: int, length: int) -> tuple[float, int]:
    with serve(plain_table("items")) as client:
        with client.trajectory_writer(num_keep_alive_refs=length) as writer:
            for step in range(steps):
                writer.append(STEP)
                if step >= length - 1:
                    writer.create_item("items", 1.0, writer.history[-length:])
        contents = inspect_server(client)
    items = list(contents.items())
    return sum(len(item.steps) for item in items) * STEP_BYTES / contents.raw_bytes, len(items)


def exponent(answer: Callable) -> None:
    """01.3: the α with which priority p is drawn a given number of times as often as 1."""
    for priority, ratio in ((4.0, 8.0), (3.0, 1.0), (10.0, 2.0)):
        alpha = number_of(call(answer, priority, ratio))
        if alpha < 0:
            raise WrongAnswer(f"Reverb takes no negative exponent, and yours is {alpha:.3g}.")
        measured = _measured_ratio(alpha, priority)
        if np.isclose(measured, ratio, rtol=1e-3):
            continue
        found = (
            f"With your α = {alpha:.3g} a table draws priority {priority:g} {measured:.3g} times "
            f"as often as priority 1; {ratio:g} times was asked. "
        )
        if np.isclose(alpha, ratio / priority):
            raise WrongAnswer(f"{found}α is an exponent, p^α, and not a factor.")
        if ratio != 1 and np.isclose(alpha * np.log(ratio), np.log(priority)):
            raise WrongAnswer(f"{found}The quotient of the logarithms is inverted.")
        raise WrongAnswer(f"{found}Solve p^α = ratio for α.")


def _measured_ratio(alpha: float, priority: float) -> float:
    prioritized, fifo = reverb.selectors.Prioritized(alpha), reverb.selectors.Fifo()
    table = reverb.Table("two", prioritized, fifo, 10, reverb.rate_limiters.MinSize(1))
    with serve(table) as client:
        client.insert(STEP, {"two": priority})
        client.insert(STEP, {"two": 1.0})
        [sample] = draw(client, "two")
    chance = float(sample.info.probability)
    return chance / (1 - chance) if sample.info.priority == priority else (1 - chance) / chance


def best_four(answer: Callable) -> None:
    """01.4: a table that keeps the four highest priorities and samples uniformly among them."""
    table = call(answer, "best")
    if not isinstance(table, reverb.Table):
        raise WrongAnswer(f"The answer must return a reverb.Table, but it is {echo(table)}.")
    inserted = [5.0, 9.0, 1.0, 8.0, 3.0, 10.0, 2.0, 7.0, 4.0, 6.0]
    with serve(table) as client:
        writer = client.trajectory_writer(num_keep_alive_refs=1)
        for priority in inserted:
            writer.append(STEP)
            writer.create_item(table.name, priority, writer.history[-1:])
            with contextlib.redirect_stdout(io.StringIO()):  # the verdict repeats its notice
                rate_limiter.flush(writer, client, table.name, WAIT, WAIT)
        kept = sorted(item.priority for item in inspect_server(client).tables[table.name].items)
        _compare_kept(kept, inserted)
        samples = draw(client, table.name, 20)
        writer.close()
    if not np.allclose([sample.info.probability for sample in samples], 1 / len(kept)):
        raise WrongAnswer("The items are right, but the sampler does not draw all four equally.")


def _compare_kept(kept: list[float], inserted: list[float]) -> None:
    best = sorted(inserted)[-4:]
    if len(kept) != len(best):
        raise WrongAnswer(f"The table keeps {len(kept)} items, not 4: `max_size` says how many.")
    if kept == sorted(inserted)[:4]:
        raise WrongAnswer(f"It kept the lowest, {kept}: the remover selects the item that goes.")
    if kept == sorted(inserted[-4:]):
        raise WrongAnswer(f"It kept the newest, {kept}: the remover must look at priorities.")
    if kept != best:
        raise WrongAnswer(f"It kept {kept}, and the best four are {best}.")


def insert_order(answer: str, samples_per_insert: int = 8) -> None:
    """01.5: the order of 20 requests under `SampleToInsertRatio(8, 1, 8)`, inserts first."""
    if not isinstance(answer, str) or set(answer) - {"I", "s"} or len(answer) != 20:
        raise WrongAnswer(f"The answer must be 20 letters I or s, but it is {echo(answer)}.")
    limiter = reverb.rate_limiters.SampleToInsertRatio(samples_per_insert, 1, samples_per_insert)
    uniform, fifo = reverb.selectors.Uniform(), reverb.selectors.Fifo()
    table = reverb.Table("eight", uniform, fifo, 100, limiter)
    true = ""
    with serve(table) as client:
        while len(true) < len(answer) and answer.startswith(true):
            insert = table.can_insert(1)
            balance = samples_per_insert * true.count("I") - true.count("s")
            true += "I" if insert else "s"
            if insert:
                client.insert(STEP, {"eight": 1.0})
            else:
                draw(client, "eight")
    if answer == true:
        return
    after = balance + samples_per_insert
    reason = "above the limit of 16, so a sample comes first"
    if insert:
        reason = "which the table allows, and inserts go first"
    raise WrongAnswer(
        f"Request {len(true)} of your answer is wrong: the balance is {balance} there, and an "
        f"insert would raise it to {after}, {reason}."
    )


def freed_bytes(answer: Callable) -> None:
    """01.6: the bytes that deleting the oldest items frees, by the length of a chunk."""
    for items, chunk, deleted in ((10, 1, 9), (10, 10, 9), (10, 5, 9), (10, 3, 4)):
        before, after = _delete(items, chunk, deleted)
        freed = before.raw_bytes - after.raw_bytes
        given = number_of(call(answer, items, chunk, deleted))
        if given == freed:
            continue
        found = (
            f"{items} items, chunks of {chunk}, {deleted} deleted: {freed} bytes were freed, you "
            f"say {given:g}. "
        )
        if given > freed:
            raise WrongAnswer(
                f"{found}A chunk stays whole while one item refers to one step of it."
            )
        raise WrongAnswer(f"{found}A chunk goes when the last item that refers to it goes.")


def _delete(items: int, chunk: int, deleted: int) -> tuple[ServerContents, ServerContents]:
    with serve(plain_table("chunky")) as client:
        with client.trajectory_writer(num_keep_alive_refs=items) as writer:
            writer.configure((), num_keep_alive_refs=items, max_chunk_length=chunk)
            for _ in range(items):
                writer.append(STEP)
                writer.create_item("chunky", 1.0, writer.history[-1:])
        before = inspect_server(client)
        keys = [item.key for item in before.items()]
        client.mutate_priorities("chunky", deletes=keys[:deleted])
        return before, inspect_server(client)


def deliver(answer: Callable) -> None:
    """01.7: an item in a chunk that is not full is sent, and the episode goes on."""
    with serve(plain_table("late")) as client:
        writer = client.trajectory_writer(num_keep_alive_refs=10)
        writer.configure((), num_keep_alive_refs=10, max_chunk_length=10)
        writer.append(STEP)
        writer.create_item("late", 1.0, writer.history[-1:])
        answer(writer)
        end = time.monotonic() + WAIT  # the writer sends a full chunk in another thread
        while not (arrived := client.server_info()["late"].current_size):
            if time.monotonic() > end:
                break
            time.sleep(0.01)
        try:
            writer.append(STEP)
        except Exception:  # Reverb raises another error for each way in which a writer has ended
            raise WrongAnswer("The writer is closed: the next step cannot be appended.") from None
        steps = writer.episode_steps
        writer.close()
    if not arrived:
        raise WrongAnswer(
            "The table is still empty. The chunk holds 1 step of 10, and the writer keeps it until "
            "it is full, however long you wait."
        )
    if steps < 2:
        raise WrongAnswer("The item has arrived, but the episode has ended: its history is empty.")


EXERCISES = {
    "01.1": Exercise(
        five_apart,
        "The server stores only the steps that items name, and the window spans all between them.",
    ),
    "01.2": Exercise(
        sharing, "Overlap makes long items cheap: each step is stored once, whatever refers to it."
    ),
    "01.3": Exercise(
        exponent, "You can choose α from how much more often a surprising item should be drawn."
    ),
    "01.4": Exercise(
        best_four,
        "Sampler and remover are independent: one selects what is read, the other what is removed.",
    ),
    "01.5": Exercise(
        insert_order, "The error buffer is how far the two sides may drift from the ratio."
    ),
    "01.6": Exercise(
        freed_bytes, "Chunks longer than items save CPU, but may keep steps that no item needs."
    ),
    "01.7": Exercise(
        deliver, "The server has nothing before a flush, a full chunk or the end of the episode."
    ),
}
