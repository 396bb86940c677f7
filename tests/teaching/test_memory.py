"""Memory of this process grows by what is allocated."""

import gc

import numpy as np
import pytest

from labkit.teaching import memory


@pytest.mark.parametrize(
    "megabytes", [memory.allocated_megabytes, lambda: memory.resident_bytes() / 1e6]
)
def test_an_array_is_counted(megabytes):
    gc.collect()  # otherwise an array of an earlier test may be freed between the two measurements
    before = megabytes()
    array = np.ones(100_000_000, np.uint8)
    assert megabytes() - before == pytest.approx(array.nbytes / 1e6, rel=0.1)
