"""The robustness card: which episodes are missing, what the table says, what is covered."""

import pandas as pd
import pytest
from labkit.training.run_directory import TRACKED_POLICY

from labkit.analysis import robustness, robustness_plots
from labkit.analysis.robustness import COLUMNS, FACTORS, FIRST_SEED, UNDISTURBED
from labkit.errors import ParameterError

PAYLOAD, FRICTION = FACTORS[:2]


def episodes(scores, count=6, weights="w"):
    """Rows of every condition; `scores` has the mean return of some, the others have 10."""
    rows = []
    for place in range(count):
        for factor, value in robustness.conditions():
            score = scores.get((factor, value), 10.0) + place / 100
            length = 1000 if score > 5 else 100
            rows.append(("p", weights, factor, value, FIRST_SEED + place, score, length, score))
    return pd.DataFrame(rows, columns=COLUMNS)


def test_missing_episodes_come_seed_by_seed_and_none_is_played_twice():
    none = pd.DataFrame(columns=COLUMNS)
    todo = list(robustness.missing(none, "w", 2))
    count = len(robustness.conditions())
    assert len(todo) == 2 * count
    assert todo[0] == ((UNDISTURBED, 0.0), FIRST_SEED)
    assert {seed for _, seed in todo[:count]} == {FIRST_SEED}
    played = episodes({}, count=1)
    assert list(robustness.missing(played, "w", 2)) == todo[count:]
    assert list(robustness.missing(played, "other", 1)) == todo[:count]


def test_the_breaking_point_is_the_first_below_half():
    low = {("payload_kg", 4.0): 2.0, ("payload_kg", 6.0): 1.0, ("foot_friction", 0.5): 3.0}
    low |= {("foot_friction", 0.1): 1.0}
    table = robustness.summary(episodes(low))
    assert robustness.breaking_point(table, PAYLOAD, +1) == 4.0
    assert robustness.breaking_point(table, PAYLOAD, -1) is None
    assert robustness.breaking_point(table, FRICTION, -1) == 0.5
    assert robustness.breaking_point(table, FRICTION, +1) is None
    row = table[(table.factor == "payload_kg") & (table.value == 4)].iloc[0]
    assert (row.episodes, row.falls) == (6, 1.0)
    assert row.low < row.iqm < row.high
    assert "payload: the policy breaks at 4 kg (IQM +2.0" in robustness.verdict(PAYLOAD, table)
    lowest = "control latency: the policy breaks at no tested value; the lowest IQM is at "
    assert robustness.verdict(FACTORS[4], table).startswith(lowest)
    assert "below the threshold" not in robustness.verdict(FACTORS[4], table)
    assert robustness.breaks_at(PAYLOAD, table) == "4 kg"
    assert robustness.breaks_at(FRICTION, table) == "0.5"
    assert robustness.breaks_at(FACTORS[4], table) == "no tested value"
    none = robustness.summary(episodes(dict.fromkeys(robustness.conditions(), -1.0)))
    assert robustness.breaking_point(none, PAYLOAD, +1) is None
    assert "no positive return" in robustness.verdict(PAYLOAD, none)
    late = (table.factor == "control_latency_seconds") & (table.value == 0.02)
    table.loc[late, ["iqm", "low", "high"]] = [4.0, 1.0, 9.0]  # of 10 undisturbed
    assert robustness.verdict(FACTORS[4], table) == (
        f"{lowest}0.02 s (IQM +4.00, interval +1.00 to +9.00); at 0.02 s the IQM is below the "
        "threshold of +5.01, but not its whole interval"
    )
    two = (table.factor == "payload_kg") & (table.value == 2)
    table.loc[two, ["iqm", "low", "high"]] = [4.0, 1.0, 9.0]
    verdict = robustness.verdict(PAYLOAD, table)
    assert verdict.startswith("payload: the policy breaks at 4 kg (IQM +2.0")
    assert verdict.endswith(
        "; at 2 kg the IQM is below the threshold of +5.01, but not its whole interval"
    )


def test_few_episodes_have_no_interval_and_break_where_all_are_low():
    table = robustness.summary(episodes({("payload_kg", 4.0): 0.0}, count=2))
    assert table.low.isna().all()
    assert robustness.breaking_point(table, PAYLOAD, +1) == 4.0
    assert "best +0.01 of 2, too few for an interval" in robustness.verdict(PAYLOAD, table)
    one_walks = episodes({("payload_kg", 4.0): 0.0}, count=2)
    lucky = one_walks.index[(one_walks.factor == "payload_kg") & (one_walks.value == 4)][0]
    one_walks.loc[lucky, "return"] = 9.0
    assert robustness.breaking_point(robustness.summary(one_walks), PAYLOAD, +1) is None


def test_without_undisturbed_episodes_there_is_nothing_to_compare_with():
    played = episodes({("payload_kg", 4.0): 0.0})
    table = robustness.summary(played[played.factor != UNDISTURBED])
    assert robustness.verdict(PAYLOAD, table) == (
        "payload: there is no undisturbed episode to compare with"
    )
    assert robustness.breaks_at(PAYLOAD, table) == "unknown"
    assert robustness.breaking_point(table, PAYLOAD, +1) is None


def test_covered_follows_the_ranges_of_pybullet():
    assert robustness.covered(PAYLOAD, 3.0) == pytest.approx((0.0, 0.6))
    assert robustness.covered(FRICTION, 3.0) == pytest.approx((0.8 / 1.15, 1.5 / 1.15))
    assert robustness.covered(FACTORS[2], 3.0) is None
    assert len(robustness.domain_randomisation()) == 5


def test_a_player_plays_what_it_is_told(monkeypatch):
    """One short episode: a robot with almost no torque falls at once."""
    from labkit.teaching.minitaur import RESULTS

    player = robustness.Player(RESULTS / TRACKED_POLICY.name)
    row = player.play(("motor_strength", 0.1), FIRST_SEED)
    assert list(row) == COLUMNS
    assert (row["factor"], row["value"], row["seed"]) == ("motor_strength", 0.1, FIRST_SEED)
    assert row["length"] < 200
    assert player.play(("motor_strength", 0.1), FIRST_SEED) == row
    mean, sampled = (player.play(("temperature", t), FIRST_SEED) for t in (0.0, 1.5))
    assert mean["return"] != sampled["return"]


def test_the_figure_has_a_panel_for_each_factor():
    figure = robustness_plots.card(episodes({("payload_kg", 4.0): 2.0}), 3.0, "title")
    panels = [axes.get_xlabel() for axes in figure.axes]
    assert panels == [factor.label for factor in FACTORS]
    line = figure.axes[0].containers[0].lines[0]
    assert list(line.get_xdata()) == [0, *PAYLOAD.values]
    assert line.get_ydata()[3] == pytest.approx(2.025)


def test_tracked_episodes_of_other_weights_are_rejected(tmp_path, monkeypatch):
    assert set(robustness.tracked().factor) > {UNDISTURBED, "payload_kg"}
    variables = tmp_path / TRACKED_POLICY.name / "policy" / "variables"
    variables.mkdir(parents=True)
    (variables / "variables.data-00000-of-00001").write_bytes(b"other")
    (tmp_path / "robustness").mkdir()
    (tmp_path / "robustness" / "episodes.csv").write_bytes(
        (robustness.RESULTS / "robustness" / "episodes.csv").read_bytes()
    )
    monkeypatch.setattr(robustness, "RESULTS", tmp_path)
    with pytest.raises(ParameterError, match="run `make robustness`"):
        robustness.tracked()
