"""Golden runs: transitions and losses that a change of structure must not change.

    python tests/golden.py            # records every case anew in tests/data/golden.npz
    python tests/golden.py CASE FILE  # computes one case; each needs a process of its own

Reverb draws other batches in each run. So these are drawn with NumPy, from the first transitions.
Only the cases `uniform` and `resumed` are whole runs: TF-Agents' buffer can be seeded.
"""

import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np

DATA = Path(__file__).parent / "data" / "golden.npz"
TRANSITIONS, GRADIENT_STEPS = 300, 10
NAMES = ["critic_loss", "actor_loss", "alpha_loss"]
CASES: dict[str, dict] = {
    "minitaur": {},
    "mirrored": {"strategy": "mirrored:2"},
    "gymnasium": {"env_name": "gymnasium:Pendulum-v1"},
    "uniform": {"replay": "tf_uniform", "num_iterations": GRADIENT_STEPS},
    "resumed": {"replay": "tf_uniform", "num_iterations": GRADIENT_STEPS},
}


def compute(case: str) -> dict[str, np.ndarray]:
    """The first transitions `[300, width]` and losses `[10, 3]` of a case, float32."""
    import labkit

    config = labkit.SACConfig(
        seed=1,
        initial_collect_steps=TRANSITIONS,
        **{"replay_buffer_capacity": 2_000},
        **CASES[case],
    )
    if config.replay == "tf_uniform":
        return whole_run(config, resume=case == "resumed")
    return single_steps(config)


def single_steps(config) -> dict[str, np.ndarray]:
    """Gradient steps on batches that NumPy draws from the transitions of a random policy."""
    from labkit.replay.transitions import pack
    from labkit.sac.rollout import Collector, random_policy
    from labkit.sac.update import make_update
    from labkit.training import components

    built = components.build(config)
    rows: list[np.ndarray] = []
    policy = random_policy(built.collect_env.action_spec(), config.seed + components.NOISE_SEED)
    windows = {"n_step": config.n_step, "gamma": config.gamma}
    collector = Collector(built.collect_env, policy, lambda row: rows.append(pack(row)), **windows)
    collector.run(TRANSITIONS + config.n_step - 1)
    table = np.array(rows)[:TRANSITIONS]
    update = make_update(built.agent, built.layout, built.strategy, config.reflection)
    generator = np.random.default_rng(0)
    batches = [table[generator.integers(len(table), size=config.rows_drawn)] for _ in range(10)]
    found = [update(batch) for batch in batches]
    losses = np.array([[one[name].numpy() for name in NAMES] for one in found])
    built.replay.close()
    return {"transitions": table, "losses": losses}


def whole_run(config, resume: bool) -> dict[str, np.ndarray]:
    """A training with a row of metrics for each gradient step; `resume`: twice as long, resumed."""
    import attrs

    import labkit

    small = {"log_interval": 1, "interim_eval_episodes": 1, "num_eval_episodes": 2}
    config = attrs.evolve(config, **small)
    with tempfile.TemporaryDirectory() as folder:
        labkit.train(config, labkit.open_run(folder, config))
        if resume:
            config = attrs.evolve(config, num_iterations=2 * GRADIENT_STEPS)
            labkit.train(config, labkit.open_run(folder, config))
        metrics = labkit.open_run(folder, config).metrics()
        saved = max(Path(folder).glob("checkpoints/*/replay/rows.npz"))
        rows = np.load(saved)["rows"][:TRANSITIONS]
    losses = metrics.dropna(subset="critic_loss")[NAMES]
    return {"transitions": rows, "losses": losses.to_numpy(np.float32)[-GRADIENT_STEPS:]}


def run_case(case: str) -> dict[str, np.ndarray]:
    """Computes a case in another process."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "case.npz"
        subprocess.run([sys.executable, __file__, case, str(file)], cwd=folder, check=True)
        return dict(np.load(file))


if __name__ == "__main__":
    if len(sys.argv) == 3:
        np.savez(sys.argv[2], **compute(sys.argv[1]))
    else:
        found = {case: run_case(case) for case in CASES}
        arrays = {f"{case}/{name}": a for case in found for name, a in found[case].items()}
        DATA.parent.mkdir(exist_ok=True)
        np.savez_compressed(DATA, **arrays)
