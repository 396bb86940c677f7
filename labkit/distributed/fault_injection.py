"""Failures on purpose, for a lesson: a Ray actor of a running training is killed (notebook 04)."""

import contextlib
import threading
from collections.abc import Iterator

import ray

from labkit.distributed.context import NAMESPACE
from labkit.distributed.supervisor import prefix_of_job
from labkit.training.run import Run

LOOK_SECONDS = 0.1


@contextlib.contextmanager
def kill_once(run: Run, actor: str) -> Iterator[list[int]]:
    """Kills one Ray actor of a run in this process as soon as the run has logged losses.

    Run the training inside the block. After the block, no kill is pending.

    Args:
        run: of `labkit.train_on_ray`.
        actor: the last part of its name, such as "rollout worker 0".

    Yields:
        A list: empty, or with the gradient step at which the actor was killed.
    """
    killed: list[int] = []
    over = threading.Event()

    def watch() -> None:
        while not over.wait(LOOK_SECONDS):
            logged = run.metrics().dropna(subset="critic_loss")
            if len(logged) and _kill(actor):
                killed.append(int(logged.gradient_step.max()))
                return

    thread = threading.Thread(target=watch, daemon=True)
    thread.start()
    try:
        yield killed
    finally:
        over.set()
        thread.join()


def _kill(actor: str) -> bool:
    """Kills this process's actor, such that Ray restarts it; False if there is none."""
    if not ray.is_initialized():
        return False
    named = ray.util.list_named_actors(all_namespaces=True)
    names = [one["name"] for one in named if one["name"].endswith(f" {actor}")]
    names = [name for name in names if name.startswith(prefix_of_job())]  # others share a cluster
    for name in names:
        ray.kill(ray.get_actor(name, NAMESPACE), no_restart=False)
    return bool(names)
