"""Memory of a process grows by what is allocated."""

import subprocess
import sys

import pytest

# A separate process, because threads of earlier tests may free memory while this test measures.
MEASURE = """
import numpy as np
from labkit.teaching import memory

before = memory.allocated_megabytes(), memory.resident_bytes() / 1e6
array = np.ones(100_000_000, np.uint8)
print(memory.allocated_megabytes() - before[0], memory.resident_bytes() / 1e6 - before[1])
"""


def test_an_array_is_counted():
    told = subprocess.check_output([sys.executable, "-c", MEASURE], text=True, timeout=120)
    assert [float(grown) for grown in told.split()] == pytest.approx([100, 100], rel=0.1)
