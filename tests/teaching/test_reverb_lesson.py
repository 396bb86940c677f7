"""Notebook 01: contents of real Reverb servers, inspected, laid out and drawn; its charts."""

import numpy as np
import pytest
import reverb
import tensorflow as tf

from labkit.replay import reverb_replay
from labkit.teaching import rate_limiter, replay_charts, reverb_diagrams, reverb_inspect


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
    """Windows of three steps, each two steps after the last one's first."""
    with client.trajectory_writer(3) as writer:
        for step in range(steps):
            writer.append({"a": np.int64(step), "c": np.full([2], step, np.uint8)})
            if step >= 2:
                parts = writer.history
                item = {"a": parts["a"][-3:], "b": {"c": parts["c"][-3:]}}
                writer.create_item("three", 1.0 + step, item)


def test_contents_equal_what_was_written_and_agree_with_samples(client):
    write_threes(client, 5)
    samples = rate_limiter.sample(client, "three", 10)
    contents = reverb_inspect.inspect_server(client)
    three = contents.tables["three"]
    assert [item.priority for item in three.items] == [3, 4, 5]
    assert [item.steps for item in three.items] == [
        ((0, 0), (0, 1), (0, 2)),
        ((0, 1), (0, 2), (0, 3)),
        ((0, 2), (0, 3), (0, 4)),
    ]
    assert contents.raw_bytes == 5 * (8 + 2)
    assert (three.inserts, three.samples) == (3, 10)
    steps = {item.key: item.steps for item in three.items}
    for sample in samples:
        assert [(0, step) for step in sample.data["a"]] == list(steps[sample.info.key])
    picture = reverb_diagrams.picture(contents, "three")
    assert [block.references for block in picture.blocks] == 2 * [1, 2, 3, 2, 1]


def test_removed_items_are_absent_and_counted(client):
    for value in range(5):
        client.insert(np.int64(value), {"free": 1.0 + value})
    free = reverb_inspect.inspect_server(client).tables["free"]
    assert [item.priority for item in free.items] == [4, 5]
    assert (free.inserts, free.deletes) == (5, 3)


def test_a_gap_separates_episodes_and_splits_a_bar(client):
    with client.trajectory_writer(3) as writer:
        for length in (3, 2):
            for step in range(length):
                writer.append(np.int64(step))
            writer.create_item("free", 1.0, writer.history[[0, -1]])
            writer.end_episode()
    picture = reverb_diagrams.picture(reverb_inspect.inspect_server(client), "free", "a title")
    assert picture.columns == ((0, 0), None, (0, 2), None, (1, 0), (1, 1))
    assert [bar.runs for bar in picture.bars] == [((0, 0), (2, 2)), ((4, 5),)]
    labels = [text.get_text() for text in reverb_diagrams.draw(picture).axes[0].get_xticklabels()]
    assert labels == ["0\nepisode 0", "2", "0\nepisode 1", "1"]


def test_the_figure_shows_the_layout(client):
    write_threes(client, 40)
    picture = reverb_diagrams.picture(reverb_inspect.inspect_server(client), "three")
    assert picture.title == "three: 38 items, the newest 24 drawn"
    axes = reverb_diagrams.draw(picture).axes[0]
    assert len(axes.patches) == len(picture.blocks) + len(picture.bars)
    labels = [label.get_text() for label in axes.get_yticklabels()]
    assert labels[:2] == ["stored a", "stored b/c"]


def test_charts_show_their_data():
    events = [("sample", 2.0, 3.0), ("insert", 0.0, 2.0), ("insert", 0.0, 1.0)]
    assert replay_charts.balance(events, 3.0).tolist() == [[0, 0], [1, 3], [2, 6], [3, 5]]
    figure = replay_charts.frequencies(["a", "b"], [40, 60], {"formula": [50, 50]})
    assert [bar.get_height() for bar in figure.axes[0].patches] == [40, 60]
    figure = replay_charts.costs(["x", "y"], {"first": [1, 2], "second": [3, 4]})
    assert [bar.get_width() for bar in figure.axes[1].patches] == [3, 4]
