"""Env steps per second of 1, 2 and 4 rollout workers without a learner: `make bench-collection`.

The Ray actors are those of `labkit.train_on_ray`, but the rate limiter never blocks inserts. The
parameter server receives new weights every half second, and the workers pull them as usual. For
comparison, the benchmark runs the same number of independent processes that only take env steps
with the same policy, without Ray and Reverb. Their scaling is the limit of the machine.
"""

import json
import multiprocessing
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
import pandas as pd
from matplotlib.figure import Figure

import labkit
from benchmarks.throughput import machine
from labkit.distributed import ray_cluster
from labkit.environments.make import make_environment
from labkit.errors import START_SECONDS
from labkit.plotting.style import BLUE, GREY, ORANGE, subplots
from labkit.replay.ports import free_port
from labkit.replay.transitions import layout_of
from labkit.sac.agent import create_agent
from labkit.sac.update import flat_weights
from labkit.strategy import make_strategy

OUT = Path(__file__).resolve().parent / "results"
SERVERS = ("replay", "parameter server")
WORKERS = "rollout workers"


def step_alone(number: int, seconds: float, barrier: Any, rates: Any) -> None:
    """Takes env steps with the untrained policy; puts the steps per second into a queue.

    Args:
        number: seeds the environment and the policy.
        seconds: how long to measure.
        barrier: a `multiprocessing.Barrier` on which all processes start.
        rates: the `multiprocessing.Queue` for the result.
    """
    from labkit.distributed.workers import actor_policy
    from labkit.sac.rollout import Collector

    config = labkit.SACConfig()
    env = make_environment(config.env_name, seed=number)
    policy = actor_policy(config, env, number)
    collector = Collector(env, policy, lambda *row: None, n_step=config.n_step)
    collector.run(200)
    barrier.wait(START_SECONDS)
    begin, steps = time.monotonic(), 0
    while (spent := time.monotonic() - begin) < seconds:
        collector.run(50)
        steps += 50
    rates.put(steps / spent)


def alone(count: int, seconds: float) -> float:
    """Env steps per second of `count` independent processes together."""
    spawn = multiprocessing.get_context("spawn")
    barrier, rates = spawn.Barrier(count), spawn.Queue()
    processes = [
        spawn.Process(target=step_alone, args=(number, seconds, barrier, rates), daemon=True)
        for number in range(count)
    ]
    for process in processes:
        process.start()
    return sum(rates.get(timeout=START_SECONDS + seconds) for _ in processes)


def measure(collectors: int, seconds: float) -> dict[str, Any]:
    """Env steps per second of `collectors` rollout workers, and the cores that each actor uses."""
    import ray

    from labkit.distributed.context import RunContext
    from labkit.distributed.parameter_server import ParameterServer
    from labkit.distributed.replay_actor import ReplayActor
    from labkit.distributed.supervisor import ActorSupervisor
    from labkit.distributed.workers import RolloutWorker

    config = labkit.SACConfig()
    env = make_environment(config.env_name, seed=0)
    agent = create_agent(config, env, make_strategy("cpu", config.batch_size))
    weights = flat_weights(agent).numpy()
    with tempfile.TemporaryDirectory() as temporary, ray_cluster.connection(None, collectors):
        supervisor, folder, port = ActorSupervisor(), Path(temporary), free_port()
        server = f"{ray.util.get_node_ip_address()}:{port}"
        context = RunContext(config, None, folder, server, supervisor.prefix)
        supervisor.start_actor("replay", ReplayActor, context, layout_of(env), False, num_cpus=0)
        parameters = supervisor.start_actor(
            "parameter server", ParameterServer, folder / "p.npz", work="", num_cpus=0
        )
        for number in range(collectors):
            arguments = (context, number, 0, collectors)
            name = f"rollout worker {number}"
            supervisor.start_actor(name, RolloutWorker, *arguments, num_cpus=1)
        actors, version = supervisor.actors, 0

        def push_until(done: Callable[[], bool]) -> None:
            nonlocal version
            while not done():
                version += 1
                ray.get(parameters.push.remote(version, version, weights))
                list(supervisor.poll(0.5))

        workers = [actor for name, actor in actors.items() if name.startswith("rollout")]
        push_until(lambda: all(actor.status.get("env_steps", 0) > 200 for actor in workers))
        first = {name: dict(actor.status) for name, actor in actors.items()}
        begin = actors["replay"].answered_at
        push_until(lambda: actors["replay"].answered_at - begin >= seconds)
        spent = actors["replay"].answered_at - begin
        last = {name: actor.status for name, actor in actors.items()}
        supervisor.stop_actors()
    steps = last["replay"]["inserts"] - first["replay"]["inserts"]
    cpu = dict.fromkeys((WORKERS, *SERVERS), 0.0)
    for name, before in first.items():
        kind = name if name in SERVERS else WORKERS
        cpu[kind] += last[name]["cpu_seconds"] - before["cpu_seconds"]
    return {
        "collectors": collectors,
        "env_steps_per_second": steps / spent,
        "alone": alone(collectors, seconds),
        "seconds": spent,
        "cores_busy": {name: used / spent for name, used in cpu.items()},
    }


def median_case(cases: list[dict[str, Any]]) -> dict[str, Any]:
    """The median of each number over the rounds; the speed of the cores varies between them."""
    table = pd.json_normalize(cases).median()
    busy = {name: float(table[f"cores_busy.{name}"]) for name in (WORKERS, *SERVERS)}
    return {
        "collectors": cases[0]["collectors"],
        **{name: float(table[name]) for name in ("env_steps_per_second", "alone")},
        "cores_busy": busy,
    }


def text(results: dict[str, Any]) -> str:
    """The results as a Markdown table."""
    lines = [
        "| workers | env steps/s | of N × one | loops alone | of N × one | cores: workers "
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
        cores = (f"{busy[name]:.2f}" for name in (WORKERS, *SERVERS))
        lines.append(f"| {' | '.join((str(count), *rates, *cores))} |")
    return "\n".join(lines)


def draw(results: dict[str, Any]) -> Figure:
    """Draws env steps per second of rollout workers, of loops alone, and linear scaling."""
    counts = [case["collectors"] for case in results["cases"]]
    rates = [case["env_steps_per_second"] for case in results["cases"]]
    cores = results["machine"]["cores"]
    with subplots(6, 3) as (figure, axes):
        linear = [rates[0] * min(count, cores) for count in counts]
        axes.plot(
            counts,
            linear,
            color=GREY,
            linestyle="--",
            label=f"rollout workers, if linear up to {cores} cores",
        )
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
@click.option(
    "--seconds",
    type=click.FloatRange(min=0, min_open=True),
    default=10.0,
    show_default=True,
    help="Seconds timed for each count.",
)
@click.option(
    "--rounds",
    type=click.IntRange(min=1),
    default=3,
    show_default=True,
    help="Rounds; results are their medians.",
)
@click.option("--quick", is_flag=True, help="A smoke test: one worker, two seconds.")
@click.option("--out", type=click.Path(path_type=Path), default=OUT, help="Output folder.")
def main(seconds: float, rounds: int, quick: bool, out: Path) -> None:
    """Measures, prints, and writes collection.json and collection.png."""
    results: dict[str, Any] = {"machine": machine()}
    counts, rounds, seconds = ((1,), 1, 2.0) if quick else ((1, 2, 4), rounds, seconds)
    measured = [measure(count, seconds) for _ in range(rounds) for count in counts]
    results["rounds"] = measured
    results["cases"] = [
        median_case([case for case in measured if case["collectors"] == count]) for count in counts
    ]
    out.mkdir(parents=True, exist_ok=True)
    (out / "collection.json").write_text(json.dumps(results, indent=1) + "\n")
    draw(results).savefig(out / "collection.png", dpi=110)
    print(text(results))


if __name__ == "__main__":
    main()
