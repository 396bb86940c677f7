"""Whether commits train alike: the first losses of each, to the bit.

    .venv/bin/python scripts/first_losses.py COMMIT ...    # writes study/first_losses.csv

Reverb draws other batches in each run. So this program draws them with NumPy, from the transitions
of a warm-up, and gives the same ones to the gradient step of each commit. Parameters are those of
the present defaults, seed 1.
"""

import hashlib
import os
import subprocess
import sys
import tempfile
from pathlib import Path

import click
import numpy as np
import pandas as pd

ROOT = Path(__file__).resolve().parent.parent
FILE = ROOT / "results" / "minitaur" / "study" / "first_losses.csv"
SEED, ENV_STEPS, GRADIENT_STEPS = 1, 3_000, 10


@click.command()
@click.argument("commits", nargs=-1, required=True)
def main(commits: tuple[str, ...]) -> None:
    """Compares COMMITS, each in its own clone."""
    rows = []
    for commit in commits:
        with tempfile.TemporaryDirectory() as folder:
            subprocess.run(["git", "clone", "--quiet", str(ROOT), folder], check=True)
            subprocess.run(["git", "checkout", "--quiet", commit], cwd=folder, check=True)
            rows.append({"commit": commit, **measured(Path(folder))})
            print(rows[-1])
    pd.DataFrame(rows).to_csv(FILE, index=False)


def measured(checkout: Path) -> dict[str, str]:
    """The digests that the code of a checkout gives."""
    command = [sys.executable, __file__, "--measure"]
    env = {**os.environ, "PYTHONPATH": str(checkout)}
    done = subprocess.run(command, cwd=checkout, env=env, check=True, stdout=subprocess.PIPE)
    names = ("transitions", "losses", "weights")
    return dict(zip(names, done.stdout.decode().splitlines()[-1].split(), strict=True))


def measure() -> None:
    """Prints the digests of transitions, losses and weights, with the labkit that is imported."""
    from labkit.config import SACConfig
    from labkit.replay.transitions import layout_of, pack
    from labkit.sac.rollout import Collector, random_policy
    from labkit.sac.update import make_update
    from labkit.training import components

    # An earlier commit had another default of the target entropy, and its runs were given this one.
    config = SACConfig(seed=SEED, target_entropy=-4.0, replay="tf_uniform")
    built = components.build(config)
    rows: list[np.ndarray] = []
    spec = built.collect_env.action_spec()
    policy = random_policy(spec, SEED + components.NOISE_SEED, config.action_repeat)
    windows = {"n_step": config.n_step, "gamma": config.gamma}
    Collector(built.collect_env, policy, lambda row: rows.append(pack(row)), **windows).run(
        ENV_STEPS
    )
    table = np.array(rows)
    update = make_update(
        built.agent, layout_of(built.collect_env), built.strategy, config.reflection
    )
    generator = np.random.default_rng(0)
    losses = [
        update(table[generator.integers(len(table), size=config.batch_size)])[0].numpy()
        for _ in range(GRADIENT_STEPS)
    ]
    weights = [variable.numpy() for variable in built.agent.variables]
    print(digest([table]), digest(losses), digest(weights))


def digest(arrays: list[np.ndarray]) -> str:
    """The first 16 digits of the SHA-256 of some arrays."""
    return hashlib.sha256(b"".join(array.tobytes() for array in arrays)).hexdigest()[:16]


if __name__ == "__main__":
    if sys.argv[1:] == ["--measure"]:
        measure()
    else:
        main()
