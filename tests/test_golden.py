"""The golden runs of `golden.py`, computed anew."""

import numpy as np
import pytest
from golden import CASES, DATA, run_case


@pytest.mark.parametrize(
    "case", [pytest.param(c, marks=[pytest.mark.thorough] * (c != "minitaur")) for c in CASES]
)
def test_first_transitions_and_losses_are_those_on_record(case):
    recorded, found = np.load(DATA), run_case(case)
    for name, array in found.items():
        wanted = recorded[f"{case}/{name}"]
        np.testing.assert_allclose(array, wanted, rtol=1e-5, atol=1e-6, err_msg=name)
