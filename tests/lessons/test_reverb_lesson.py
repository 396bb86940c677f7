"""Notebook 01: the contents of a real Reverb server, read and drawn."""

import numpy as np
import pytest
import reverb

from labkit.lessons import reverb as lesson
from labkit.replay import server


@pytest.fixture
def client():
    uniform, fifo = reverb.selectors.Uniform, reverb.selectors.Fifo
    sizes = {"threes": 100, "ends": 2}
    limiter = reverb.rate_limiters.MinSize
    local = server.start_server(
        [reverb.Table(n, uniform(), fifo(), size, limiter(1)) for n, size in sizes.items()]
    )
    yield reverb.Client(f"localhost:{local.port}")
    local.stop()


def test_contents_and_picture_are_what_was_written_and_sampled(client):
    with client.trajectory_writer(3) as writer:
        for step in range(5):
            writer.append({"a": np.int64(step), "b": np.full([2], step, np.uint8)})
            if step >= 2:
                item = {"a": writer.history["a"][-3:], "b": writer.history["b"][-3:]}
                writer.create_item("threes", 1.0 + step, item)
    list(client.sample("threes", 10, emit_timesteps=False))
    held = lesson.contents(client)
    threes = held.items["threes"]
    assert [item.priority for item in threes] == [3, 4, 5]
    assert [item.steps for item in threes] == [
        ((0, first), (0, first + 1), (0, first + 2)) for first in range(3)
    ]
    assert sum(item.times_sampled for item in threes) == 10
    assert held.steps == [(0, step) for step in range(5)]
    assert held.raw_bytes == 5 * (8 + 2)
    (axes,) = lesson.draw(held, "threes").axes
    assert [text.get_text() for text in axes.texts[:5]] == ["1", "2", "3", "2", "1"]
    assert len(axes.patches) == 5 + 3 * 3


def test_removed_items_are_absent_and_episodes_are_apart(client):
    with client.trajectory_writer(3) as writer:
        for length in (2, 3, 2):
            for step in range(length):
                writer.append(np.int64(step))
            writer.create_item("ends", 1.0, writer.history[[0, -1]])
            writer.end_episode()
    held = lesson.contents(client)
    assert [item.steps for item in held.items["ends"]] == [((0, 0), (0, 2)), ((1, 0), (1, 1))]
    (axes,) = lesson.draw(held, "ends").axes
    assert [label.get_text() for label in axes.get_xticklabels()] == ["0", "2", "0", "1"]
    assert axes.get_xticks()[2] - axes.get_xticks()[1] == 2, "a gap between episodes"


def test_a_film_has_a_row_for_each_item():
    figure = lesson.film(np.zeros([2, 3, 10, 10]), ["first", "second"])
    assert [axes.get_ylabel() for axes in figure.axes] == ["first", "", "", "second", "", ""]
