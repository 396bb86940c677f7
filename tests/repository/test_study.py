"""The Minitaur study: its plan."""

import sys
from pathlib import Path

import attrs
import pytest

from labkit.analysis.runs import find_runs, setting_name
from labkit.config import SACConfig

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "scripts"))
import study  # noqa: E402


def test_an_ablation_changes_one_choice_and_its_runs_have_it():
    defaults = attrs.asdict(SACConfig(), recurse=False)
    for name, changed in study.SETTINGS.items():
        assert all(defaults[field] != value for field, value in changed.items())
        if name.startswith("no-") and name != "no-learning_rates":
            assert list(changed) == [name.removeprefix("no-")]
        for run in find_runs(study.KEPT / name)[0]:
            assert run.setting == setting_name(SACConfig(**changed)), run.path


@pytest.mark.parametrize(("setting", "steps"), [("defaults", 55_000), ("source", 50_000)])
def test_a_budget_counts_the_warm_up(setting, steps):
    assert study.Job(setting, 1, 60_000).config.num_iterations == steps
