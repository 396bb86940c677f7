"""The tracked robustness page is that of the tracked policies and episodes."""

import sys
from pathlib import Path

from labkit.training.run_directory import TRACKED_POLICY

from labkit.analysis import robustness
from labkit.training import saved_weights

ROOT = Path(__file__).resolve().parents[2]
sys.path.insert(0, str(ROOT / "scripts"))
import robustness as robustness_page  # noqa: E402


def test_the_page_is_what_its_command_writes():
    played = robustness.read(robustness_page.EPISODES_FILE)
    page, figures = robustness_page.contents(played)
    assert page == (robustness_page.KEPT / "README.md").read_text()
    assert all((robustness_page.KEPT / name).exists() for name in figures)
    assert f"Weights {saved_weights.fingerprint(ROOT / TRACKED_POLICY)}, 20 episodes" in page
    assert (robustness.summary(robustness.tracked()).episodes == robustness_page.PLANNED).all()
