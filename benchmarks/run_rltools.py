"""RLtools' SAC, in C++ with hand-written gradients, on the same environment; in .venv-peers.

It is compiled for these sizes when it is first used, which takes a minute, and runs in one thread.
"""

import argparse

import gymnasium
from gymnasium.envs.registration import EnvSpec
from rltools import SAC

from benchmarks.minitaur import hidden_output, minitaur
from benchmarks.stopwatch import Stopwatch, worker


def environment() -> gymnasium.Env:
    """The Minitaur, with its time limit where RLtools looks for it."""
    env = minitaur().unwrapped
    env.spec = EnvSpec("Minitaur-v0", max_episode_steps=1000)
    return env


def main(options: argparse.Namespace) -> dict[str, float]:
    """Times the loop: a step of it is an env step and, after `options.initial`, a gradient step."""
    stopwatch = Stopwatch(options.warmup, options.iterations)
    with hidden_output():
        algorithm = SAC(
            environment,
            interface_name="labkit_benchmark",
            enable_evaluation=False,
            ACTOR_BATCH_SIZE=256,
            CRITIC_BATCH_SIZE=256,
            ACTOR_HIDDEN_DIM=256,
            CRITIC_HIDDEN_DIM=256,
            ACTOR_NUM_LAYERS=3,  # with the output layer
            CRITIC_NUM_LAYERS=3,
            N_WARMUP_STEPS=options.initial,
            STEP_LIMIT=10**6,
        )
        state, done = algorithm.State(0), -options.initial
        while not stopwatch.tick(done):
            state.step()
            done += 1
    return stopwatch.result()


if __name__ == "__main__":
    worker(main)
