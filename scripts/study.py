"""The settings, seeds and budgets of the Minitaur study; see scripts/results.py."""

import attrs

from labkit.analysis import compare
from labkit.analysis.choices import RATES
from labkit.config import SACConfig

# The source document's values where labkit's defaults differ, as papermill parameters. A `no-`
# setting uses one of them (an ablation), the three learning rates together and without their
# decay; `source` uses all.
SOURCE = {name: str(value) for name, value in compare.TUTORIAL.items()}
DECAY = "learning_rate_decay_steps"
# Settings that were the defaults for a time, while they were chosen. They draw each batch from all
# transitions alike and reflect none, their target entropy is that of TF-Agents, and they divide
# angles by 3.14, velocities by 20, torques by 5.7 and the quaternion by 1.
EARLIER_SCALE = (3.14,) * 8 + (20.0,) * 8 + (5.7,) * 8 + (1.0,) * 4
UNIFORM = {
    "recent_transitions": "0",
    "target_entropy": "-4",
    "observation_scale": str(EARLIER_SCALE),
    "symmetry_augmentation": "False",
}
EARLIER: dict[str, dict[str, str]] = {
    "earlier-3e-4": {
        **UNIFORM,
        **{
            name: SOURCE[name]
            for name in ("gamma", "initial_collect_steps", *RATES, DECAY, "actor_update_period")
        },
    },
    "earlier-3e-4-delayed": {
        **UNIFORM,
        **{name: SOURCE[name] for name in ("gamma", "initial_collect_steps", *RATES, DECAY)},
    },
    "earlier-1e-3": {**UNIFORM, **{name: SOURCE[name] for name in ("gamma", DECAY)}},
    "earlier-uniform": UNIFORM,
}
# Settings that were tried as defaults in place of `earlier-uniform`, and not adopted as they were.
# Minus one nat for each dimension of the action is the target entropy of Haarnoja et al. (2018);
# TF-Agents' default is minus a half. With actions of two env steps, a gradient step follows each
# action, and a transition sums six env steps' rewards.
CANDIDATES: dict[str, dict[str, str]] = {
    "target-entropy-8": {**UNIFORM, "target_entropy": "-8"},
    "action-repeat-2": {
        **UNIFORM,
        "action_repeat": "2",
        "collect_steps_per_iteration": "2",
        "n_step": "3",
        "target_entropy": "-8",
    },
    "small-table": {
        **UNIFORM,
        "replay_buffer_capacity": "20000",
        "target_entropy": "-8",
    },
}
SETTINGS: dict[str, dict[str, str]] = {
    "defaults": {},
    **{f"no-{name}": {name: value} for name, value in SOURCE.items() if name not in RATES},
    "no-learning_rates": {name: SOURCE[name] for name in (*RATES, DECAY)},
    "source": SOURCE,
    **EARLIER,
    **CANDIDATES,
}
# Env steps. A run is measured more often than one of the defaults, to see when it reaches +10.
MEASURING = {"eval_interval": 2_500, "log_interval": 500}

ABLATION_BUDGET = 60_000  # env steps, warm-up included
SEEDS = (1, 2, 3, 4, 5)


def iterations(setting: str, budget: int) -> int:
    """Gradient steps of a run of `budget` env steps, warm-up included."""
    config = SACConfig.parse(SETTINGS[setting])
    return (budget - config.initial_collect_steps) // config.collect_steps_per_iteration


def measuring(setting: str) -> dict[str, str]:
    """The intervals of `MEASURING` in gradient steps, as papermill parameters."""
    per_step = SACConfig.parse(SETTINGS[setting]).collect_steps_per_iteration
    return {name: str(steps // per_step) for name, steps in MEASURING.items()}


@attrs.frozen
class Job:
    """One planned run up to one budget.

    Attributes:
        setting: a key of `SETTINGS`.
        seed: seed of every generator.
        budget: env steps, warm-up included.
    """

    setting: str
    seed: int
    budget: int

    @property
    def iterations(self) -> int:
        """See `iterations`."""
        return iterations(self.setting, self.budget)

    @property
    def parameters(self) -> dict[str, str]:
        """The parameters as text, as papermill takes them, without the seed."""
        changed = {**SETTINGS[self.setting], **measuring(self.setting)}
        return {**changed, "num_iterations": str(self.iterations)}


# Three runs of these scored as the defaults did, or better, and more were planned to decide; see
# "How the plan changed".
DECIDED: dict[str, dict[int, tuple[int, ...]]] = {
    "no-symmetry_augmentation": {ABLATION_BUDGET: (4, 5), 100_000: SEEDS},
    "no-target_entropy": {ABLATION_BUDGET: (4, 5, 6, 7), 100_000: (1, 4, 5, 6, 7)},
}
PLAN = (
    *(Job("defaults", seed, budget) for budget in (ABLATION_BUDGET, 100_000) for seed in SEEDS),
    *(
        Job(name, seed, ABLATION_BUDGET)
        for name in SETTINGS
        if name != "defaults" and name not in EARLIER and name not in CANDIDATES
        for seed in SEEDS[:3]
    ),
    *(
        Job(setting, seed, budget)
        for setting, more in DECIDED.items()
        for budget, seeds in more.items()
        for seed in seeds
    ),
    *(Job("defaults", seed, 300_000) for seed in SEEDS[:3]),
)
