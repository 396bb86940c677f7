"""The robustness card: what the table says, where a policy breaks, what is covered."""

import pandas as pd

from labkit.teaching import robustness
from labkit.teaching.robustness import FACTORS, UNDISTURBED

PAYLOAD, FRICTION, LATENCY = FACTORS[0], FACTORS[1], FACTORS[4]


def episodes(scores, count=6):
    """Rows of every condition; `scores` has the mean return of some, the others have 10."""
    conditions = [(f.name, float(v)) for f in FACTORS for v in f.values]
    rows = []
    for factor, value in [(UNDISTURBED, 0.0), *conditions]:
        for place in range(count):
            score = scores.get((factor, value), 10.0) + place / 100
            rows.append((factor, value, place, score, 1000 if score > 5 else 100, score))
    columns = ["factor", "value", "seed", "return", "length", "distance"]
    return pd.DataFrame(rows, columns=columns)


def test_the_breaking_point_is_the_first_below_half():
    low = {("payload_kg", 4.0): 2.0, ("payload_kg", 6.0): 1.0, ("foot_friction", 0.5): 3.0}
    table = robustness.summary(episodes(low | {("foot_friction", 0.1): 1.0}))
    assert robustness.breaking_point(table, PAYLOAD, +1) == 4.0
    assert robustness.breaking_point(table, PAYLOAD, -1) is None
    assert robustness.breaking_point(table, FRICTION, -1) == 0.5
    assert robustness.breaking_point(table, FRICTION, +1) is None
    row = table[(table.factor == "payload_kg") & (table.value == 4)].iloc[0]
    assert (row.episodes, row.falls) == (6, 1.0)
    assert row.low < row.iqm < row.high
    assert "payload: the policy breaks at 4 kg (IQM +2.0" in robustness.verdict(PAYLOAD, table)
    late = (table.factor == "control_latency_seconds") & (table.value == 0.02)
    table.loc[late, ["iqm", "low", "high"]] = [4.0, 1.0, 9.0]  # of 10 undisturbed
    assert robustness.verdict(LATENCY, table) == (
        "control latency: the policy breaks at no tested value; the lowest IQM is at 0.02 s (IQM "
        "+4.00, interval +1.00 to +9.00); at 0.02 s the IQM is below the threshold of +5.01, but "
        "not its whole interval"
    )
