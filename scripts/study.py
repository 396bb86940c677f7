"""The settings, seeds and budgets of the Minitaur study; see scripts/results.py."""

import attrs

from labkit.analysis import compare
from labkit.analysis.choices import RATES
from labkit.config import SACConfig

# The source document's values where labkit's defaults differ, as papermill parameters. A `no-`
# setting uses one of them (an ablation). Two choices take several parameters: the three learning
# rates, without their decay, and the env steps of an action, with a gradient step after each action
# as in the defaults. `source` uses all.
SOURCE = {name: str(value) for name, value in compare.TUTORIAL.items()}
DECAY = "learning_rate_decay_steps"
REPEAT = ("action_repeat", "collect_steps_per_iteration")
TOGETHER = {"learning_rates": (*RATES, DECAY), "action_repeat": REPEAT}
ABLATIONS: dict[str, dict[str, str]] = {
    **{f"no-{name}": {name: value} for name, value in SOURCE.items() if name not in RATES},
    **{f"no-{name}": {one: SOURCE[one] for one in names} for name, names in TOGETHER.items()},
}
# Settings that were the defaults for a time, and settings that differ from these in one choice. In
# all of them an action lasts one env step.
ONE_STEP = {**{name: SOURCE[name] for name in (*REPEAT, "target_entropy")}, "n_step": "5"}
HIGHER_RATES = {**ONE_STEP, **{name: SOURCE[name] for name in ("gamma", DECAY)}}
DELAYED = {
    **HIGHER_RATES,
    **{name: SOURCE[name] for name in ("initial_collect_steps", *RATES)},
}
EARLIER: dict[str, dict[str, str]] = {
    "earlier-3e-4": {**DELAYED, "actor_update_period": SOURCE["actor_update_period"]},
    "earlier-3e-4-delayed": DELAYED,
    "earlier-1e-3": HIGHER_RATES,
    "earlier-one-step": ONE_STEP,
    "earlier-one-step-no-n_step": {**ONE_STEP, "n_step": SOURCE["n_step"]},
    "earlier-one-step-no-reward_scale_factor": {
        **ONE_STEP,
        "reward_scale_factor": SOURCE["reward_scale_factor"],
    },
    "earlier-target-entropy-8": {
        name: value for name, value in ONE_STEP.items() if name != "target_entropy"
    },
}
SETTINGS: dict[str, dict[str, str]] = {
    "defaults": {},
    **ABLATIONS,
    "source": SOURCE,
    **EARLIER,
}
# Env steps. A run is measured more often than one of the defaults, to see when it reaches +10.
MEASURING = {"eval_interval": 2_500, "log_interval": 500}

ABLATION_BUDGET = 60_000  # env steps, warm-up included
# The defaults were chosen on other seeds (1, 5, 6 and 7). Seed 11 was stopped after 19 000 env
# steps, for lack of time; its checkpoint was not kept.
SEEDS = (9, 10, 12, 13, 14)
LONGER_SEEDS = (12, 13, 14)
ABLATION_SEEDS = (1, 2, 3)


def warm_up(setting: str) -> int:
    """Env steps of random actions."""
    return SACConfig.parse(SETTINGS[setting]).initial_collect_steps


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


PLAN = (
    *(Job("defaults", seed, budget) for budget in (ABLATION_BUDGET, 100_000) for seed in SEEDS),
    *(Job(name, seed, ABLATION_BUDGET) for name in ABLATIONS for seed in ABLATION_SEEDS),
    *(Job("source", seed, ABLATION_BUDGET) for seed in ABLATION_SEEDS),
    *(Job("defaults", seed, 300_000) for seed in LONGER_SEEDS),
)
