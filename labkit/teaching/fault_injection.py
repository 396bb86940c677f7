"""Failures on purpose: a Ray actor of a running training is killed (notebook 04)."""

import contextlib
import threading
from collections.abc import Iterator

import ray

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
            step = run.metrics().gradient_step.max()  # NaN before the first row
            if step > 0 and ray.is_initialized():
                for name in ray.util.list_named_actors():
                    if name.endswith(f" {actor}"):
                        ray.kill(ray.get_actor(name), no_restart=False)  # Ray restarts it
                        killed.append(int(step))
                        return

    thread = threading.Thread(target=watch, daemon=True)
    thread.start()
    try:
        yield killed
    finally:
        over.set()
        thread.join()
