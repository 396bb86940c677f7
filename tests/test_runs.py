"""The run directory: claimed once, never overwritten, read back as it was written."""

import pytest
from labkit import runs
from labkit.config import ParameterError, SACConfig
from labkit.evaluation import Evaluation


def test_numbers_count_up(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert [runs.claim("").name for _ in range(3)] == ["0001", "0002", "0003"]
    (tmp_path / "runs" / "notes").mkdir()
    (tmp_path / "runs" / "0041").mkdir()
    assert str(runs.claim("")) == "runs/0042"


def test_relative_and_absolute(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert runs.claim("a/b").resolve() == tmp_path / "a" / "b"
    assert runs.claim(str(tmp_path / "c")) == tmp_path / "c"
    assert runs.claim("a/b"), "a directory without config.json holds no run"


@pytest.mark.parametrize("where", ["file/below", "file", "/proc/nothing/here", "nul\0"])
def test_what_cannot_be_written_is_refused(tmp_path, monkeypatch, where):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "file").write_text("mine")
    with pytest.raises(ParameterError, match="^run_dir = .* cannot be written"):
        runs.claim(where)
    assert (tmp_path / "file").read_text() == "mine"


def test_a_run_is_never_overwritten(tmp_path):
    runs.Run.create(runs.claim(tmp_path), SACConfig(seed=4))
    before = (tmp_path / "config.json").read_bytes()
    with pytest.raises(ParameterError, match="holds a run already"):
        runs.claim(tmp_path)
    assert (tmp_path / "config.json").read_bytes() == before


def test_metrics_come_back_as_written(tmp_path):
    run = runs.Run.create(tmp_path, SACConfig())
    run.log(env_step=5, gradient_step=2, critic_loss=0.25)
    evaluation = Evaluation((1.5, -2.0), (10.0, 1000.0), (0.5, float("nan")))
    run.log_evaluation(evaluation, env_step=6, gradient_step=3, wall_seconds=1.23456)
    table = run.metrics()
    assert table.critic_loss[0] == 0.25
    assert table.eval_returns[0] == ()
    assert table.eval_return[1] == -0.25
    assert table.eval_returns[1] == (1.5, -2.0)
    assert table.eval_distances[1][0] == 0.5
    assert table.wall_seconds[1] == 1.235
    with pytest.raises(ValueError, match="no column"):
        run.log(reward=1)


def test_start_run_takes_what_is_its_own(tmp_path):
    namespace = {"seed": 3.0, "run_dir": str(tmp_path / "x"), "__name__": "?", "anything": object()}
    run = runs.start_run(namespace)
    assert run.config == SACConfig(seed=3)
    assert (run.path / "config.json").exists()
