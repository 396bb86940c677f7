"""Kills a training again and again, and checks item by item that nothing is lost: `make torture`.

    python tests/torture.py --kills 20 --steps 6000
    python tests/torture.py --rounds 100        damages files instead: see torture_files

The training is a process that is killed with SIGKILL at random moments, every other time while
a checkpoint is being written. Each transition carries the number of the process's life and of its
step in it, so that the table can be read back and compared with a journal that the process keeps
outside of the run directory. The journal's writes are single system calls: SIGKILL loses none.
"""

import argparse
import hashlib
import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

import labkit
from labkit.replay import reverb_replay, transitions, uniform_replay
from labkit.sac.agent import state_variables
from labkit.training import checkpoint, local
from labkit.training.records import read_metrics
from labkit.training.run import open_run

LIMIT_SECONDS = 180  # for one life to show a sign of progress, and for the last one to end
INITIAL = 200
LAYOUT = transitions.Layout(2, 1)


def configure(steps: int, kind: str) -> labkit.SACConfig:
    """Small networks, a row of metrics for every step, checkpoints all the time."""
    return labkit.SACConfig(
        env_name="Counter",
        num_iterations=steps,
        initial_collect_steps=INITIAL,
        batch_size=32,
        observation_scale=(100.0, 10_000.0),
        actor_fc_layer_params=(16,),
        critic_joint_fc_layer_params=(16,),
        log_interval=1,
        eval_interval=steps // 4,
        interim_eval_episodes=1,
        num_eval_episodes=2,
        policy_save_interval=0,
        checkpoint_interval=max(10, steps // 60),
        replay=kind,
    )


# --- the process that is killed ------------------------------------------------------------------


def live(folder: Path, life: int, steps: int, kind: str) -> None:
    """One life of the training; it says in the journal what it does before it does it."""
    import gym

    class Counter(gym.Env):
        """Observes the number of this life, and how often it was stepped in it."""

        observation_space = gym.spaces.Box(-1e7, 1e7, (2,), np.float32)
        action_space = gym.spaces.Box(-1, 1, (1,), np.float32)
        steps = 0

        def reset(self):
            return np.array([life, self.steps], np.float32)

        def step(self, action):
            self.steps += 1
            done = self.steps % 50 == 0
            return np.array([life, self.steps], np.float32), float(action[0]), done, {}

    journal = os.open(folder / "journal", os.O_WRONLY | os.O_APPEND | os.O_CREAT)

    def tell(*words) -> None:
        os.write(journal, (" ".join(map(str, words)) + "\n").encode())

    class Table(reverb_replay.ReverbReplay if kind == "reverb" else uniform_replay.UniformReplay):  # type: ignore
        def write(self, transition):
            tell("wrote", life, int(transition.observation[1]))
            super().write(transition)

    if kind == "reverb":
        reverb_replay.ReverbReplay = Table
    else:
        uniform_replay.UniformReplay = Table
    save = checkpoint.save

    def told_save(to, step, *others):
        tell("saving", step)
        return save(to, step, *others)

    checkpoint.save = told_save
    restore = local.LocalTraining.restore

    def told_restore(self, saved):
        restore(self, saved)
        tell(
            "restored",
            int(saved.name),
            digest(v.numpy() for v in state_variables(self.components.agent)),
        )

    local.LocalTraining.restore = told_restore
    tell("life", life)
    config = configure(steps, kind)
    run = open_run(folder / "run", config)
    labkit.train(config, run, make_env=Counter)


def digest(arrays) -> str:
    """A hash of arrays, values and order."""
    total = hashlib.sha256()
    for array in arrays:
        total.update(np.ascontiguousarray(array).tobytes())
    return total.hexdigest()


# --- the one that kills and checks ---------------------------------------------------------------


def torture(
    folder: Path, kills: int, steps: int, kind: str = "reverb", say=lambda *_: None
) -> dict:
    """Kills `kills` lives, lets the last one end, and checks everything.

    Returns:
        What happened: how many kills fell into the writing of a checkpoint, and more.

    Raises:
        AssertionError: something was lost, doubled or changed.
    """
    generator = random.Random(0)
    digests: dict[int, str] = {}
    seen = {"kills": 0, "while_saving": 0, "resumed": 0, "compared_rows": 0}
    for life in range(kills + 1):
        process = start(folder, life, steps, kind)
        if life < kills:
            seen["while_saving"] += wait_and_kill(process, folder, life % 2 == 1, generator)
            seen["kills"] += 1
        else:
            output, _ = process.communicate(timeout=LIMIT_SECONDS + steps)
            assert process.returncode == 0, output[-3000:]
        seen["compared_rows"] += check_table(folder, kind)
        digests |= saved_digests(folder)
        say(f"life {life}: checkpoints {sorted(usable(folder))}, {seen}")
    seen["resumed"] = check_restarts(folder, digests)
    assert seen["resumed"] == kills
    check_metrics(folder / "run", steps)
    return seen


def start(folder: Path, life: int, steps: int, kind: str) -> subprocess.Popen:
    """Begins a life in a separate process."""
    arguments = ["--live", str(life), "--folder", str(folder), "--steps", str(steps)]
    return subprocess.Popen(
        [sys.executable, __file__, *arguments, "--replay", kind],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def wait_and_kill(process, folder: Path, while_saving: bool, generator) -> bool:
    """Waits until this life has got further, then kills it; whether a checkpoint was half done."""
    checkpoints = folder / "run" / "checkpoints"
    before, deadline = max(usable(folder), default=0), time.monotonic() + LIMIT_SECONDS
    while max(checkpoint.steps(checkpoints), default=0) <= before:
        assert process.poll() is None, process.communicate()[0][-3000:]
        assert time.monotonic() < deadline, "no checkpoint came"
        time.sleep(0.005)
    time.sleep(generator.uniform(0, 0.3))
    partial = checkpoints / "partial"
    while while_saving and not partial.exists() and process.poll() is None:
        time.sleep(0.0005)
    if while_saving:
        time.sleep(generator.uniform(0, 0.02))
    process.send_signal(signal.SIGKILL)
    assert process.wait() == -signal.SIGKILL, "it ended before it was killed: take more steps"
    process.stdout.close()
    return partial.exists()


def story(folder: Path) -> tuple[dict[int, list[tuple[int, int]]], list[tuple[int, str]]]:
    """From the journal: what each checkpoint must hold, oldest first, and every restart."""
    held: dict[int, list[tuple[int, int]]] = {}
    now: list[tuple[int, int]] = []
    restarts = []
    for line in (folder / "journal").read_text().splitlines():
        word, *rest = line.split()
        if word == "life":
            now = []
        elif word == "wrote":
            now.append((int(rest[0]), int(rest[1])))
        elif word == "saving":
            held[int(rest[0])] = list(now)
        elif word == "restored":
            now = list(held[int(rest[0])])
            restarts.append((int(rest[0]), rest[1]))
    return held, restarts


def check_table(folder: Path, kind: str) -> int:
    """Reads back every row of the newest checkpoint and compares with the journal."""
    step, newest = max(usable(folder).items())
    expected = story(folder)[0][step]
    table = {"reverb": reverb_replay.ReverbReplay, "tf_uniform": uniform_replay.UniformReplay}[
        kind
    ](LAYOUT, configure(1, kind).replay_buffer_capacity)
    table.restore(newest / "replay")
    assert table.size() == len(expected) == len(set(expected))
    found: set[tuple[int, int]] = set()
    for _ in range(200):
        drawn = table.sample(256 * 20)
        found |= {(int(life), int(step)) for life, step in drawn[:, :2]}
        if len(found) == len(expected):
            break
    table.close()
    assert found == set(expected), "the table holds other transitions than were written"
    return len(expected)


def saved_digests(folder: Path) -> dict[int, str]:
    """The hash of every agent that a checkpoint holds now; a later life starts from one of them."""
    return {step: digest(arrays_of(saved)) for step, saved in usable(folder).items()}


def arrays_of(saved: Path) -> list[np.ndarray]:
    """The variables of the agent in a checkpoint, in order."""
    with np.load(saved / checkpoint.AGENT) as arrays:
        return [arrays[name] for name in sorted(arrays)]


def usable(folder: Path) -> dict[int, Path]:
    """Every checkpoint that the next life may start from."""
    saved = folder / "run" / "checkpoints"
    return {step: saved / f"{step:09d}" for step in checkpoint.steps(saved)}


def check_restarts(folder: Path, digests: dict[int, str]) -> int:
    """Every restart began with exactly the weights, moments and counters of its checkpoint."""
    _, restarts = story(folder)
    for step, found in restarts:
        assert found == digests[step], f"other weights than were saved at step {step}"
    return len(restarts)


def check_metrics(run: Path, steps: int) -> None:
    """Every step once, in order; none twice, none missing."""
    table = read_metrics(run)
    logged = table[table.critic_loss.notna()]
    assert logged.gradient_step.tolist() == list(range(1, steps + 1))
    assert (logged.env_step == INITIAL + logged.gradient_step).all()
    quarter = steps // 4
    evaluated = table.gradient_step[table.eval_return.notna()].tolist()
    assert evaluated == sorted({*range(0, steps, quarter), steps})
    assert (np.diff(table.wall_seconds) >= 0).all()


def positive(text: str) -> int:
    """A count from the command line; with 0, nothing would be checked."""
    if int(text) < 1:
        raise argparse.ArgumentTypeError(f"must be at least 1, got {text}")
    return int(text)


def main() -> int:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--kills", type=positive, default=20)
    parser.add_argument("--steps", type=positive, default=6000)
    parser.add_argument("--replay", default="reverb", choices=["reverb", "tf_uniform"])
    parser.add_argument(
        "--rounds", type=positive, help="damage a run's files this often, kill nothing"
    )
    parser.add_argument("--seed", type=int, default=0, help="of the damage in these rounds")
    parser.add_argument("--folder", type=Path)
    parser.add_argument("--live", type=int, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.live is not None:
        live(options.folder, options.live, options.steps, options.replay)
        return 0
    if options.rounds is not None:
        from torture_files import torture_files

        began = time.monotonic()
        played = torture_files(options.rounds, options.seed, lambda line: print(line, flush=True))
        print(f"nothing was lost in {time.monotonic() - began:.0f} s: {dict(played)}")
        return 0
    with tempfile.TemporaryDirectory() as folder:
        began = time.monotonic()
        seen = torture(Path(folder), options.kills, options.steps, options.replay, print)
        print(f"nothing was lost in {time.monotonic() - began:.0f} s: {seen}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
