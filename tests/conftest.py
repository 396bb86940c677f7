"""Small things that many tests need; nothing here is a test."""

import pytest
from small import SMALL, minitaur_rows

from labkit.config import SACConfig

# The files that take longest, longest first. Processes side by side, to which pytest-xdist gives
# whole files, begin with them: one that comes last would keep a single process busy.
LONG = ("test_run_all", "test_wiring", "test_on_ray", "test_local", "test_update", "test_run")


def pytest_collection_modifyitems(items):
    """Sorts the tests by `LONG`."""
    place = {name: number for number, name in enumerate(LONG)}
    items.sort(key=lambda item: place.get(item.path.stem, len(LONG)))


@pytest.fixture
def small_config():
    """A configuration that trains in seconds; `small_config(seed=3)` changes fields."""
    return lambda **changes: SACConfig(**{**SMALL, **changes})


@pytest.fixture
def random_rows():
    """The function `minitaur_rows`."""
    return minitaur_rows
