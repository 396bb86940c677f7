"""The tracked robustness page is that of the tracked policies and episodes."""

from pathlib import Path

from labkit.analysis import robustness
from labkit.training import saved_weights
from labkit.training.run_directory import TRACKED_POLICY

MINITAUR = Path(__file__).resolve().parents[2] / "results" / "minitaur"


def test_the_page_shows_the_tracked_policy_and_every_condition():
    page = (MINITAUR / "robustness" / "README.md").read_text()
    assert f"Weights {saved_weights.fingerprint(MINITAUR / TRACKED_POLICY.name)}," in page
    table = robustness.summary(robustness.tracked())
    assert (table.episodes > 0).all()
    for factor in robustness.FACTORS:
        assert f"- {robustness.verdict(factor, table)}\n" in page
