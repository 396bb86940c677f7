"""A small run of the scaling benchmark, its figure, and its list of configurations."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from matplotlib import image

from benchmarks import scaling

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    out = tmp_path_factory.mktemp("scaling")
    command = [sys.executable, "-m", "benchmarks.scaling", "--quick", "--out", str(out)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=900)
    assert done.returncode == 0, done.stderr[-2000:]
    return out


@pytest.mark.slow
@pytest.mark.timeout(1000)
def test_result_names_its_devices(folder):
    result = json.loads((folder / "scaling.json").read_text())
    found = [(c["replicas"], c["batch_size"], c["batch_per_replica"]) for c in result["cases"]]
    assert found == [(1, 16, 16), (2, 16, 8), (2, 32, 16)]
    for case in result["cases"]:
        assert case["steps_per_second"] > 0
        assert case["samples_per_second"] == pytest.approx(
            case["steps_per_second"] * case["batch_size"],
            rel=0.05,  # both are rounded
        )
    if not result["gpus"]:
        assert result["devices"].startswith("logical devices of one CPU")
        assert result["measured"].startswith("the overhead of mirroring")
    assert str(ROOT) not in json.dumps(result)


@pytest.mark.slow
@pytest.mark.timeout(1000)
def test_figure_shows_the_numbers(folder):
    assert image.imread(folder / "scaling.png").std() > 0
    result = json.loads((folder / "scaling.json").read_text())
    (axes,) = scaling.draw(result).axes
    lines = {line.get_label(): line for line in axes.lines}
    samples = [case["samples_per_second"] for case in result["cases"]]
    np.testing.assert_array_equal(lines["fixed global batch of 16"].get_ydata(), samples[:2])
    np.testing.assert_array_equal(
        lines["fixed batch per replica of 16"].get_ydata(), [samples[0], samples[2]]
    )
    np.testing.assert_array_equal(
        lines["N times one replica"].get_ydata(), [samples[0], 2 * samples[0]]
    )


def test_every_configuration_once():
    found = scaling.cases(quick=False)
    assert len(found) == len(set(found)) == 10
    assert {(c.replicas, c.batch_size) for c in found} == {
        (1, 256),
        (2, 256),
        (2, 512),
        (4, 256),
        (4, 1024),
    }
