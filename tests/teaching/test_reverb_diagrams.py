"""Contents of real Reverb servers: inspected, laid out, and drawn as diagrams."""

import numpy as np
import pytest
import reverb
import tensorflow as tf

from labkit.replay import rate_limiter, reverb_replay
from labkit.teaching import reverb_diagrams, reverb_inspect


def table(name, max_size=100, signature=None):
    prioritized, fifo = reverb.selectors.Prioritized(1.0), reverb.selectors.Fifo()
    limiter = reverb.rate_limiters.MinSize(1)
    return reverb.Table(name, prioritized, fifo, max_size, limiter, signature=signature)


@pytest.fixture
def client():
    spec = {"a": tf.TensorSpec([3], tf.int64), "b": {"c": tf.TensorSpec([3, 2], tf.uint8)}}
    server = reverb_replay.start_server([table("three", signature=spec), table("free", max_size=2)])
    yield reverb.Client(f"localhost:{server.port}")
    server.stop()


def write_threes(client, steps):
    with client.trajectory_writer(3) as writer:
        for step in range(steps):
            writer.append({"a": np.int64(step), "c": np.full([2], step, np.uint8)})
            if step >= 2:
                parts = writer.history
                item = {"a": parts["a"][-3:], "b": {"c": parts["c"][-3:]}}
                writer.create_item("three", 1.0 + step, item)


def test_contents_equal_what_was_written(client):
    write_threes(client, 5)
    contents = reverb_inspect.inspect_server(client)
    items = contents.tables["three"].items
    assert [item.priority for item in items] == [3, 4, 5]
    assert [item.steps for item in items] == [
        ((0, 0), (0, 1), (0, 2)),
        ((0, 1), (0, 2), (0, 3)),
        ((0, 2), (0, 3), (0, 4)),
    ]
    assert all(set(item.columns) == {"a", "b/c"} for item in items)
    assert len(contents.chunks) == 10
    assert contents.raw_bytes == 5 * (8 + 2)
    picture = reverb_diagrams.picture(contents, "three")
    assert [block.references for block in picture.blocks] == 2 * [1, 2, 3, 2, 1]


def test_contents_agree_with_samples(client):
    write_threes(client, 6)
    items = reverb_inspect.inspect_server(client).tables["three"].items
    steps = {item.key: item.steps for item in items}
    for sample in rate_limiter.sample(client, "three", 10):
        assert [(0, step) for step in sample.data["a"]] == list(steps[sample.info.key])
        assert np.array_equal(sample.data["b"]["c"][:, 0], sample.data["a"])


def test_inspecting_changes_no_counter_of_the_server(client):
    write_threes(client, 4)
    rate_limiter.sample(client, "three", 5)
    first, second = reverb_inspect.inspect_server(client), reverb_inspect.inspect_server(client)
    assert first == second
    table, info = first.tables["three"], client.server_info()["three"]
    assert table.inserts == info.rate_limiter_info.insert_stats.completed == 2
    assert table.samples == info.rate_limiter_info.sample_stats.completed == 5
    assert sum(item.times_sampled for item in table.items) == 5


def test_removed_items_are_absent_and_counted(client):
    for value in range(5):
        client.insert(np.int64(value), {"free": 1.0 + value})
    free = reverb_inspect.inspect_server(client).tables["free"]
    assert [item.priority for item in free.items] == [4, 5]
    assert (free.inserts, free.deletes) == (5, 3)


def test_a_chunk_of_several_steps_is_one_block(client):
    with client.trajectory_writer(4) as writer:
        writer.configure((), num_keep_alive_refs=4, max_chunk_length=4)
        for step in range(4):
            writer.append(np.int64(step))
        writer.create_item("free", 1.0, writer.history[1:3])
    picture = reverb_diagrams.picture(reverb_inspect.inspect_server(client), "free")
    assert [(block.first, block.last) for block in picture.blocks] == [(0, 3)]
    assert picture.bars[0].runs == ((1, 2),)


def test_a_gap_separates_episodes_and_splits_a_bar(client):
    with client.trajectory_writer(3) as writer:
        for length in (3, 2):
            for step in range(length):
                writer.append(np.int64(step))
            writer.create_item("free", 1.0, writer.history[[0, -1]])
            writer.end_episode()
    picture = reverb_diagrams.picture(reverb_inspect.inspect_server(client), "free", "a title")
    assert picture.columns == ((0, 0), None, (0, 2), None, (1, 0), (1, 1))
    assert picture.title == "a title"
    assert [bar.runs for bar in picture.bars] == [((0, 0), (2, 2)), ((4, 5),)]
    labels = [text.get_text() for text in reverb_diagrams.draw(picture).axes[0].get_xticklabels()]
    assert labels == ["0\nepisode 0", "2", "0\nepisode 1", "1"]


def test_the_figure_shows_the_layout(client):
    write_threes(client, 5)
    rate_limiter.sample(client, "three", 7)
    picture = reverb_diagrams.picture(reverb_inspect.inspect_server(client), "three")
    figure = reverb_diagrams.draw(picture)
    axes = figure.axes[0]
    assert len(axes.patches) == len(picture.blocks) + len(picture.bars)
    texts = [text.get_text() for text in axes.texts]
    assert texts[-3:] == [f"sampled {bar.times_sampled}×" for bar in picture.bars]
    labels = [label.get_text() for label in axes.get_yticklabels()]
    assert labels[:3] == ["stored a", "stored b/c", "item 0, priority 3"]
    assert len(figure.axes) == 2  # three priorities: the second axes are a colour bar
    assert figure.get_facecolor() == (1, 1, 1, 1)
    assert figure._repr_png_()[0].startswith(b"\x89PNG")


def test_a_long_table_shows_its_newest_items(client):
    write_threes(client, 40)
    picture = reverb_diagrams.picture(reverb_inspect.inspect_server(client), "three")
    assert len(picture.bars) == reverb_diagrams.MOST_ITEMS
    assert picture.bars[-1].priority == 40
    assert picture.title == "three: 38 items, the newest 24 drawn"
    reverb_diagrams.draw(picture)


def test_an_empty_table_can_be_drawn(client):
    picture = reverb_diagrams.picture(reverb_inspect.inspect_server(client), "three")
    assert picture.bars == ()
    assert reverb_diagrams.draw(picture)._repr_png_()


def test_a_missing_snapshot_is_named():
    with pytest.raises(FileNotFoundError, match="no Reverb snapshot"):
        reverb_inspect.read_snapshot("nowhere")


def test_columns_are_named_in_the_order_of_flattening():
    signature = {"b": [1, {"z": 2, "a": 3}], "a": (4,)}
    names = list(reverb_inspect._leaves(signature))
    assert names == ["a/0", "b/0", "b/1/a", "b/1/z"]  # as dm-tree flattens
