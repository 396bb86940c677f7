"""What `config.json` says about the commit and the CPU of a run."""

import json
import shutil
import subprocess
import time
from pathlib import Path

import attrs
import pytest

from labkit.config import SACConfig
from labkit.sac.rollout import Evaluation
from labkit.training import provenance
from labkit.training.run import Run, open_run, read_config


def git(folder: Path, *arguments: str) -> str:
    """Runs git there as somebody who is configured nowhere; returns its output."""
    who = ["-c", "user.name=A", "-c", "user.email=a@example.org"]
    command = ["git", *who, *arguments]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=True)
    return done.stdout.strip()


@pytest.fixture
def checkout(tmp_path, monkeypatch):
    """A repository with one commit and a tag."""
    for name in ("GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE"):
        monkeypatch.delenv(name, raising=False)
    folder = tmp_path / "checkout"
    folder.mkdir()
    git(folder, "init", "--quiet")
    (folder / "file").write_text("one")
    git(folder, "add", "file")
    git(folder, "commit", "--quiet", "-m", "first")
    git(folder, "tag", "-a", "v1", "-m", "a version")
    return folder


def test_the_commit_and_whether_tracked_files_have_changes(checkout):
    head = git(checkout, "rev-parse", "HEAD")
    assert provenance.commit(checkout) == head
    (checkout / "untracked").write_text("new")
    assert provenance.commit(checkout) == head
    (checkout / "file").write_text("two")
    assert provenance.commit(checkout) == f"{head}-dirty"


def test_a_hook_of_another_repository_does_not_mislead(checkout, monkeypatch):
    monkeypatch.setenv("GIT_DIR", str(checkout / "nowhere"))
    assert len(provenance.commit(checkout)) == 40


def test_an_installed_package_has_no_commit_even_below_a_repository(checkout):
    installed = checkout / "site-packages"
    installed.mkdir()
    assert provenance.commit(installed) is None


def test_git_that_is_missing_fails_or_hangs_gives_none(checkout, tmp_path, monkeypatch):
    tools = tmp_path / "tools"
    tools.mkdir()
    monkeypatch.setenv("PATH", str(tools))
    assert provenance.commit(checkout) is None, "git is missing"
    slow = tools / "git"
    slow.write_text(f"#!/bin/sh\nexec {shutil.which('sleep', path='/usr/bin:/bin')} 60\n")
    slow.chmod(0o755)
    monkeypatch.setattr(provenance, "GIT_SECONDS", 0.2)
    begin = time.monotonic()
    assert provenance.commit(checkout) is None, "git hangs"
    assert time.monotonic() - begin < 30, "the limit is not kept: git sleeps for 60 seconds"
    slow.write_text("#!/bin/sh\necho half\nexit 128\n")
    assert provenance.commit(checkout) is None, "git fails"


def test_cpu_model(tmp_path, monkeypatch):
    monkeypatch.setattr(provenance, "CPUINFO", tmp_path / "cpuinfo")
    assert provenance.cpu_model() is None
    (tmp_path / "cpuinfo").write_text(
        "processor\t: 0\nmodel name\t: A CPU @ 2 GHz\nmodel name\t: B"
    )
    assert provenance.cpu_model() == "A CPU @ 2 GHz"


def starts(monkeypatch, path, *commits):
    """Opens the run once with each commit; returns what `config.json` holds after the last."""
    for one in commits:
        monkeypatch.setattr(provenance, "commit", lambda one=one: one)
        open_run(path, SACConfig())
    return json.loads((path / "config.json").read_text())


def test_a_new_run_records_commit_and_cpu_but_no_path(tmp_path, monkeypatch):
    monkeypatch.setattr(provenance, "cpu_model", lambda: "a CPU")
    content = starts(monkeypatch, tmp_path, "a" * 40)
    assert (content["commit"], content["cpu"], content["earlier"]) == ("a" * 40, "a CPU", [])
    text = (tmp_path / "config.json").read_text()
    assert str(tmp_path) not in text
    assert str(provenance.CHECKOUT) not in text


def test_a_resumed_run_keeps_each_commit_that_differs(tmp_path, monkeypatch):
    monkeypatch.setattr(provenance, "cpu_model", lambda: "a CPU")
    content = starts(monkeypatch, tmp_path, "a", "a")
    assert content["earlier"] == []
    content = starts(monkeypatch, tmp_path, "b", "c", "b")
    assert content["commit"] == "b"
    assert content["earlier"] == [{"commit": one, "cpu": "a CPU"} for one in ("a", "c")]
    monkeypatch.setattr(provenance, "cpu_model", lambda: "another CPU")
    content = starts(monkeypatch, tmp_path, "b")
    assert content["earlier"][-1] == {"commit": "b", "cpu": "a CPU"}


def test_a_finished_run_keeps_what_it_was_trained_with(tmp_path, monkeypatch):
    monkeypatch.setattr(provenance, "cpu_model", lambda: "a CPU")
    starts(monkeypatch, tmp_path, "a")
    config = SACConfig()
    run = open_run(tmp_path, config)
    count = config.num_eval_episodes
    score = Evaluation((1.0,) * count, (1000.0,) * count, (2.0,) * count)
    steps = config.num_iterations
    run.log_evaluation(score, env_step=steps, gradient_step=steps, wall_seconds=1)
    file = tmp_path / "config.json"
    content = json.loads(file.read_text())
    content["versions"]["numpy"] = "0.0"
    file.write_text(json.dumps(content))
    monkeypatch.setattr(provenance, "commit", lambda: "b")
    (tmp_path / "checkpoints" / f"{steps:09d}").mkdir(parents=True)
    run.write_config()
    assert json.loads(file.read_text()) == content, "nothing is left to train"
    Run(tmp_path, attrs.evolve(config, num_iterations=2 * steps)).write_config()
    assert json.loads(file.read_text())["commit"] == "b", "there is more to train"
    file.write_text(json.dumps(content))
    (tmp_path / "checkpoints" / f"{steps:09d}").rename(
        tmp_path / "checkpoints" / f"{steps - 1:09d}"
    )
    run.write_config()
    assert json.loads(file.read_text())["commit"] == "b", "the last step will be repeated"


def test_a_run_of_an_older_labkit_resumes(tmp_path, monkeypatch):
    open_run(tmp_path, SACConfig())
    file = tmp_path / "config.json"
    content = json.loads(file.read_text())
    for name in ("commit", "cpu", "earlier"):
        del content[name]
    file.write_text(json.dumps(content))
    assert read_config(tmp_path) == SACConfig()
    monkeypatch.setattr(provenance, "cpu_model", lambda: "a CPU")
    content = starts(monkeypatch, tmp_path, "new")
    assert content["commit"] == "new"
    assert content["earlier"] == [{"commit": None, "cpu": None}]
