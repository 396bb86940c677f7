"""Progress is seen where somebody looks, and nowhere else."""

import io
import json
import os
from types import SimpleNamespace

from labkit.training import progress


def test_silent_without_a_terminal(capfd, monkeypatch):
    monkeypatch.delenv(progress.FILE_VARIABLE, raising=False)
    with progress.progress("work", 3, "it") as ticker:
        ticker.advance(3, last_return="+1")
    assert capfd.readouterr() == ("", "")


def test_the_launcher_reads_what_the_kernel_writes(tmp_path, monkeypatch):
    file = tmp_path / "progress.json"
    monkeypatch.setenv(progress.FILE_VARIABLE, str(file))
    monkeypatch.setattr(progress, "SECONDS_BETWEEN_UPDATES", 0)
    with progress.progress("work", 3, "it") as ticker:
        ticker.advance(2, last_return="+1")
        state = json.loads(file.read_text())
        assert state == {
            "label": "work",
            "done": 2,
            "total": 3,
            "unit": "it",
            "facts": {"last return": "+1"},
        }
    assert json.loads(file.read_text()) == {"label": None}


def test_a_lost_progress_file_does_not_end_the_work(tmp_path, monkeypatch):
    monkeypatch.setenv(progress.FILE_VARIABLE, str(tmp_path / "gone" / "progress.json"))
    with progress.progress("work", 1, "it") as ticker:
        ticker.advance()
    assert ticker.summary().startswith("work: 1 it in ")


def test_advance_counts_each_and_shows_few():
    shown = []
    sink = SimpleNamespace(show=lambda bar, facts: shown.append(bar.n), end=lambda summary: None)
    ticker = progress.Ticker("work", 100_000, "it", [sink])
    for _ in range(100_000):
        ticker.advance()
    assert "100 000 it" in ticker.summary()
    assert 0 < len(shown) < 1_000


def test_the_pace_is_a_plain_number(monkeypatch):
    ticker = progress.Ticker("work", 10_000, "it", [])
    ticker.advance(10_000)
    for seconds, pace in ((5.0, "2 000 it/s"), (1_000.0, "10 it/s"), (9_000.0, "1.11 it/s")):
        monkeypatch.setattr(progress.time, "monotonic", lambda s=seconds: ticker._started + s)
        assert ticker.summary().endswith(f", {pace}")
    monkeypatch.setattr(progress.time, "monotonic", lambda: ticker._started + 119.7)
    assert ticker.summary() == "work: 10 000 it in 2 min 0 s, 83.5 it/s"
    monkeypatch.setattr(progress.time, "monotonic", lambda: ticker._started + 0.01)
    assert ticker.summary() == "work: 10 000 it in less than 0.5 s"


def test_a_phase_that_ended_between_two_looks_is_shown_whole(monkeypatch):
    ended = []
    monkeypatch.setattr(progress.Ticker, "close", lambda ticker: ended.append(ticker.summary()))
    with progress.Phases() as bar:
        bar.show("training", 100, "it", 95, before=90)
        assert bar._ticker._bar.n == 95
        assert bar._ticker._bar.initial == 90, "of a resumed run"
        bar.reached("random collection", 7)
        bar.reached("training", 100)
        bar.show("evaluation", 5, "episodes", 0)
    assert ended[0].startswith("training: 100 it in ")
    assert ended[1].startswith("evaluation: 0 episodes in ")


def test_a_bar_stays_on_one_line_of_a_narrow_terminal(monkeypatch):
    written = io.StringIO()
    monkeypatch.setattr(progress.sys, "stderr", written)
    sink = progress._TerminalSink()
    for columns, longest in ((60, 59), (200, progress.WIDTH)):
        size = os.terminal_size((columns, 24))
        monkeypatch.setattr(progress.shutil, "get_terminal_size", lambda size=size: size)
        ticker = progress.Ticker("training", 100_000, "it", [])
        ticker._bar.set_postfix({"last return": "+12.3"}, refresh=False)
        sink.show(ticker._bar, {})
        line = written.getvalue().rpartition("\033[K")[2]
        assert "training" in line
        assert len(line) <= longest
