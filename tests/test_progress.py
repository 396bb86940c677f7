"""Progress is seen where somebody looks, and nowhere else."""

import json

from labkit import progress


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


def test_advance_is_cheap_and_counts(monkeypatch):
    monkeypatch.delenv(progress.FILE_VARIABLE, raising=False)
    with progress.progress("work", 100_000, "it") as ticker:
        for _ in range(100_000):
            ticker.advance()
    assert "100 000 it" in ticker.summary()
