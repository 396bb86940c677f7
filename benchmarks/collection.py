"""Env steps per second of 1, 2 and 4 rollout workers without a learner: `make bench-collection`.

The parts are those of `labkit.train_on_ray`, the limiter excepted: inserts are free. The parameter
server gets new weights every half second, and the workers pull them as they always do. Beside them:
as many processes that take env steps with the same policy and do nothing else, without Ray or
Reverb: how far those scale is what the machine allows.
"""

import json
import multiprocessing
import tempfile
import time
from pathlib import Path
from typing import Any

import click
import matplotlib as mpl
import pandas as pd
from matplotlib.figure import Figure

import labkit
from benchmarks.throughput import machine
from labkit.distributed import ray_cluster
from labkit.environments.make import make_environment
from labkit.errors import START_SECONDS
from labkit.plotting.style import BLUE, GREY, ORANGE, STYLE
from labkit.replay.ports import free_port
from labkit.replay.transitions import layout_of
from labkit.sac.agent import create_agent
from labkit.sac.update import flat_weights
from labkit.strategy import make_strategy

OUT = Path(__file__).resolve().parent / "results"
PARTS = ("replay", "parameter server")
WORKERS = "rollout workers"


def play(number: int, seconds: float, gate: Any, rates: Any) -> None:
    """Takes env steps by the untrained policy and keeps nothing; puts down how many a second."""
    from labkit.distributed.workers import actor_policy
    from labkit.sac.collector import Collector

    config = labkit.SACConfig()
    env = make_environment(config.env_name, seed=number)
    policy = actor_policy(config, env, number, config.greedy_share)
    collector = Collector(env, policy, lambda *row: None, policy.new_episode, config.n_step)
    collector.run(200)
    gate.wait(START_SECONDS)
    begin, steps = time.monotonic(), 0
    while (spent := time.monotonic() - begin) < seconds:
        collector.run(50)
        steps += 50
    rates.put(steps / spent)


def alone(count: int, seconds: float) -> float:
    """Env steps per second of so many processes that share nothing but the machine."""
    fresh = multiprocessing.get_context("spawn")
    gate, rates = fresh.Barrier(count), fresh.Queue()
    players = [
        fresh.Process(target=play, args=(number, seconds, gate, rates), daemon=True)
        for number in range(count)
    ]
    for player in players:
        player.start()
    return sum(rates.get(timeout=START_SECONDS + seconds) for _ in players)


def measure(collectors: int, seconds: float) -> dict[str, Any]:
    """Env steps per second of so many workers, and the cores that the servers keep busy."""
    import ray

    from labkit.distributed.parameter_server import ParameterServer
    from labkit.distributed.replay_actor import Replay
    from labkit.distributed.supervisor import ActorSupervisor
    from labkit.distributed.workers import RolloutWorker

    config = labkit.SACConfig()
    env = make_environment(config.env_name, seed=0)
    agent = create_agent(config, env, make_strategy("cpu", config.batch_size))
    weights = flat_weights(agent).numpy()
    with tempfile.TemporaryDirectory() as name, ray_cluster.connection(None, collectors):
        crew, folder, port = ActorSupervisor(), Path(name), free_port()
        server = f"{ray.util.get_node_ip_address()}:{port}"
        crew.start_actor("replay", Replay, config, layout_of(env), folder, port, False, num_cpus=0)
        parameters = crew.start_actor(
            "parameter server", ParameterServer, folder / "p.npz", work="", num_cpus=0
        )
        for number in range(collectors):
            arguments = (number, config, None, folder, server, crew.names, 0, collectors)
            crew.start_actor(f"rollout worker {number}", RolloutWorker, *arguments, num_cpus=1)
        version = 0

        def look_until(done) -> None:
            nonlocal version
            while not done():
                version += 1
                ray.get(parameters.push.remote(version, version, weights))
                list(crew.look(0.5))

        workers = [part for name, part in crew.parts.items() if name.startswith("rollout")]
        look_until(lambda: all(part.status.get("env_steps", 0) > 200 for part in workers))
        first = {name: dict(part.status) for name, part in crew.parts.items()}
        begin = crew.parts["replay"].heard_at
        look_until(lambda: crew.parts["replay"].heard_at - begin >= seconds)
        spent = crew.parts["replay"].heard_at - begin
        last = {name: part.status for name, part in crew.parts.items()}
        crew.stop_actors()
    steps = last["replay"]["inserts"] - first["replay"]["inserts"]
    cpu = dict.fromkeys((WORKERS, *PARTS), 0.0)
    for name, then in first.items():
        part = name if name in PARTS else WORKERS
        cpu[part] += last[name]["cpu_seconds"] - then["cpu_seconds"]
    return {
        "collectors": collectors,
        "env_steps_per_second": steps / spent,
        "alone": alone(collectors, seconds),
        "seconds": spent,
        "cores_busy": {name: used / spent for name, used in cpu.items()},
    }


def middle(cases: list[dict[str, Any]]) -> dict[str, Any]:
    """The median of each number over the rounds: cores change their speed from minute to minute."""
    table = pd.json_normalize(cases).median()
    busy = {name: float(table[f"cores_busy.{name}"]) for name in (WORKERS, *PARTS)}
    return {
        "collectors": cases[0]["collectors"],
        **{name: float(table[name]) for name in ("env_steps_per_second", "alone")},
        "cores_busy": busy,
    }


def text(results: dict[str, Any]) -> str:
    """The table."""
    lines = [
        "| collectors | env steps/s | of N × one | loops alone | of N × one | cores: workers "
        "| replay | parameter server |",
        "|---" * 8 + "|",
    ]
    one = results["cases"][0]
    for case in results["cases"]:
        count, busy = case["collectors"], case["cores_busy"]
        rates = (
            f"{case[what]:.0f} | {case[what] / (count * one[what]):.2f}"
            for what in ("env_steps_per_second", "alone")
        )
        cores = (f"{busy[name]:.2f}" for name in (WORKERS, *PARTS))
        lines.append(f"| {' | '.join((str(count), *rates, *cores))} |")
    return "\n".join(lines)


def draw(results: dict[str, Any]) -> Figure:
    """Env steps per second over collectors, beside loops alone and a line up to the cores."""
    counts = [case["collectors"] for case in results["cases"]]
    rates = [case["env_steps_per_second"] for case in results["cases"]]
    cores = results["machine"]["cores"]
    with mpl.rc_context(STYLE):
        figure = Figure(figsize=(6, 3), layout="constrained")
        axes = figure.subplots()
        straight = [rates[0] * min(count, cores) for count in counts]
        axes.plot(counts, straight, color=GREY, linestyle="--", label=f"linear up to {cores} cores")
        loops = [case["alone"] for case in results["cases"]]
        axes.plot(counts, loops, color=ORANGE, marker="s", label="loops alone")
        axes.plot(counts, rates, color=BLUE, marker="o", label="rollout workers")
        axes.set_xticks(counts)
        axes.set_ylim(0)
        axes.set_xlabel("rollout workers")
        axes.set_ylabel("env steps per second")
        axes.legend()
    return figure


@click.command()
@click.option("--seconds", default=10.0, show_default=True, help="Timed for each count.")
@click.option("--rounds", default=3, show_default=True, help="Medians of so many.")
@click.option("--quick", is_flag=True, help="One collector, two seconds: does it work?")
@click.option("--out", type=click.Path(path_type=Path), default=OUT, help="Where results go.")
def main(seconds: float, rounds: int, quick: bool, out: Path) -> None:
    """Measures, prints, writes collection.json and collection.png."""
    results: dict[str, Any] = {"machine": machine()}
    counts, rounds, seconds = ((1,), 1, 2.0) if quick else ((1, 2, 4), rounds, seconds)
    measured = [measure(count, seconds) for _ in range(rounds) for count in counts]
    results["rounds"] = measured
    results["cases"] = [
        middle([case for case in measured if case["collectors"] == count]) for count in counts
    ]
    out.mkdir(parents=True, exist_ok=True)
    (out / "collection.json").write_text(json.dumps(results, indent=1) + "\n")
    draw(results).savefig(out / "collection.png", dpi=110)
    print(text(results))


if __name__ == "__main__":
    main()
