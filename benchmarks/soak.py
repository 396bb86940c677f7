"""Checks a long run of the local executor for leaks of memory and open files: `make soak`.

A trivial environment and small networks make 300 000 steps take minutes. Evaluations, checkpoints
and saved policies occur as often as in a run of millions of steps. The replay table is full after a
twentieth of the run; whatever grows later is a leak. Writes results/soak.csv.
"""

import sys
import tempfile
from pathlib import Path
from typing import Any

import labkit  # first: it silences gym

# isort: split
import click
import gym
import numpy as np
import pandas as pd
import psutil

RESULTS = Path(__file__).resolve().parent / "results"
MIB_ALLOWED, FILES_ALLOWED = 100, 5  # growth since the first fifth of the run


class Cheap(gym.Env):
    """A point on a line, moved by the action; its distance to 0 is the cost; 200 steps."""

    observation_space = gym.spaces.Box(-10, 10, (2,), np.float32)
    action_space = gym.spaces.Box(-1, 1, (1,), np.float32)

    def reset(self) -> np.ndarray:
        """Begins an episode at 1."""
        self._position, self._steps = 1.0, 0
        return np.array([self._position, 0], np.float32)

    def step(self, action: np.ndarray) -> tuple[np.ndarray, float, bool, dict]:
        """Moves the point by a tenth of the action."""
        self._position += 0.1 * float(action[0])
        self._steps += 1
        observation = np.array([np.clip(self._position, -10, 10), 0], np.float32)
        return observation, -abs(self._position), self._steps == 200, {}


def measure(steps: int) -> pd.DataFrame:
    """Trains `steps` gradient steps; returns a row of usage for each sixtieth of the run."""
    config = labkit.SACConfig(
        env_name="Cheap",
        num_iterations=steps,
        initial_collect_steps=1_000,
        replay_buffer_capacity=max(1_000, steps // 20),
        batch_size=32,
        actor_fc_layer_params=(32, 32),
        critic_joint_fc_layer_params=(32, 32),
        log_interval=steps // 60,
        eval_interval=steps // 30,
        policy_save_interval=steps // 30,
        checkpoint_interval=steps // 30,
    )
    usage, process = [], psutil.Process()

    def record(row: dict[str, Any]) -> None:
        resident = process.memory_info().rss / 2**20
        usage.append((int(row["gradient_step"]), resident, process.num_fds()))

    with tempfile.TemporaryDirectory() as folder:
        run = labkit.open_run(folder, config)
        labkit.train(config, run, make_env=Cheap, on_metrics=record)
    return pd.DataFrame(usage, columns=["gradient_step", "resident_mib", "open_files"])


def growth(table: pd.DataFrame) -> tuple[float, int]:
    """Growth of resident MiB and open files from the first fifth of the run to its end."""
    settled = table.iloc[len(table) // 5]
    last = table.iloc[-1]
    return last.resident_mib - settled.resident_mib, int(last.open_files - settled.open_files)


@click.command()
@click.option(
    "--steps",
    type=click.IntRange(min=1),
    default=300_000,
    show_default=True,
    help="Gradient steps.",
)
@click.option(
    "--out", type=click.Path(path_type=Path), default=RESULTS / "soak.csv", help="Of the result."
)
def main(steps: int, out: Path) -> None:
    """Measures, prints, and writes; fails if memory or open files grow."""
    table = measure(steps)
    out.parent.mkdir(parents=True, exist_ok=True)
    table.round(1).to_csv(out, index=False)
    print(table.iloc[:: max(1, len(table) // 12)].round(1).to_string(index=False))
    memory, files = growth(table)
    print(f"since the first fifth: {memory:+.0f} MiB, {files:+d} open files; {out}")
    if memory > MIB_ALLOWED or files > FILES_ALLOWED:
        sys.exit(f"growth must be at most {MIB_ALLOWED} MiB and {FILES_ALLOWED} open files")


if __name__ == "__main__":
    main()
