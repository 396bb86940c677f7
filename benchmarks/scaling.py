"""Gradient steps and samples per second with 1, 2 and 4 replicas: `make bench-scaling`.

Each configuration runs in its own process, in several rounds over all configurations, so that other
load on the machine affects all of them. The batch is ready in memory: the time excludes sampling
and collecting. On a host without GPUs the replicas are logical devices of one CPU. More replicas
then add no hardware, and the benchmark measures the overhead of mirroring; the result states this.
"""

import datetime
import json
import os
import platform
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any, NamedTuple

import click
from matplotlib.axes import Axes
from matplotlib.figure import Figure

import labkit
from benchmarks.throughput import machine
from labkit import runtime
from labkit.plotting import style
from labkit.sac.update import make_update
from labkit.strategy import make_strategy

ROOT = Path(__file__).resolve().parent.parent
OUT = ROOT / "benchmarks" / "results"
NETWORKS = {"the notebook's networks": (256, 256), "ten times wider": (2560, 2560)}
GLOBAL, PER_REPLICA = "fixed global batch", "fixed batch per replica"
WORKER_LIMIT_SECONDS = 300


class Case(NamedTuple):
    """The configuration that one process measures."""

    network: str
    layers: tuple[int, ...]
    replicas: int
    batch_size: int  # over all replicas


def cases(quick: bool) -> list[Case]:
    """Lists every configuration once; with one replica both kinds of batch are the same."""
    networks = {"tiny networks": (16, 16)} if quick else NETWORKS
    base = 16 if quick else 256
    found = []
    for network, layers in networks.items():
        for replicas in (1, 2) if quick else (1, 2, 4):
            sizes = sorted({base, base * replicas})
            found += [Case(network, layers, replicas, size) for size in sizes]
    return found


def measure(case: Case, seconds: float) -> dict[str, Any]:
    """Measures the gradient steps per second of one configuration in this process.

    Returns:
        steps_per_second, steps (how many were timed) and gpus (their names).
    """
    import numpy as np
    import tensorflow as tf
    from tf_agents.environments import random_py_environment
    from tf_agents.specs import array_spec

    from labkit.replay.transitions import Layout
    from labkit.sac import agent

    one = "gpu" if tf.config.list_physical_devices("GPU") else "cpu"
    name = one if case.replicas == 1 else f"mirrored:{case.replicas}"
    strategy = make_strategy(name, case.batch_size)
    specs = (array_spec.BoundedArraySpec((n,), np.float32, -1, 1) for n in (28, 8))
    sizes = {f"{name}_fc_layer_params": case.layers for name in ("actor", "critic_joint")}
    config = labkit.SACConfig.parse({"batch_size": case.batch_size, **sizes})
    # An environment with the Minitaur's shapes, without physics.
    made = agent.create_agent(config, random_py_environment.RandomPyEnvironment(*specs), strategy)
    layout = Layout(28, 8)
    update = make_update(made, layout, strategy, config.reflection)
    rows = tf.random.stateless_normal([config.rows_drawn, layout.width], [0, 0])
    for _ in range(3):  # the first compiles
        update(rows)["alpha"].numpy()
    steps, start = 0, time.perf_counter()
    while time.perf_counter() - start < seconds or steps < 3:
        update(rows)["alpha"].numpy()  # waits for the devices
        steps += 1
    rate = steps / (time.perf_counter() - start)
    return {"steps_per_second": rate, "gpus": _gpu_names(), "steps": steps}


def _gpu_names() -> list[str]:
    import tensorflow as tf

    gpus = tf.config.list_physical_devices("GPU")
    return [tf.config.experimental.get_device_details(g).get("device_name", "GPU") for g in gpus]


def run_all(quick: bool, repeats: int, seconds: float) -> dict[str, Any]:
    """Runs `repeats` rounds over all cases, each case in its own process."""
    todo, before = cases(quick), machine()
    rates: dict[Case, list[float]] = {case: [] for case in todo}
    found: dict[str, Any] = {}
    for turn in range(repeats):
        for case in todo:
            found = _in_own_process(case, seconds)
            rates[case].append(found["steps_per_second"])
            print(
                f"turn {turn + 1}/{repeats}: {case.network}, {case.replicas} replicas, global "
                f"batch {case.batch_size}: {rates[case][-1]:.1f} gradient steps/s",
                flush=True,
            )
    return {
        "command": " ".join(["python -m benchmarks.scaling", *sys.argv[1:]]),
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
        "machine": before,
        "versions": {"python": platform.python_version(), **_versions()},
        **_devices(found["gpus"]),
        "repeats": repeats,
        "seconds_each": seconds,
        "cases": [_summary(case, rates[case]) for case in todo],
    }


def _in_own_process(case: Case, seconds: float) -> dict[str, Any]:
    command = [sys.executable, "-m", "benchmarks.scaling", "--case", json.dumps([*case])]
    done = subprocess.run(
        [*command, "--seconds", str(seconds)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=WORKER_LIMIT_SECONDS,
    )
    if done.returncode:
        raise click.ClickException(f"{case}: {done.stderr.strip()[-1000:]}")
    return json.loads(done.stdout.strip().splitlines()[-1])


def _summary(case: Case, rates: list[float]) -> dict[str, Any]:
    median = statistics.median(rates)
    return {
        **case._asdict(),
        "batch_per_replica": case.batch_size // case.replicas,
        "steps_per_second": round(median, 2),
        "samples_per_second": round(median * case.batch_size),
        "each_steps_per_second": [round(rate, 2) for rate in rates],
    }


def _versions() -> dict[str, str]:
    from importlib.metadata import version

    return {name: version(name) for name in ("tensorflow", "tf-agents")}


def _devices(gpus: list[str]) -> dict[str, Any]:
    if gpus:
        kinds = ", ".join(f"{gpus.count(kind)} × {kind}" for kind in sorted(set(gpus)))
        return {"devices": kinds, "gpus": len(gpus), "measured": "scaling over GPUs"}
    cores = len(os.sched_getaffinity(0))
    return {
        "devices": f"logical devices of one CPU with {cores} cores",
        "gpus": 0,
        "measured": "the overhead of mirroring, because the replicas share one CPU",
    }


def draw(result: dict[str, Any]) -> Figure:
    """Draws samples per second over replicas: a panel for each network, a dot for each repeat."""
    networks = list(dict.fromkeys(case["network"] for case in result["cases"]))
    width = 4 * max(2, len(networks))
    with style.subplots(width, 4.2, 1, len(networks), squeeze=False) as (figure, (panels,)):
        for axes, network in zip(panels, networks, strict=True):
            _panel(axes, [case for case in result["cases"] if case["network"] == network])
            layers = next(c["layers"] for c in result["cases"] if c["network"] == network)
            axes.set_title(f"{network} {tuple(layers)}")
        panels[0].set_ylabel("samples per second")
        figure.suptitle(f"On {result['devices']}: {result['measured']}", fontsize=10)
        lines, labels = panels[0].get_legend_handles_labels()
        figure.legend(lines, labels, loc="outside lower center", ncols=3)
    return figure


def _panel(axes: Axes, found: list[dict[str, Any]]) -> None:
    counts = sorted({case["replicas"] for case in found})
    (one,) = (case for case in found if case["replicas"] == 1)
    ideal = [n * one["samples_per_second"] for n in counts]
    axes.plot(counts, ideal, color=style.GREY, linestyle="--", label="N times one replica")
    kinds = {
        GLOBAL: (style.BLUE, "o", lambda c: c["batch_size"] == one["batch_size"]),
        PER_REPLICA: (style.ORANGE, "s", lambda c: c["batch_per_replica"] == one["batch_size"]),
    }
    for label, (colour, marker, belongs) in kinds.items():
        some = sorted(filter(belongs, found), key=lambda case: case["replicas"])
        x, y = zip(*[(c["replicas"], c["samples_per_second"]) for c in some], strict=True)
        axes.plot(x, y, color=colour, marker=marker, label=f"{label} of {one['batch_size']}")
        for case in some:
            each = [rate * case["batch_size"] for rate in case["each_steps_per_second"]]
            axes.plot([case["replicas"]] * len(each), each, ".", color=colour, alpha=0.4)
    axes.set_xticks(counts, [str(n) for n in counts])
    axes.yaxis.set_major_formatter(lambda rate, _: f"{rate:,.0f}".replace(",", " "))
    axes.set_xlabel("replicas")
    axes.set_ylim(bottom=0)


@click.command()
@click.option("--quick", is_flag=True, help="A smoke test: tiny networks, two replicas, once.")
@click.option("--repeats", type=click.IntRange(min=1), default=3, show_default=True, help="Rounds.")
@click.option("--seconds", type=float, default=2.0, show_default=True, help="Timed, each process.")
@click.option("--out", type=click.Path(path_type=Path), default=OUT, help="Output folder.")
@click.option("--figure-only", is_flag=True, help="Draws scaling.png anew from scaling.json.")
@click.option("--case", "case_json", hidden=True, help="Measures one configuration here.")
def main(
    quick: bool, repeats: int, seconds: float, out: Path, figure_only: bool, case_json: str | None
) -> None:
    """Measures how training speed scales with replicas on the devices of this machine."""
    if case_json:
        network, layers, replicas, batch_size = json.loads(case_json)
        with runtime.quiet():
            found = measure(Case(network, tuple(layers), replicas, batch_size), seconds)
        print(json.dumps(found))
        return
    out.mkdir(parents=True, exist_ok=True)
    path = out / "scaling.json"
    if not figure_only:
        result = run_all(quick, 1 if quick else repeats, 0.2 if quick else seconds)
        path.write_text(json.dumps(result, indent=1, ensure_ascii=False) + "\n")
    draw(json.loads(path.read_text())).savefig(path.with_suffix(".png"))
    print(f"{path} and {path.with_suffix('.png').name}")


if __name__ == "__main__":
    main(prog_name="benchmarks.scaling")
