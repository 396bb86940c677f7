"""The peers on the Minitaur: plan, table, and choices that agree with labkit's."""

import ast
import json
import math
import re
import sys
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).parents[2]
sys.path[:0] = [str(ROOT / "scripts")]
import peers  # noqa: E402
import study  # noqa: E402

from labkit.config import TUNED  # noqa: E402


def assigned(name):
    """The value of one or more names in benchmarks/peer_study.py, which labkit cannot import."""
    source = (ROOT / "benchmarks" / "peer_study.py").read_text()
    for node in ast.parse(source).body:
        target = node.target if isinstance(node, ast.AnnAssign) else None
        targets = node.targets if isinstance(node, ast.Assign) else [target]
        if any(ast.unparse(one) == name for one in targets if one):
            return node.value
    raise AssertionError(name)


def result(name, seed, *curve, seconds=90.0):
    rows = [
        {"env_step": 10_000 + 2_500 * place, "training_seconds": seconds, "returns": [value, value]}
        for place, value in enumerate(curve)
    ]
    origin = {"commit": "c0ffee", "cpu": "a CPU", "versions": {"jax": "1"}}
    return {"settings": name, "seed": seed, **origin, "evaluations": rows}


def test_every_planned_peer_has_its_settings():
    assert {key.value for key in assigned("SETTINGS").keys} == set(peers.PLAN)
    assert [len(seeds) for _, seeds in peers.PLAN.values()] == [1, 3, 3, 3, 3, 2]


def test_the_peers_get_labkits_observation_scale():
    scale = eval(ast.unparse(assigned("SCALES").args[0]))  # a literal in this repository
    assert tuple(scale) == TUNED["MinitaurBulletEnv-v0"]["observation_scale"]


def test_the_peers_get_labkits_hyperparameters():
    tuned = TUNED["MinitaurBulletEnv-v0"]
    choices = eval(ast.unparse(assigned("CHOICES")), {"math": math})
    assert choices["n_steps"] == tuned["n_step"]
    assert choices["learning_starts"] == tuned["initial_collect_steps"]
    assert choices["target_entropy"] == float(study.MINUS_8["target_entropy"])  # before the change
    initial = math.exp(tuned["initial_log_alpha"])
    assert float(choices["ent_coef"].removeprefix("auto_")) == pytest.approx(initial)
    assert eval(ast.unparse(assigned("REWARD_SCALE"))) == tuned["reward_scale_factor"]
    assert choices["gamma"] == tuned["gamma"]
    rate, decay_steps = eval(ast.unparse(assigned("(RATE, DECAY_STEPS)")))
    assert {rate} == {tuned[f"{part}_learning_rate"] for part in ("critic", "actor", "alpha")}
    assert decay_steps == tuned["learning_rate_decay_steps"]
    sbx = eval(ast.unparse(assigned("SBX_ONLY")))
    assert sbx["policy_delay"] == tuned["actor_update_period"]
    assert sbx["policy_kwargs"]["layer_norm"] == tuned["critic_layer_norm"]


def test_the_table_shows_every_seed():
    found = [
        result("sbx_sac-tuned", 1, 0.0, 12.0, 9.0, 10.0, 11.0, 13.0, seconds=600.0),
        result("sbx_sac-tuned", 2, 0.0, 12.0, 9.0, 5.0),
    ]
    text = peers.text(found)
    row = "| SBX SAC, labkit's choices | 1, 2 | +13.00 +5.00 | +9.00 | 17 500, – | 10, 2 |"
    assert row in text
    assert "SBX SAC, labkit's choices, seed 3;" in text
    assert "SBX CrossQ, critics of 256, labkit's choices, seeds 1, 2 and 3;" in text
    assert "- jax 1; commit c0ffee, CPU a CPU\n" in text


def test_the_section_compares_each_library_with_several_seeds(monkeypatch):
    one = result("sbx_crossq-tuned", 1, 11.0)
    several = [result("sbx_sac-tuned", seed, 12.0 + seed) for seed in (1, 2, 3)]
    monkeypatch.setattr(peers, "results", lambda: [one, *several])
    text = peers.section([10.0, 11.0, 12.0])
    assert (
        "- SBX SAC, labkit's choices: -3.00 (95 % interval -5.27 to -0.73; p = 0.021 after" in text
    )
    assert "(3 seeds). These have a mean of +11.00" in text
    assert "CrossQ" not in text.split("This list")[1]
    monkeypatch.setattr(peers, "results", list)
    assert peers.section([10.0, 11.0]) == ""


def test_the_tracked_results_are_of_their_name_and_length():
    if not list(peers.KEPT.rglob("*.json")):
        pytest.skip("no peer has been run yet")
    for name, (_, seeds) in peers.PLAN.items():
        for seed in seeds:
            if (file := peers.file_of(name, seed)).exists():
                one = json.loads(file.read_text())
                assert (one["settings"], one["seed"], one["env_steps"]) == (name, seed, 100_000)
                assert len(one["evaluations"][-1]["returns"]) == 20
                assert re.fullmatch("[0-9a-f]{40}", one["commit"])
                assert np.isfinite(one["evaluations"][-1]["returns"]).all()


def test_the_tracked_page_is_what_the_command_writes():
    page = peers.KEPT / "README.md"
    assert page.read_text() == peers.text(peers.results())
    assert re.search(r"^\| library \||^No run yet", page.read_text(), re.MULTILINE)


def test_a_failed_run_is_named(monkeypatch, tmp_path):
    monkeypatch.setattr(peers, "ROOT", tmp_path)
    monkeypatch.setattr(peers, "KEPT", tmp_path)
    monkeypatch.setattr(peers.implementations, "PEERS_PYTHON", Path(sys.executable))
    (tmp_path / "benchmarks").mkdir()
    (tmp_path / "benchmarks" / "peer_study.py").write_text("raise SystemExit('no physics')")
    assert peers.run_one(("sbx_sac-tuned", 1)).startswith("sbx_sac-tuned, seed 1 failed: see ")
    log = tmp_path / "build" / "peers" / "sbx_sac-tuned-1.log"
    assert log.read_text() == "no physics\n"
