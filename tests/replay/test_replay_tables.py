"""What is written is what is sampled, and no transition is made up between two episodes."""

import socket
from pathlib import Path
from types import SimpleNamespace

import library
import numpy as np
import pytest
import reverb
import tensorflow as tf
from scipy import stats
from tf_agents.trajectories import time_step

from labkit.errors import StalledError
from labkit.replay import reverb_replay, server, transitions, uniform_replay
from labkit.replay.transitions import Transition

LAYOUT = transitions.Layout(observation=2, action=1)


@pytest.fixture(params=[reverb_replay.ReverbReplay, uniform_replay.UniformReplay])
def table(request):
    table = request.param(LAYOUT, 100)
    yield table
    table.close()
    table.close()  # twice does no harm


def fill(table, numbers):
    for t in numbers:
        table.write(Transition([t, 0], [0], 0, 1, [t, 1]))
    table.flush()


def stored(table, count):
    """Every row in the table: drawn until all `count` were seen."""
    seen = set()
    for _ in range(60):  # one false alarm in ten million
        seen |= {tuple(row) for row in table.sample(64).tolist()}
        if len(seen) == count:
            break
    return sorted(seen)


def test_what_is_written_is_sampled(table):
    expected = [[t, t, 10 + t, 0.5 * t, t % 2, t + 1, t + 1] for t in range(7)]
    for t in range(7):
        table.write(Transition([t, t], [10 + t], 0.5 * t, t % 2, [t + 1, t + 1]))
    table.flush()
    assert table.size() == 7
    assert stored(table, 7) == sorted(tuple(map(float, row)) for row in expected)


def test_two_samples_are_two_draws_though_tensorflow_is_seeded(table):
    tf.random.set_seed(1)
    fill(table, range(50))
    assert table.sample(8).tolist() != table.sample(8).tolist()


def test_a_stream_is_let_go_of_without_waiting_for_its_tuning_thread(table):
    assert table.dataset(8).options().autotune.enabled is False


def test_a_closed_writer_has_written_its_last_rows():
    server = reverb_replay.start_server([reverb_replay.packed_table(LAYOUT, 100)])
    writer = reverb_replay.TransitionWriter(f"localhost:{server.port}")
    for t in range(15):  # fewer than are flushed on the way
        writer.write(Transition([t, 0], [0], 0, 1, [t, 1]))
    writer.close()
    client = reverb.Client(f"localhost:{server.port}")
    assert reverb_replay.table_state(client).size == 15
    server.stop()


def test_batches_are_drawn_uniformly(table):
    """A chi-squared test of the stream that the learner reads, after the table was full once."""
    fill(table, range(150))
    batches = table.dataset(100).take(200).as_numpy_iterator()
    drawn = np.concatenate([rows[:, 0] for rows, _ in batches]).astype(int)
    counts = np.bincount(drawn, minlength=150)[50:]
    assert counts.sum() == 20_000, "an old row was drawn"
    assert stats.chisquare(counts).pvalue > 1e-6
    # More sensitive to a preference for recent rows: the mean place, in standard deviations
    place = (np.mean(drawn - 50) - 49.5) / np.sqrt((100**2 - 1) / 12 / 20_000)
    assert abs(place) < 5


def test_each_row_comes_with_the_key_and_the_probability_of_its_item(table):
    fill(table, range(50))
    names = {}
    for rows, info in table.dataset(40).take(5).as_numpy_iterator():
        assert rows.shape == (40, LAYOUT.width)
        assert info["key"].shape == info["probability"].shape == (40,)
        np.testing.assert_allclose(info["probability"], 1 / 50, rtol=1e-5)
        for key, row in zip(info["key"], rows[:, 0], strict=True):
            assert names.setdefault(key, row) == row, "one key, one item"
    assert len(set(names.values())) == len(names) > 40


@pytest.fixture(params=["reverb", "tf_uniform"])
def with_recent(request, tmp_path):
    """A table of 100 rows, the ten newest of which give half of each batch; rows 0 to 129."""
    if request.param == "reverb":
        table = reverb_replay.ReverbReplay(LAYOUT, 100, tmp_path / "reverb", recent=10)
    else:
        table = uniform_replay.UniformReplay(LAYOUT, 100, recent=10)
    fill(table, range(130))
    yield table
    table.close()


def halves(table):
    """The numbers of the rows in the two parts of many batches of nine."""
    drawn = np.array([rows[:, 0] for rows, _ in table.dataset(9).take(600).as_numpy_iterator()])
    assert drawn.shape == (600, 9)
    return drawn[:, :4].astype(int).ravel(), drawn[:, 4:].astype(int).ravel()


def test_half_of_a_batch_is_drawn_from_the_newest_transitions(with_recent):
    newest, all_rows = halves(with_recent)
    assert set(newest) == set(range(120, 130))
    assert set(all_rows) == set(range(30, 130))
    assert stats.chisquare(np.bincount(newest)[120:]).pvalue > 1e-6
    assert stats.chisquare(np.bincount(all_rows)[30:]).pvalue > 1e-6
    assert with_recent.size() == 100
    assert with_recent.sample(9).shape == (9, LAYOUT.width)


def test_the_two_halves_of_a_batch_are_drawn_independently():
    """Of 100 newest of 100 rows, after TensorFlow is seeded, as a run does it."""
    tf.random.set_seed(0)
    table = uniform_replay.UniformReplay(LAYOUT, 100, recent=100)
    fill(table, range(100))
    drawn = np.array([rows[:, 0] for rows, _ in table.dataset(20).take(200).as_numpy_iterator()])
    equal = np.mean(drawn[:, :10] == drawn[:, 10:])
    assert equal < 0.04, "one pair in a hundred is equal by chance"


def test_a_batch_of_one_is_drawn_from_all_transitions(with_recent):
    drawn = [rows[0, 0] for rows, _ in with_recent.dataset(1).take(600).as_numpy_iterator()]
    assert min(drawn) < 120


def test_the_newest_transitions_are_restored(with_recent, tmp_path):
    with_recent.save(tmp_path / "saved")
    fill(with_recent, range(500, 530))
    with_recent.restore(tmp_path / "saved")
    newest, all_rows = halves(with_recent)
    assert (set(newest), set(all_rows)) == (set(range(120, 130)), set(range(30, 130)))
    fill(with_recent, [130])
    newest, all_rows = halves(with_recent)
    assert set(newest) == set(range(121, 131)), "the oldest of the newest goes first"
    assert set(all_rows) == set(range(31, 131)), "and the oldest of all"


@pytest.mark.parametrize("kind", [reverb_replay.ReverbReplay, uniform_replay.UniformReplay])
def test_more_recent_transitions_than_the_table_holds_are_all_of_them(tmp_path, kind):
    """What the table has dropped is not drawn any more, not even as a recent transition."""
    table = kind(LAYOUT, 5, recent=10)
    fill(table, range(7))
    for saved in (tmp_path / "once", tmp_path / "twice"):
        newest, all_rows = halves(table)
        assert set(newest) == set(all_rows) == set(range(2, 7))
        table.save(saved)
        table.restore(saved)
    table.close()


def test_oldest_goes_first(table):
    fill(table, range(130))
    assert {row[0] for row in stored(table, 100)} == set(map(float, range(30, 130)))


def test_split_and_unpack_by_hand():
    given = np.arange(21, dtype=np.float32).reshape(3, 7)
    parts = transitions.split(tf.constant(given), LAYOUT)
    for part, columns in zip(parts, ([0, 1], [2], 3, 4, [5, 6]), strict=True):
        np.testing.assert_array_equal(part, given[:, columns])
    packed = [transitions.pack(Transition(*row)) for row in zip(*map(np.array, parts), strict=True)]
    np.testing.assert_array_equal(packed, given)
    transition = library.unpack(tf.constant(given), LAYOUT)
    np.testing.assert_array_equal(transition.time_step.observation, given[:, :2])
    np.testing.assert_array_equal(transition.action_step.action, given[:, 2:3])
    np.testing.assert_array_equal(transition.next_time_step.reward, given[:, 3])
    np.testing.assert_array_equal(transition.next_time_step.discount, given[:, 4])
    np.testing.assert_array_equal(transition.next_time_step.observation, given[:, 5:])
    assert np.all(transition.next_time_step.step_type == time_step.StepType.MID)


def test_a_full_writer_waits_for_the_server():
    table = reverb_replay.ReverbReplay(LAYOUT, 100)
    fill(table, range(10 * reverb_replay.UNCONFIRMED))
    assert table.size() == 100
    table.close()


def test_an_empty_table_does_not_hang(monkeypatch):
    monkeypatch.setattr(reverb_replay, "SAMPLE_TIMEOUT_SECONDS", 1)
    table = reverb_replay.ReverbReplay(LAYOUT, 100)
    with pytest.raises(StalledError, match="gave no batch of 4 transitions"):
        table.sample(4)
    table.close()


def test_a_limiter_that_holds_samples_back_is_named(monkeypatch):
    monkeypatch.setattr(reverb_replay, "SAMPLE_TIMEOUT_SECONDS", 1)
    limiter = reverb.rate_limiters.SampleToInsertRatio(4, 2, 8)  # 4 inserts · 4 samples each
    table = reverb_replay.ReverbReplay(LAYOUT, 100, limiter=limiter)
    fill(table, range(4))
    with pytest.raises(StalledError, match="gave no batch of 50 transitions"):
        table.sample(50)
    table.close()


def test_a_server_s_temporary_folder_goes_with_it(tmp_path, monkeypatch):
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    table = reverb_replay.ReverbReplay(LAYOUT, 100)
    assert len(list(tmp_path.glob("labkit-reverb-*"))) == 1
    table.close()
    assert list(Path(tmp_path).glob("labkit-reverb-*")) == []


@pytest.mark.parametrize(("address", "warns"), [("127.0.0.1", False), ("192.0.2.7", True)])
def test_a_port_that_other_hosts_reach_is_warned_about_once(monkeypatch, capsys, address, warns):
    card = [SimpleNamespace(family=socket.AF_INET, address=address)]
    monkeypatch.setattr(server.psutil, "net_if_addrs", lambda: {"card": card})
    server.warn_once.cache_clear()
    server.warn_once(), server.warn_once()
    assert capsys.readouterr().out.count("without a password") == warns
