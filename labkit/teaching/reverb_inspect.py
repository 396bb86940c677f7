"""The contents of a Reverb server as plain data: tables, their items, and the stored chunks.

Reverb has no call that lists a table, and sampling changes its counters. A snapshot (checkpoint)
lists everything and changes nothing: `inspect_server` takes one and reads it.
"""

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import attrs
import reverb
import tensorflow as tf
from reverb.cc import schema_pb2
from reverb.cc.checkpointing import checkpoint_pb2
from tensorflow.python.saved_model import nested_structure_coder

from labkit.runtime import quiet

Step = tuple[int, int]  # (episode, index in it); episodes numbered from 0, oldest item first


@attrs.frozen
class Chunk:
    """Consecutive steps of one column, stored once, however many items refer to them."""

    key: int
    steps: tuple[Step, ...]
    raw_bytes: int  # before compression
    stored_bytes: int  # as the server holds it


@attrs.frozen
class Item:
    """An item of a table: references to the steps of each column, by the column's name."""

    key: int
    priority: float
    times_sampled: int
    columns: dict[str, tuple[Step, ...]]
    chunks_of: dict[str, frozenset[int]]  # keys of the chunks that hold these steps

    @property
    def chunks(self) -> frozenset[int]:
        """Keys of all chunks that this item keeps alive."""
        return frozenset().union(*self.chunks_of.values())

    @property
    def steps(self) -> tuple[Step, ...]:
        """The steps of all columns, sorted, each once."""
        return tuple(sorted(set().union(*self.columns.values())))


@attrs.frozen
class Table:
    """One table; its counters, and `items` in the order of insertion."""

    name: str
    inserts: int
    samples: int
    deletes: int
    items: tuple[Item, ...]


@attrs.frozen
class ServerContents:
    """The contents of a server at one moment; its tables share the chunks."""

    tables: dict[str, Table]
    chunks: dict[int, Chunk]

    def items(self) -> Iterator[Item]:
        """The items of all tables."""
        for table in self.tables.values():
            yield from table.items

    @property
    def raw_bytes(self) -> int:
        """Bytes of all chunks before compression."""
        return sum(chunk.raw_bytes for chunk in self.chunks.values())

    @property
    def stored_bytes(self) -> int:
        """Bytes of all chunks as the server holds them."""
        return sum(chunk.stored_bytes for chunk in self.chunks.values())


def inspect_server(client: reverb.Client) -> ServerContents:
    """Reads the contents of a running server without changing its counters.

    The server writes a snapshot into its checkpointer's folder (by default a temporary one), in
    place of an earlier snapshot. This process must be able to read that folder.

    Raises:
        FileNotFoundError: the server runs on another machine.
    """
    with quiet():
        path = client.checkpoint()
    return read_snapshot(path)


def read_snapshot(path: str) -> ServerContents:
    """Reads a snapshot; its server need not run any more.

    Raises:
        FileNotFoundError: this machine has no such snapshot.
    """
    tables = _records(path, "tables", checkpoint_pb2.PriorityTableCheckpoint)
    rows = _records(path, "items", schema_pb2.PrioritizedItem)
    stored = {chunk.chunk_key: chunk for chunk in _records(path, "chunks", schema_pb2.ChunkData)}
    rows.sort(key=lambda row: (row.inserted_at.seconds, row.inserted_at.nanos))
    episodes: dict[int, int] = {}  # Reverb's random 64-bit number → 0, 1, 2 …
    for row in rows:
        for column in row.flat_trajectory.columns:
            for part in column.chunk_slices:
                episode = stored[part.chunk_key].sequence_range.episode_id
                episodes.setdefault(episode, len(episodes))
    chunks = {key: _chunk(chunk, episodes) for key, chunk in stored.items()}
    contents = {table.table_name: _table(table, rows, chunks) for table in tables}
    return ServerContents(contents, chunks)


def _records(path: str, name: str, kind: Any) -> list[Any]:
    file = Path(path) / f"{name}.tfrecord"
    if not file.is_file():
        raise FileNotFoundError(f"this machine has no Reverb snapshot {path!r}")
    records = tf.data.TFRecordDataset(str(file), "ZLIB").as_numpy_iterator()
    return [kind.FromString(record) for record in records]


def _chunk(chunk: Any, episodes: dict[int, int]) -> Chunk:
    where = chunk.sequence_range
    length = chunk.data.tensors[0].tensor_shape.dim[0].size
    # A chunk with gaps (`where.sparse`) records only its first and last step. Its steps are
    # numbered here as if they were consecutive.
    numbers = range(where.start, where.start + length)
    steps = tuple((episodes[where.episode_id], number) for number in numbers)
    return Chunk(chunk.chunk_key, steps, chunk.data_uncompressed_size, chunk.data.ByteSize())


def _table(table: Any, rows: list[Any], chunks: dict[int, Chunk]) -> Table:
    names: list[str] = []
    if table.HasField("signature"):
        names = list(_leaves(nested_structure_coder.decode_proto(table.signature)))
    name, limiter = table.table_name, table.rate_limiter
    counters = (limiter.insert_count, limiter.sample_count, limiter.delete_count)
    return Table(name, *counters, tuple(_item(r, names, chunks) for r in rows if r.table == name))


def _leaves(signature: Any, above: str = "") -> Iterator[str]:
    """Names of a nest's leaves (`a`, `b/c`, `b/0`) in the order in which Reverb flattens it."""
    if isinstance(signature, Mapping):
        parts = sorted(signature.items())
    elif isinstance(signature, list | tuple):
        parts = list(enumerate(signature))
    else:
        yield above or "data"
        return
    for name, part in parts:
        yield from _leaves(part, f"{above}/{name}" if above else str(name))


def _item(row: Any, names: list[str], chunks: dict[int, Chunk]) -> Item:
    columns, chunks_of = {}, {}
    for index, column in enumerate(row.flat_trajectory.columns):
        name = names[index] if index < len(names) else f"column {index}"
        steps: list[Step] = []
        for part in column.chunk_slices:
            steps += chunks[part.chunk_key].steps[part.offset : part.offset + part.length]
        columns[name] = tuple(steps)
        chunks_of[name] = frozenset(part.chunk_key for part in column.chunk_slices)
    return Item(row.key, row.priority, row.times_sampled, columns, chunks_of)
