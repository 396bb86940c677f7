"""Notebook 01: what a Reverb server holds, drawn; film strips; the checks of the exercises."""

import contextlib
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import attrs
import numpy as np
import reverb
import tensorflow as tf
from matplotlib.figure import Figure
from reverb.cc import schema_pb2

from labkit.lessons.exercises import Exercise, WrongAnswer, call, number_of
from labkit.parameters import echo
from labkit.plotting import style
from labkit.replay import server
from labkit.runtime import quiet

Step = tuple[int, int]  # (episode, index in it)
BLUES = ("#f2f2f2", "#cfe3f3", "#9cc9e8", "#5fa8d9")  # for 0, 1, 2, and 3 or more references


@attrs.frozen
class Item:
    """An item, and the steps to which it refers."""

    key: int
    priority: float
    times_sampled: int
    steps: tuple[Step, ...]


@attrs.frozen
class Contents:
    """The items of each table, oldest first, and what is stored for them."""

    items: dict[str, list[Item]]
    steps: list[Step]
    raw_bytes: int  # before compression


def contents(client: reverb.Client) -> Contents:
    """Reads what a server on this machine holds, from a snapshot: sampling would change counts."""
    with quiet():
        folder = Path(client.checkpoint())
    chunks = {c.chunk_key: c for c in _records(folder / "chunks.tfrecord", schema_pb2.ChunkData)}
    rows = _records(folder / "items.tfrecord", schema_pb2.PrioritizedItem)
    rows.sort(key=lambda row: (row.inserted_at.seconds, row.inserted_at.nanos))
    numbers: dict[int, int] = {}  # Reverb's random number of an episode → 0, 1, 2 …
    items: dict[str, list[Item]] = {name: [] for name in client.server_info()}
    stored: set[Step] = set()
    for row in rows:
        steps: set[Step] = set()
        for column in row.flat_trajectory.columns:
            for part in column.chunk_slices:
                held = chunks[part.chunk_key]
                where, length = held.sequence_range, held.data.tensors[0].tensor_shape.dim[0].size
                episode = numbers.setdefault(where.episode_id, len(numbers))
                own = [(episode, where.start + i) for i in range(length)]
                steps.update(own[part.offset : part.offset + part.length])
                stored.update(own)
        item = Item(row.key, row.priority, row.times_sampled, tuple(sorted(steps)))
        items[row.table].append(item)
    size = sum(chunk.data_uncompressed_size for chunk in chunks.values())
    return Contents(items, sorted(stored), size)


def _records(path: Path, kind: Any) -> list[Any]:
    records = tf.data.TFRecordDataset(str(path), "ZLIB").as_numpy_iterator()
    return [kind.FromString(record) for record in records]


def draw(held: Contents, *tables: str) -> Figure:
    """Stored steps as boxes, with the number of items that refer to each; below, the items."""
    bars = [(table, i, item) for table in tables for i, item in enumerate(held.items[table])]
    uses = Counter(step for _, _, item in bars for step in item.steps)
    place = {step: i + step[0] - held.steps[0][0] for i, step in enumerate(held.steps)}
    size = 3.6 + min(0.75, 8 / len(place)) * len(place), 1.0 + 0.36 * len(bars)
    style_of_text: dict[str, Any] = {"ha": "center", "va": "center", "fontsize": 9}
    with style.subplots(*size, grid=False) as (figure, ax):
        for step, x in place.items():
            ax.bar(x, 0.7, 0.9, -0.35, color=BLUES[min(uses[step], 3)], edgecolor="#555555")
            ax.text(x, 0, uses[step], **style_of_text)
        for lane, (_, _, item) in enumerate(bars, start=1):
            ax.bar([place[step] for step in item.steps], 0.6, 1.0, lane - 0.3, color=style.BLUE)
            middle = (place[item.steps[0]] + place[item.steps[-1]]) / 2
            ax.text(middle, lane, f"{item.times_sampled}×", color="white", **style_of_text)
        names = [f"{t}: item {i}, priority {item.priority:g}" for t, i, item in bars]
        ax.set_yticks(range(len(bars) + 1), ["stored steps, with references", *names])
        ax.set_xticks(list(place.values()), [str(index) for _, index in place])
        ax.set(ylim=(len(bars) + 0.5, -0.5), xlabel="step", title=", ".join(tables))
        ax.tick_params(length=0)
        ax.spines[:].set_visible(False)
    return figure


def film(images: np.ndarray, titles: Sequence[str]) -> Figure:
    """Items of images `[item, time, height, width]`, a row for each item with its title."""
    rows, columns = images.shape[:2]
    size = 1.3 * columns + 1.4, 1.3 * rows + 0.3
    with style.subplots(*size, rows, columns, grid=False, squeeze=False) as (figure, grid):
        for (row, column), axes in np.ndenumerate(grid):
            axes.imshow(images[row, column], cmap="Blues", vmin=0, vmax=255)
            axes.set(xticks=[], yticks=[], title=f"image {column}" if row == 0 else "")
            axes.spines[:].set(visible=True, color="#bbbbbb")
            axes.set_ylabel(titles[row] * (column == 0), rotation=0, ha="right", va="center")
    return figure


class Recorder(reverb.Client):
    """A client that remembers the `num_keep_alive_refs` of its last writer."""

    window = 0

    def trajectory_writer(self, num_keep_alive_refs: int, **options: Any) -> Any:
        """As the client's own."""
        self.window = num_keep_alive_refs
        return super().trajectory_writer(num_keep_alive_refs, **options)


@contextlib.contextmanager
def serve(table: reverb.Table) -> Iterator[Recorder]:
    """A client of a new server with this table."""
    local = server.start_server([table])
    try:
        yield Recorder(f"localhost:{local.port}")
    finally:
        with quiet():
            local.stop()


def sharing(answer: Callable) -> None:
    """01.1: bytes of copies over bytes stored, for items of L steps in an episode of T."""
    for steps, length in ((12, 4), (5, 5), (20, 3)):
        given, true = number_of(call(answer, steps, length)), length * (steps - length + 1) / steps
        if not np.isclose(given, true):
            hint = f"There are {steps - length + 1} items of {length} steps."
            if np.isclose(given, 1 / true):
                hint = "It is inverted: the copies need more memory."
            elif np.isclose(given, length):
                hint = "Steps near both ends are in fewer than L items."
            found = f"T = {steps}, L = {length}: {true:.3g}, yours is {given:.3g}."
            raise WrongAnswer(f"{found} {hint}")


def five_apart(answer: Callable) -> None:
    """01.2: items of the observations at t and t + 5, written with the smallest window."""
    fifo, limiter = reverb.selectors.Fifo, reverb.rate_limiters.MinSize(1)
    with serve(reverb.Table("pairs", fifo(), fifo(), 100, limiter)) as client:
        try:
            answer(client, [np.full([4], t, np.float32) for t in range(8)])
        except ValueError as error:
            if "None data references" not in str(error):
                raise
            text = f"A window of {client.window} no longer holds the first step: t to t + 5 are 6."
            raise WrongAnswer(text) from None
        pairs = [[step for _, step in item.steps] for item in contents(client).items["pairs"]]
        with quiet():
            first = next(client.sample("pairs", emit_timesteps=False)).data[0] if pairs else []
    if not pairs:
        raise WrongAnswer("The table is empty: no item was created, or none was flushed.")
    if len(pairs[0]) > 2:
        raise WrongAnswer(f"Your first item holds {pairs[0]}: a slice takes all between its ends.")
    if pairs != [[t, t + 5] for t in range(3)]:
        raise WrongAnswer(f"Of 8 observations, the items are [0, 5], [1, 6], [2, 7]; not {pairs}.")
    if np.ravel(first)[0] != 0:
        raise WrongAnswer("Your item begins with the later observation: order the list of indices.")
    if client.window > 6:
        raise WrongAnswer(f"The items are right, but a window of 6 is enough, not {client.window}.")


def best_four(answer: Callable) -> None:
    """01.3: a table that keeps the four highest priorities and samples uniformly among them."""
    table = call(answer, "best")
    if not isinstance(table, reverb.Table):
        raise WrongAnswer(f"The answer must return a reverb.Table, but it is {echo(table)}.")
    inserted = [5.0, 9.0, 1.0, 8.0, 3.0, 10.0, 2.0, 7.0, 4.0, 6.0]  # priorities
    with serve(table) as client:
        writer = client.trajectory_writer(num_keep_alive_refs=1)
        for priority in inserted:
            writer.append(np.zeros(4, np.float32))
            writer.create_item(table.name, priority, writer.history[-1:])
            writer.flush(timeout_ms=2_000)
        kept = sorted(item.priority for item in contents(client).items[table.name])
    if len(kept) != 4:
        raise WrongAnswer(f"The table keeps {len(kept)} items, not 4: `max_size` says how many.")
    if kept == sorted(inserted)[:4]:
        raise WrongAnswer(f"It kept the lowest, {kept}: the remover selects the item that goes.")
    if kept != sorted(inserted)[-4:]:
        raise WrongAnswer(f"It kept {kept}, not the best four: the remover must use priorities.")
    if not table.info.sampler_options.uniform:
        raise WrongAnswer("The items are right, but the sampler must draw all four equally often.")


def request_order(answer: str) -> None:
    """01.4: the order of 20 requests under `SampleToInsertRatio(8, 1, 8)`, inserts first."""
    if not isinstance(answer, str) or set(answer) - {"I", "s"} or len(answer) != 20:
        raise WrongAnswer(f"The answer must be 20 letters I or s, but it is {echo(answer)}.")
    balance = 0
    for place, letter in enumerate(answer, start=1):
        right = "I" if balance + 8 <= 16 else "s"
        if letter != right:
            why = "goes first" if right == "I" else "is above the limit, 16: a sample goes first"
            found = f"Request {place} is wrong: the balance is {balance} there, and an insert to"
            raise WrongAnswer(f"{found} {balance + 8} {why}.")
        balance += 8 if letter == "I" else -1


EXERCISES = {
    "01.1": Exercise(sharing, "Overlap makes long items cheap: each step is stored once."),
    "01.2": Exercise(five_apart, "An item stores only the steps it names; the window spans all."),
    "01.3": Exercise(best_four, "The remover decides what the table remembers."),
    "01.4": Exercise(request_order, "An actor and a learner at full speed alternate like this."),
}
