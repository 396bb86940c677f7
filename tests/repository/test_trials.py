"""The trials on the Minitaur: each run that was made has a row."""

import json
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
sys.path[:0] = [str(ROOT / "scripts")]
import trials  # noqa: E402

ROWS = """env_step,gradient_step,eval_return,eval_returns
10000,0,0.0,0.0 0.0
11000,1000,,
12500,2500,12.0,11.0 13.0
15000,5000,9.0,8.0 10.0
17500,7500,11.0,10.0 12.0
20000,10000,10.5,10.0 11.0 10.5
"""


def test_a_row_by_hand(tmp_path):
    same = {
        "actor_update_period": 2,
        "learning_rate_decay_steps": 20_000,
        "recent_transitions": 20_000,
        "symmetry_augmentation": True,
        "target_entropy": -4.0,
    }
    config = {**same, "seed": 3, "n_step": 8, "greedy_share": 0.3, "a parameter that is gone": 1}
    (tmp_path / "config.json").write_text(json.dumps({"config": config, "commit": "abcdefghij"}))
    (tmp_path / "metrics.csv").write_text(ROWS)
    row = trials.row(tmp_path)
    assert (row["seed"], row["differs from the defaults in"]) == ("3", "greedy_share 0.3; n_step 8")
    assert (row["env steps"], row["return"]) == ("20 000", "+10.50 (3 episodes)")
    assert (row["best evaluation"], row["steps to +10"]) == ("+12.00", "17 500")
    assert row["gradient steps per env step"] == "1"
    assert (row["commit"], row["CPU"]) == ("abcdefg", "not recorded")


def test_a_run_from_before_a_parameter_differs_in_it():
    differing = trials.setting({"gamma": 0.995, "actor_update_period": 2})
    added = "recent_transitions 0; symmetry_augmentation False"
    assert differing == f"learning_rate_decay_steps 0; {added}"


def test_the_tracked_page_is_what_the_command_writes():
    assert (trials.TRIALS / "README.md").read_text() == trials.page()
    assert trials.page().count("\n| ") == 2 + len([*trials.TRIALS.glob("*/*/metrics.csv")])
