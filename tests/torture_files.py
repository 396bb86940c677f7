"""Damages the files of a run, round after round, and checks what is left: `make torture`.

    python tests/torture.py --rounds 100

A round copies a small run, damages the copy in one of the ways of `ROUNDS`, and resumes it. The
user's own files, which lie among the run's, must not change; neither may anything before the last
whole checkpoint be lost.
"""

import contextlib
import io
import random
import shutil
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any
from unittest import mock

import pytest
from small import Walk
from small_disk import fill, may_mount, small_disk
from torture import arrays_of, digest

import labkit
from labkit.errors import ParameterError, RunError
from labkit.sac.agent import state_variables
from labkit.training import checkpoint, components, learner, local
from labkit.training import run as run_directory
from labkit.training.records import read_metrics
from labkit.training.run import open_run

INITIAL, FIRST, LAST, NEXT = 100, 20, 40, 50  # env steps; gradient steps of checkpoints and the end
USERS = ("notes.txt", "checkpoints/notes.txt", "videos/mine.mp4", ".hidden", "../beside.txt")


def configure(kind: str, steps: int) -> labkit.SACConfig:
    """Small networks, a row for every step, two checkpoints in the first `LAST` steps."""
    return labkit.SACConfig(
        env_name="Walk",
        num_iterations=steps,
        initial_collect_steps=INITIAL,
        replay_buffer_capacity=1_000,
        batch_size=16,
        actor_fc_layer_params=(8,),
        critic_joint_fc_layer_params=(8,),
        log_interval=1,
        eval_interval=10,
        interim_eval_episodes=1,
        num_eval_episodes=2,
        policy_save_interval=30,
        checkpoint_interval=FIRST,
        replay=kind,
    )


def train(path: Path, kind: str, steps: int) -> tuple[list[int], str]:
    """Opens and trains a run; the steps that it resumed from, and what it printed.

    Raises:
        AssertionError: it resumed with other weights, counters or rows than its checkpoint has.
    """
    resumed, printed = [], io.StringIO()
    real = local.LocalTraining.restore

    def restore(self: local.LocalTraining, saved: Path) -> None:
        real(self, saved)
        expected = digest(arrays_of(saved))
        assert digest(v.numpy() for v in state_variables(self.components.agent)) == expected
        assert self.step == int(saved.name)
        assert self.components.replay.size() == INITIAL + self.step
        resumed.append(self.step)

    config = configure(kind, steps)
    with (
        contextlib.redirect_stdout(printed),
        mock.patch.object(local.LocalTraining, "restore", restore),
    ):
        labkit.train(config, open_run(path, config), make_env=Walk)
    return resumed, printed.getvalue()


def check_complete(path: Path, steps: int) -> None:
    """Every step once and in order, and a policy that loads."""
    table = read_metrics(path)
    logged = table.gradient_step[table.critic_loss.notna()].tolist()
    assert logged == list(range(1, steps + 1)), logged
    final = table[(table.gradient_step == steps) & table.eval_return.notna()]
    assert len(final) == 1, "the final evaluation is there once"
    assert (path / "policy" / "saved_model.pb").exists()
    checkpoint.check(checkpoint.latest(path / "checkpoints"))


# --- the rounds ----------------------------------------------------------------------------------


def newest_file(path: Path, generator: random.Random) -> Path:
    """A file with content of the newest checkpoint."""
    newest = checkpoint.latest(path / "checkpoints")
    return generator.choice(
        [f for f in sorted(newest.rglob("*")) if f.is_file() and f.stat().st_size]
    )


def cut(file: Path, generator: random.Random, least: int = 0) -> None:
    """Ends a file at a random place after `least` bytes; every other time NULs follow."""
    content = file.read_bytes()
    kept = generator.randint(least, max(least, len(content) - 1))
    file.write_bytes(content[:kept] + bytes(generator.choice([0, len(content) - kept])))


def flip(file: Path, generator: random.Random) -> None:
    """Changes one bit."""
    content = bytearray(file.read_bytes())
    content[generator.randrange(len(content))] ^= 1 << generator.randrange(8)
    file.write_bytes(content)


def power_failure(path: Path, kind: str, generator: random.Random) -> str:
    """Cuts what was written after the last fsync: rows, events, an unfinished checkpoint."""
    newest = checkpoint.latest(path / "checkpoints")
    file = path / "metrics.csv"
    synced = len(file.read_bytes())
    _, _, rest = file.read_bytes().splitlines(keepends=True)[2].split(b",", 2)
    later = b"".join(b"%d,%d,%s" % (INITIAL + LAST + i, LAST + i, rest) for i in (1, 2, 3))
    file.write_bytes(file.read_bytes() + later)
    cut(file, generator, synced)
    shutil.copytree(newest, path / "checkpoints" / "partial")
    for unfinished in [
        *(path / "checkpoints" / "partial").rglob("*"),
        *(path / "events").iterdir(),
    ]:
        if unfinished.is_file():
            cut(unfinished, generator)
    resumed, printed = train(path, kind, NEXT)
    assert resumed == [LAST], resumed
    assert "damaged" not in printed
    check_complete(path, NEXT)
    return "resumed from the last checkpoint, nothing lost"


def damaged_checkpoint(path: Path, kind: str, generator: random.Random) -> str:
    """A flipped bit or a cut in one file of the newest checkpoint."""
    newest = checkpoint.latest(path / "checkpoints")
    file = newest_file(path, generator)
    before, content = arrays_of(newest), file.read_bytes()
    while file.read_bytes() == content:
        generator.choice([flip, cut])(file, generator)
    try:
        checkpoint.check(newest)
        used = LAST  # a date in a ZIP archive, for example
        assert digest(arrays_of(newest)) == digest(before)
    except ParameterError:
        used = FIRST
    resumed, printed = train(path, kind, NEXT)
    assert resumed == [used], resumed
    assert printed.count(str(file)) == (used == FIRST), printed
    check_complete(path, NEXT)
    return f"{file.name}: resumed from gradient step {used}"


PHASES: dict[str, tuple[Any, str]] = {
    "the start": (run_directory, "_acquire"),
    "the warm-up": (components, "random_policy"),
    "the events": (learner.Learner, "_write_events"),
    "a checkpoint": (checkpoint, "save"),
    "a policy": (learner.Learner, "_save_policy"),
    "an evaluation": (learner.Learner, "log_evaluation"),
}


def full_disk(path: Path, kind: str, generator: random.Random) -> str:
    """A disk that is full from one phase on, in a new run or a resumed one; then it has room."""
    phase = generator.choice(sorted(PHASES))
    owner, name = PHASES[phase]
    real = getattr(owner, name)
    if not may_mount():
        return ""
    with small_disk(path.with_name("disk"), 16_384) as disk:
        place = disk / "run"
        if generator.random() < 0.5 and phase != "the warm-up":
            shutil.copytree(path, place)

        def full(*arguments: Any, **options: Any) -> Any:
            fill(disk, leave=generator.choice([0, 2_000]))
            return real(*arguments, **options)

        with mock.patch.object(owner, name, full):
            try:
                train(place, kind, NEXT)  # which ends well if its last row had room in its page
            except (ParameterError, RunError) as error:
                assert "\n" not in str(error), error  # noqa: PT017
        (disk / ".filler").unlink()
        saved = checkpoint.latest(place / "checkpoints")
        resumed, printed = train(place, kind, NEXT)
        assert resumed == ([int(saved.name)] if saved else []), "the last checkpoint was not used"
        assert "damaged" not in printed
        check_complete(place, NEXT)
    return f"full during {phase}: one line, then resumed"


@contextlib.contextmanager
def refused(kind: Any, message: str) -> Iterator[None]:
    """The block must raise one line that contains `message`."""
    with pytest.raises(kind) as caught:
        yield
    assert "\n" not in str(caught.value)
    assert message in str(caught.value), caught.value


ROUNDS: list[Callable[[Path, str, random.Random], str]] = [
    power_failure,
    damaged_checkpoint,
    full_disk,
]


def torture_files(
    rounds: int, seed: int = 0, say: Callable[[str], Any] = lambda _: None
) -> Counter:
    """Plays `rounds` rounds; how often each kind was played, and not left out.

    Raises:
        AssertionError: something was lost, doubled or changed.
    """
    generator, played = random.Random(seed), Counter[str]()
    with tempfile.TemporaryDirectory() as name:
        templates = {}
        for kind in ("reverb", "tf_uniform"):
            templates[kind] = Path(name) / kind
            train(templates[kind], kind, LAST)
        for number in range(rounds):
            play = ROUNDS[number % len(ROUNDS)]
            kind = ("reverb", "tf_uniform")[(number + number // len(ROUNDS)) % 2]
            path = Path(name) / str(number) / "run"
            shutil.copytree(templates[kind], path)
            users = {path / file: generator.randbytes(100) for file in USERS}
            for file, content in users.items():
                file.parent.mkdir(exist_ok=True)
                file.write_bytes(content)
            outcome = play(path, kind, generator)
            for file, content in users.items():
                assert file.read_bytes() == content, f"{file} of the user was changed"
            played[play.__name__] += bool(outcome)
            say(f"round {number + 1}, {kind}, {play.__name__}: {outcome}")
            shutil.rmtree(path.parent)
    return played
