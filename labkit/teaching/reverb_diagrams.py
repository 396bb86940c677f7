"""A diagram of a Reverb table: the stored steps as blocks, and below them the items as bars.

`picture` lays out the contents of a table as plain data; `draw` makes the figure.
"""

from collections import Counter
from collections.abc import Sequence

import attrs
import numpy as np
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import Normalize
from matplotlib.figure import Figure
from matplotlib.patches import Rectangle

from labkit.plotting.style import subplots
from labkit.teaching.reverb_inspect import Chunk, Item, ServerContents, Step

MOST_ITEMS = 24  # a longer table shows only its newest items
BLUES = ("#f2f2f2", "#cfe3f3", "#9cc9e8", "#5fa8d9")  # for 0, 1, 2, and 3 or more references
COLOURS = "cividis"  # readable with every kind of colour vision


@attrs.frozen
class Bar:
    """One item: the columns it covers, as runs without a gap, (first, last) inclusive."""

    lane: int  # 0 is the oldest item drawn
    key: int
    runs: tuple[tuple[int, int], ...]
    priority: float
    times_sampled: int


@attrs.frozen
class Block:
    """One chunk: the columns it covers, and how many items of the picture refer to it."""

    row: str  # the data column
    first: int
    last: int
    references: int


@attrs.frozen
class Picture:
    """The layout: a step for each column, chunks as blocks in named rows, items as bars."""

    title: str
    columns: tuple[Step | None, ...]  # None: a gap between episodes or between stored steps
    rows: tuple[str, ...]
    blocks: tuple[Block, ...]
    bars: tuple[Bar, ...]


def picture(contents: ServerContents, table: str, title: str | None = None) -> Picture:
    """Lays out one table by its name: steps from left to right, items from top to bottom.

    The default title is the table's name and number of items.
    """
    items = contents.tables[table].items[-MOST_ITEMS:]
    keys = {key for item in items for key in item.chunks}
    steps = {step for key in keys for step in contents.chunks[key].steps}
    columns = _columns(sorted(steps))
    place = {step: index for index, step in enumerate(columns) if step is not None}
    bars = []
    for lane, item in enumerate(items):
        runs = _runs([place[step] for step in item.steps])
        bars.append(Bar(lane, item.key, runs, item.priority, item.times_sampled))
    rows = _rows(items, [contents.chunks[key] for key in keys])
    uses = Counter(key for item in items for key in item.chunks)
    blocks = [
        Block(row, place[chunk.steps[0]], place[chunk.steps[-1]], uses[chunk.key])
        for row, chunks in rows.items()
        for chunk in chunks
    ]
    count = len(contents.tables[table].items)
    shown = f", the newest {len(items)} drawn" if count > len(items) else ""
    title = title or f"{table}: {count} item{'' if count == 1 else 's'}{shown}"
    blocks.sort(key=lambda block: (block.row, block.first))
    return Picture(title, columns, tuple(rows), tuple(blocks), tuple(bars))


def _columns(steps: Sequence[Step]) -> tuple[Step | None, ...]:
    columns: list[Step | None] = []
    for episode, index in steps:
        if columns and columns[-1] != (episode, index - 1):
            columns.append(None)
        columns.append((episode, index))
    return tuple(columns)


def _runs(places: Sequence[int]) -> tuple[tuple[int, int], ...]:
    runs: list[tuple[int, int]] = []
    for place in places:
        if runs and runs[-1][1] == place - 1:
            runs[-1] = (runs[-1][0], place)
        else:
            runs.append((place, place))
    return tuple(runs)


def _rows(items: Sequence[Item], chunks: Sequence[Chunk]) -> dict[str, list[Chunk]]:
    """Row name → chunks. A row is named after a column of the items, or `a = b` if two share it."""
    rows: dict[str, list[Chunk]] = {}
    for chunk in chunks:
        columns = (column for item in items for column in item.chunks_of.items())
        names = {name for name, keys in columns if chunk.key in keys}
        rows.setdefault(" = ".join(sorted(names)), []).append(chunk)
    return dict(sorted(rows.items()))


def draw(picture: Picture) -> Figure:
    """Draws the chunks at the top and the items below.

    The number in a chunk counts the items that refer to it. The colour of an item's bar is its
    priority, the number in it how often it was sampled.
    """
    width, lanes = max(len(picture.columns), 1), len(picture.rows) + len(picture.bars)
    cell = min(0.8, 7.5 / width)
    with subplots(2.6 + max(cell * width, 3.2), 1.1 + 0.36 * lanes, grid=False) as (figure, axes):
        for block in picture.blocks:
            _block(axes, block, picture.rows.index(block.row))
        priorities = [bar.priority for bar in picture.bars]
        scale = Normalize(min(priorities, default=0), max(priorities, default=1))
        colours = ScalarMappable(scale, COLOURS)
        for bar in picture.bars:
            _bar(axes, bar, len(picture.rows) + 0.35, colours, round(1 / cell))
        if distinct := sorted(set(priorities))[1:]:
            legend = figure.colorbar(colours, ax=axes, label="priority", pad=0.02, fraction=0.06)
            if len(distinct) < 6:
                legend.set_ticks([min(priorities), *distinct])
        _frame(axes, picture)
    return figure


def _block(axes: Axes, block: Block, row: int) -> None:
    x, width = block.first - 0.46, block.last - block.first + 0.92
    face = BLUES[min(block.references, len(BLUES) - 1)]
    axes.add_patch(Rectangle((x, row - 0.36), width, 0.72, facecolor=face, edgecolor="#555555"))
    axes.text(x + width / 2, row, f"{block.references}", ha="center", va="center", fontsize=9)


def _bar(axes: Axes, bar: Bar, top: float, colours: ScalarMappable, inch: int) -> None:
    red, green, blue, _ = colour = colours.to_rgba(np.array([bar.priority]))[0]
    ink = "black" if 0.3 * red + 0.59 * green + 0.11 * blue > 0.5 else "white"
    y = top + bar.lane
    axes.plot([bar.runs[0][0], bar.runs[-1][1]], [y, y], color=colour, linewidth=1.5)
    for first, last in bar.runs:
        x, width = first - 0.46, last - first + 0.92
        axes.add_patch(Rectangle((x, y - 0.34), width, 0.68, facecolor=colour))
    first, last = max(bar.runs, key=lambda run: run[1] - run[0])
    text = f"sampled {bar.times_sampled}×" if last - first >= inch else f"{bar.times_sampled}×"
    axes.text((first + last) / 2, y, text, ha="center", va="center", fontsize=9, color=ink)


def _frame(axes: Axes, picture: Picture) -> None:
    rows, bars = len(picture.rows), len(picture.bars)
    axes.set(xlim=(-0.6, len(picture.columns) - 0.4), ylim=(rows + bars - 0.15, -0.6))
    names = [f"stored {name}" for name in picture.rows]
    items = [f"item {bar.lane}, priority {bar.priority:g}" for bar in picture.bars]
    axes.set_yticks([*range(rows), *(rows + 0.35 + lane for lane in range(bars))], names + items)
    stride = -(-len(picture.columns) // 24)
    marks = [(x, step) for x, step in enumerate(picture.columns) if step and step[1] % stride == 0]
    first = {step[0]: x for x, step in reversed(marks)}
    labels = [
        f"{index}\nepisode {episode}" if len(first) > 1 and first[episode] == x else f"{index}"
        for x, (episode, index) in marks
    ]
    axes.set_xticks([x for x, _ in marks], labels)
    axes.tick_params(length=0)
    axes.spines[:].set_visible(False)
    axes.set(xlabel="step", title=picture.title)
