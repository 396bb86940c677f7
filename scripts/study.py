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
# Settings that were the defaults for a time, while they were chosen. All but the last draw each
# batch from all transitions alike and reflect none, and they divide angles by 3.14, velocities by
# 20, torques by 5.7 and the quaternion by 1. The last one has the target entropy of Haarnoja et al.
# (2018), minus one nat for each dimension of the action; TF-Agents' is minus a half.
EARLIER_SCALE = (3.14,) * 8 + (20.0,) * 8 + (5.7,) * 8 + (1.0,) * 4
UNIFORM = {
    "recent_transitions": "0",
    "observation_scale": str(EARLIER_SCALE),
    "symmetry_augmentation": "False",
}
MINUS_8 = {"target_entropy": "-8"}
LAST_EARLIER = "earlier-target-entropy-8"
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
    LAST_EARLIER: MINUS_8,
}
# Ablations of the last of these.
EARLIER_ABLATIONS: dict[str, dict[str, str]] = {
    f"{LAST_EARLIER}_no-{name}": {**MINUS_8, name: SOURCE[name]}
    for name in (
        *("critic_layer_norm", "n_step", "observation_scale", "recent_transitions"),
        "symmetry_augmentation",
    )
}
# Settings that were tried as defaults in place of `earlier-uniform`, and not adopted as they were.
# With actions of two env steps, a gradient step follows each action, and a transition sums six env
# steps' rewards.
CANDIDATES: dict[str, dict[str, str]] = {
    "target-entropy-8": {**UNIFORM, **MINUS_8},
    "action-repeat-2": {
        **UNIFORM,
        **MINUS_8,
        "action_repeat": "2",
        "collect_steps_per_iteration": "2",
        "n_step": "3",
    },
    "small-table": {**UNIFORM, **MINUS_8, "replay_buffer_capacity": "20000"},
}
# Other values that the plan of the study asks for, each alone, in place of the defaults'.
ALTERNATIVES: dict[str, dict[str, str]] = {
    "n_step-3": {"n_step": "3"},
    "n_step-8": {"n_step": "8"},
}
SETTINGS: dict[str, dict[str, str]] = {
    "defaults": {},
    **ALTERNATIVES,
    **{f"no-{name}": {name: value} for name, value in SOURCE.items() if name not in RATES},
    "no-learning_rates": {name: SOURCE[name] for name in (*RATES, DECAY)},
    "source": SOURCE,
    **EARLIER,
    **EARLIER_ABLATIONS,
    **CANDIDATES,
}
# Env steps. A run is measured more often than one of the defaults, to see when it reaches +10.
MEASURING = {"eval_interval": 2_500, "log_interval": 500}

ABLATION_BUDGET = 60_000  # env steps, warm-up included
SEEDS = 5  # with this many or more, a setting has an interquartile mean


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


# Seeds of the defaults by budget; a larger budget resumes the runs of a smaller one. Checkpoints of
# seeds 2 and 3 were lost, see "How the plan changed".
DEFAULTS: dict[int, tuple[int, ...]] = {
    ABLATION_BUDGET: (1, 2, 3, 4, 5, 6, 7, 8, 9, 10),
    100_000: (1, 4, 5, 6, 7),
    300_000: (4, 5, 6),
}
# Seeds of the defaults that took part in the choice of their target entropy: the returns of the
# first led to its trial, and those of the others after `DECIDED_AT` env steps decided it.
DECIDED_AT = 100_000
PROPOSED_BY, DECIDED_BY = (1, 2, 3), DEFAULTS[DECIDED_AT]
ABLATIONS = [f"no-{name}" for name in SOURCE if name not in RATES] + ["no-learning_rates", "source"]
PRESENT = ("defaults", *ABLATIONS, *ALTERNATIVES)  # the defaults, and what is compared with them
PLAN = (
    *(Job("defaults", seed, budget) for budget, seeds in DEFAULTS.items() for seed in seeds),
    *(Job(name, seed, ABLATION_BUDGET) for name in ABLATIONS for seed in (1, 2, 3)),
    *(Job(name, seed, ABLATION_BUDGET) for name in ALTERNATIVES for seed in (1, 2)),
)
