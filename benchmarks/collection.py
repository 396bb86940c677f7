"""Env steps per second of 1, 2 and 4 rollout workers without a learner: `make bench-collection`.

The parts are those of `labkit.train_on_ray`, the limiter excepted: inserts are free. The parameter
server gets new weights every half second, and the workers pull them as they always do.
"""

import json
import tempfile
from pathlib import Path
from typing import Any

import click
import matplotlib as mpl
from matplotlib.figure import Figure

import labkit
from benchmarks.throughput import machine
from labkit import cluster, environments, learn, runtime
from labkit.agent import create_agent
from labkit.figures import BLUE, GREY, STYLE
from labkit.rows import layout_of
from labkit.server import free_port

OUT = Path(__file__).resolve().parent / "results"
PARTS = ("replay", "parameter server")


def measure(collectors: int, seconds: float) -> dict[str, Any]:
    """Env steps per second of so many workers, and the cores that the servers keep busy."""
    import ray

    from labkit.actors import ParameterServer
    from labkit.crew import Crew
    from labkit.remote_replay import Replay
    from labkit.rollout import RolloutWorker

    config = labkit.SACConfig()
    env = environments.make(config.env_name, seed=0)
    agent = create_agent(config, env, runtime.make_strategy("cpu", config.batch_size))
    weights = learn.flat_weights(agent).numpy()
    with tempfile.TemporaryDirectory() as name, cluster.connection(None, collectors):
        crew, folder, port = Crew(), Path(name), free_port()
        server = f"{ray.util.get_node_ip_address()}:{port}"
        crew.hire("replay", Replay, config, layout_of(env), folder, port, False, num_cpus=0)
        parameters = crew.hire(
            "parameter server", ParameterServer, folder / "p.npz", work="", num_cpus=0
        )
        for number in range(collectors):
            arguments = (number, config, None, folder, server, crew.names, 0, collectors)
            crew.hire(f"rollout worker {number}", RolloutWorker, *arguments, num_cpus=1)
        version = 0

        def look_until(done) -> None:
            nonlocal version
            while not done():
                version += 1
                ray.get(parameters.push.remote(version, version, weights))
                list(crew.look(0.5))

        workers = [part for name, part in crew.parts.items() if name.startswith("rollout")]
        look_until(lambda: all(part.status.get("env_steps", 0) > 200 for part in workers))
        first = {name: dict(crew.parts[name].status) for name in PARTS}
        begin = crew.parts["replay"].heard_at
        look_until(lambda: crew.parts["replay"].heard_at - begin >= seconds)
        spent = crew.parts["replay"].heard_at - begin
        last = {name: crew.parts[name].status for name in PARTS}
        crew.dismiss()
    steps = last["replay"]["inserts"] - first["replay"]["inserts"]
    cpu = {name: last[name]["cpu_seconds"] - first[name]["cpu_seconds"] for name in PARTS}
    return {
        "collectors": collectors,
        "env_steps_per_second": steps / spent,
        "seconds": spent,
        "cores_busy": {name: used / spent for name, used in cpu.items()},
    }


def text(results: dict[str, Any]) -> str:
    """The table."""
    lines = ["| collectors | env steps/s | of N × one | replay: cores | parameter server: cores |"]
    lines.append("|---|---|---|---|---|")
    one = results["cases"][0]["env_steps_per_second"]
    for case in results["cases"]:
        count, rate, busy = case["collectors"], case["env_steps_per_second"], case["cores_busy"]
        lines.append(
            f"| {count} | {rate:.0f} | {rate / (count * one):.2f} | {busy['replay']:.2f} "
            f"| {busy['parameter server']:.3f} |"
        )
    return "\n".join(lines)


def draw(results: dict[str, Any]) -> Figure:
    """Env steps per second over collectors, beside a straight line up to the cores."""
    counts = [case["collectors"] for case in results["cases"]]
    rates = [case["env_steps_per_second"] for case in results["cases"]]
    cores = results["machine"]["cores"]
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(6, 3), layout="constrained")
        axes = figure.subplots()
        straight = [rates[0] * min(count, cores) for count in counts]
        axes.plot(counts, straight, color=GREY, linestyle="--", label=f"linear up to {cores} cores")
        axes.plot(counts, rates, color=BLUE, marker="o", label="measured")
        axes.set_xticks(counts)
        axes.set_ylim(0)
        axes.set_xlabel("rollout workers")
        axes.set_ylabel("env steps per second")
        axes.legend()
    return figure


@click.command()
@click.option("--seconds", default=20.0, show_default=True, help="Timed for each count.")
@click.option("--quick", is_flag=True, help="One collector, two seconds: does it work?")
@click.option("--out", type=click.Path(path_type=Path), default=OUT, help="Where results go.")
def main(seconds: float, quick: bool, out: Path) -> None:
    """Measures, prints, writes collection.json and collection.png."""
    results: dict[str, Any] = {"machine": machine()}
    counts = (1,) if quick else (1, 2, 4)
    results["cases"] = [measure(count, 2.0 if quick else seconds) for count in counts]
    out.mkdir(parents=True, exist_ok=True)
    (out / "collection.json").write_text(json.dumps(results, indent=1) + "\n")
    draw(results).savefig(out / "collection.png", dpi=110)
    print(text(results))


if __name__ == "__main__":
    main()
