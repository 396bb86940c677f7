"""Small things that many tests need; nothing here is a test."""

import pytest
from small import SMALL, minitaur_rows

import labkit  # noqa: F401  (first: it sets what TensorFlow reads when it loads)
from labkit.config import SACConfig

# The files that take longest, longest first. Processes side by side begin with them: one that comes
# last would keep a single process busy.
LONG = ("test_run_all", "test_wiring", "test_replicas", "test_on_ray", "test_checkpoint")


@pytest.hookimpl(tryfirst=True)  # pytest-xdist reads the groups in its own hook
def pytest_collection_modifyitems(config, items):
    """For pytest-xdist: the tests of a file go to one process, but each notebook to any."""
    if hasattr(config, "workerinput"):
        for item in items:
            alone = item.get_closest_marker("notebook")
            item.add_marker(pytest.mark.xdist_group(item.name if alone else item.path.stem))
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
