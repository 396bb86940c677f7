"""No tracked run replaces another one, or a longer part of itself."""

from labkit.analysis import tracked_runs


def write(folder, *rows):
    folder.mkdir()
    (folder / "metrics.csv").write_text("".join(f"{row}\n" for row in ("step", *rows)))
    return folder


def test_a_longer_run_of_the_same_name_is_kept(tmp_path):
    """As after a resume from a checkpoint that cut the last rows."""
    source, target = write(tmp_path / "source", 1, 2), write(tmp_path / "target", 1, 2, 3)
    assert tracked_runs.keep_replaced(source, target) == tmp_path / "target-replaced-1"
    assert not target.exists()


def test_rows_that_a_resumed_run_lost_are_kept(tmp_path):
    """It was resumed from a checkpoint before row 3, and has more rows by now."""
    source, target = write(tmp_path / "source", 1, 2, 4, 5), write(tmp_path / "target", 1, 2, 3)
    assert tracked_runs.keep_replaced(source, target) == tmp_path / "target-replaced-1"


def test_a_run_that_went_on_replaces_its_beginning(tmp_path):
    source, target = write(tmp_path / "source", 1, 2, 3), write(tmp_path / "target", 1, 2)
    assert tracked_runs.keep_replaced(source, target) is None
    assert tracked_runs.keep_replaced(source, tmp_path / "missing") is None


def test_another_run_is_kept(tmp_path):
    source, target = write(tmp_path / "source", 7, 8), write(tmp_path / "target", 1, 2)
    write(tmp_path / "target-replaced-1", 5)
    assert tracked_runs.keep_replaced(source, target) == tmp_path / "target-replaced-2"
