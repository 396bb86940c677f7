"""What the study of the Minitaur runs: settings, seeds, budgets; see scripts/results.py."""

import attrs

# What the source document has where labkit's defaults deviate, as papermill parameters. Alone, each
# takes one deviation back; `source` takes all of them back at once.
TAKEN_BACK = {
    "reward_scale_factor": "1",
    "initial_log_alpha": "0",
    "observation_scale": "()",
    "replay_buffer_capacity": "10000",
    "greedy_share": "0",
    "critic_layer_norm": "False",
}
SETTINGS: dict[str, dict[str, str]] = {
    "defaults": {},
    **{f"{name}-back": {name: value} for name, value in TAKEN_BACK.items()},
    "source": TAKEN_BACK,
    # One deviation alone, everything else as in the source document.
    **{
        f"source-and-{name}": {k: v for k, v in TAKEN_BACK.items() if k != name}
        for name in TAKEN_BACK
    },
}


@attrs.frozen
class Job:
    """One planned run as far as one budget.

    Attributes:
        setting: a key of `SETTINGS`.
        seed: of every generator.
        budget: gradient steps, one for each env step after the random collection.
    """

    setting: str
    seed: int
    budget: int


PLAN = (
    *(Job("defaults", seed, 50_000) for seed in range(5)),
    *(Job("defaults", seed, 100_000) for seed in range(5)),
    *(Job("defaults", seed, 300_000) for seed in range(3)),
    *(Job(name, seed, 50_000) for name in SETTINGS if name != "defaults" for seed in range(3)),
    Job("defaults", 0, 1_000_000),
)
