"""The figure that compares estimated Q with returns."""

import numpy as np
import pandas as pd
import pytest

from labkit.plotting.run_plots import NothingToDraw
from labkit.teaching import sac_plots


def test_estimates_are_drawn_over_what_followed():
    table = pd.DataFrame(
        {"episode": [0, 0, 1], "estimated": [1.0, 5.0, 2.0], "returned": [2.0, 3.0, 6.0]}
    )
    (axes,) = sac_plots.critic_estimates(table).axes
    drawn = {line.get_label(): line.get_xydata() for line in axes.lines}
    np.testing.assert_array_equal(drawn["an action of episode 1"], [(2, 1), (3, 5)])
    np.testing.assert_array_equal(drawn["an action of episode 2"], [(6, 2)])
    np.testing.assert_array_equal(drawn["equal"], [(1, 1), (6, 6)])
    np.testing.assert_allclose(drawn["mean gap -1.0"], [(1, 0), (6, 5)])
    (axes,) = sac_plots.critic_estimates(table.assign(estimated=[3.0, 4.0, 7.0])).axes
    assert "mean gap +1.0" in [line.get_label() for line in axes.lines]
    with pytest.raises(NothingToDraw):
        sac_plots.critic_estimates(table.head(0))
