"""Trains LunarLanderContinuous on both executors, and times them next to Stable-Baselines3.

    python -m benchmarks.lunarlander            # local and ray, seeds 0 1 2, then the timing
    python -m benchmarks.lunarlander --executors ray --seeds 3 --no-timing
    python -m benchmarks.lunarlander --page     # only writes the page from the tracked runs

All of it takes an afternoon. A run ends at the first evaluation with a mean return of at least 200
over 20 deterministic episodes, or after 300 000 env steps. Every evaluation of a run plays the same
20 episodes, so the first mean of 200 is chosen among several looks. Therefore the policy that the
run leaves is confirmed with 100 other episodes, and only that counts as solved. Runs are stored
under runs/lunarlander/; the same command resumes interrupted ones. Their small files, and each
policy that 100 episodes tried, are copied to results/lunarlander/; a tracked run that another one
replaces stays there as `…-replaced-1`. The page is results/lunarlander/README.md;
lunarlander_page.py writes it.

Ctrl-C and SIGTERM end the whole command: the run that is being trained is saved first.
"""

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import click
import numpy as np

import labkit
from benchmarks import implementations, lunarlander_page
from benchmarks.lunarlander_page import EPISODES, MOST_ENV_STEPS, RESULTS, solved_at
from benchmarks.throughput import machine
from labkit.analysis import tracked_runs
from labkit.cli import watch
from labkit.errors import ParameterError
from labkit.sac.rollout import evaluate
from labkit.training import resuming, run_directory, signals

ENV = "LunarLanderContinuous-v2"
CONFIRM_EPISODES, CONFIRM_SEED = 100, 30_000_001  # no evaluation of a training uses such a seed
TIMED_STEPS, WARMUP_STEPS = 20_000, 1_000
RUNS = implementations.ROOT / "runs" / "lunarlander"
RESUMES = "the same command resumes"


def configure(seed: int, **changes: Any) -> labkit.SACConfig:
    """Settings tuned for the lander, with the evaluation that the criterion requires."""
    settings: dict[str, Any] = {
        "env_name": ENV,
        "seed": seed,
        "num_iterations": MOST_ENV_STEPS - 10_000,
        "initial_collect_steps": 10_000,
        "critic_learning_rate": 7.3e-4,
        "actor_learning_rate": 7.3e-4,
        "alpha_learning_rate": 7.3e-4,
        "target_update_tau": 0.01,
        "interim_eval_episodes": EPISODES,
        "num_eval_episodes": EPISODES,
        "eval_interval": 10_000,
    }
    return labkit.SACConfig(**{**settings, **changes})


def train(executor: str, config: labkit.SACConfig, run: run_directory.Run) -> None:
    """Trains with one executor, "local" or "ray"."""
    if executor == "ray":
        labkit.train_on_ray(config, 1, run=run)
    else:
        labkit.train(config, run=run)


def solve(executor: str, seed: int) -> bool:
    """Trains until solved or until the budget is spent; skips a run that is finished.

    Returns:
        Whether the run has ended; otherwise someone has stopped it.
    """
    path, config = RUNS / f"{executor}-{seed}", configure(seed)
    if (path / "config.json").exists() and has_ended(path, config):
        return True
    run, stop = run_directory.open_run(path, config), path / "stop"
    stop.unlink(missing_ok=True)
    os.environ[signals.FILE_VARIABLE] = str(stop)
    over = threading.Event()
    threading.Thread(target=stop_when_solved, args=(path, stop, over), daemon=True).start()
    try:
        train(executor, config, run)
    finally:
        over.set()
        os.environ.pop(signals.FILE_VARIABLE, None)  # or the next training here would stop, too
    return has_ended(path, config)


def has_ended(path: Path, config: labkit.SACConfig) -> bool:
    """Whether a run is solved, or has spent its budget."""
    return bool(solved_at(path)) or resuming.is_finished(path, config)


def stop_when_solved(path: Path, stop: Path, over: threading.Event, seconds: float = 1) -> None:
    """Creates the file `stop` when the run is solved; looks every few seconds until `over`."""
    while not over.wait(seconds):
        with contextlib.suppress(ParameterError):  # metrics.csv may be missing for a moment
            if solved_at(path):
                stop.touch()
                return


def confirm(path: Path) -> None:
    """Plays 100 new episodes with the policy of a run; writes `confirmation.json` into it.

    Raises:
        ParameterError: the run has no saved policy.
    """
    seed = run_directory.read_config(path).seed + CONFIRM_SEED
    env, policy = watch.load(path)
    returns = evaluate(env, policy, CONFIRM_EPISODES, seed).returns
    found = {
        "episodes": len(returns),
        "seed": seed,
        "mean_return": float(np.mean(returns)),
        "standard_error": float(np.std(returns, ddof=1) / np.sqrt(len(returns))),
    }
    (path / lunarlander_page.CONFIRMATION).write_text(json.dumps(found, indent=1) + "\n")


def keep(executor: str, seed: int) -> None:
    """Copies a run's small files and its policy, if 100 new episodes tried it, to results/.

    A different run that is tracked there stays, too.
    """
    source, target = RUNS / f"{executor}-{seed}", RESULTS / f"{executor}-{seed}"
    tracked_runs.keep_replaced(source, target)
    tracked_runs.copy_records(source, target)
    if (source / lunarlander_page.CONFIRMATION).exists():
        name = lunarlander_page.CONFIRMATION
        shutil.copyfile(source / name, target / name)
        # Anyone can confirm it again, or watch it: `labkit watch results/lunarlander/local-0`.
        shutil.rmtree(target / "policy", ignore_errors=True)
        shutil.copytree(source / "policy", target / "policy")


def time_labkit(executor: str) -> float:
    """Wall seconds of 20 000 iterations without evaluations, in this process."""
    last = WARMUP_STEPS + TIMED_STEPS
    config = configure(
        0,
        num_iterations=last,
        initial_collect_steps=1_000,
        eval_interval=0,
        interim_eval_episodes=1,
        num_eval_episodes=1,
        log_interval=WARMUP_STEPS,
    )
    path = RUNS / f"timing-{executor}"
    shutil.rmtree(path, ignore_errors=True)
    run = run_directory.open_run(path, config)
    train(executor, config, run)
    table = run.metrics()
    rows = table[table.critic_loss.notna()].set_index("gradient_step").wall_seconds
    return float(rows[last] - rows[WARMUP_STEPS])


def timing(with_peers: bool, repeats: int) -> dict[str, Any]:
    """Times both executors and Stable-Baselines3 in alternation, each in its own process."""
    commands = {
        name: [sys.executable, "-m", "benchmarks.lunarlander", "--time", name]
        for name in ("local", "ray")
    }
    if with_peers:
        implementations.make_peers_venv()
        module = "benchmarks.lunarlander_sb3"
        commands["sb3"] = [str(implementations.PEERS_PYTHON), "-m", module, str(TIMED_STEPS)]
    seconds: dict[str, list[float]] = {name: [] for name in commands}
    env = {**os.environ, "PYTHONPATH": str(implementations.ROOT)}
    before = machine()  # its load is that of other programs
    for _ in range(repeats):
        for name, command in commands.items():
            done = subprocess.run(
                command,
                cwd=implementations.ROOT,
                env=env,
                capture_output=True,
                text=True,
                timeout=1800,
            )
            if done.returncode:
                raise RuntimeError(f"{name} failed: {done.stderr[-400:]}")
            seconds[name].append(float(done.stdout.strip().splitlines()[-1]))
    return {"machine": before, "seconds_per_20000_steps": seconds}


@contextlib.contextmanager
def stoppable() -> Iterator[None]:
    """Ends the command with one line at Ctrl-C or SIGTERM.

    `train` handles the signals of its own run, and saves it.
    """
    old = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    except KeyboardInterrupt as error:
        click.echo(f"stopped{f' {error}' if str(error) else ''}: {RESUMES}", err=True)
        sys.exit(130)
    finally:
        signal.signal(signal.SIGTERM, old)


@click.command()
@click.option(
    "--executors",
    multiple=True,
    type=click.Choice(["local", "ray"]),
    default=("local", "ray"),
    show_default=True,
    help="Only these.",
)
@click.option(
    "--seeds",
    multiple=True,
    type=click.IntRange(min=0),
    default=(0, 1, 2),
    show_default=True,
    help="Only these.",
)
@click.option("--train/--no-train", "trained", default=True, help="Train, or use existing runs.")
@click.option("--page", "only_page", is_flag=True, help="Only write the page of the tracked runs.")
@click.option("--timing/--no-timing", "timed", default=True, help="Time 20 000 steps.")
@click.option("--without-peers", is_flag=True, help="Leave Stable-Baselines3 out.")
@click.option(
    "--repeats",
    type=click.IntRange(min=1),
    default=3,
    show_default=True,
    help="Rounds of the timing.",
)
@click.option("--time", "only", type=click.Choice(["local", "ray"]), hidden=True)
def main(
    executors: Sequence[str],
    seeds: Sequence[int],
    trained: bool,
    only_page: bool,
    timed: bool,
    without_peers: bool,
    repeats: int,
    only: str | None,
) -> None:
    """Trains, confirms, times, and writes results/lunarlander/."""
    if only_page:
        lunarlander_page.write()
        return
    if only:
        print(time_labkit(only))
        return
    begin = time.monotonic()
    RESULTS.mkdir(parents=True, exist_ok=True)
    with stoppable():
        for seed in seeds:
            for executor in executors:
                path = RUNS / f"{executor}-{seed}"
                if trained:
                    if not solve(executor, seed):
                        raise KeyboardInterrupt(f"during {path.name}, which is saved")
                elif not (path / "config.json").exists():
                    continue
                if solved_at(path) and not (path / lunarlander_page.CONFIRMATION).exists():
                    confirm(path)
                keep(executor, seed)
        if timed:
            found = timing(not without_peers, repeats)
            (RESULTS / "timing.json").write_text(json.dumps(found, indent=1) + "\n")
            print(found["seconds_per_20000_steps"])
    lunarlander_page.write()
    print(f"{(time.monotonic() - begin) / 60:.0f} minutes; {RESULTS} written")


if __name__ == "__main__":
    main()
