"""Names of settings: what a configuration asks for, in few words, for tables and legends."""

import re
import textwrap
from typing import Any

import attrs

from labkit.config import FREE_TO_CHANGE, SACConfig

# What tells runs of one setting apart, or does not change what is learned.
NOT_A_SETTING = (
    *FREE_TO_CHANGE,
    *("seed", "num_iterations", "log_interval", "eval_interval", "interim_eval_episodes"),
    *("num_eval_episodes", "policy_save_interval"),
)
# What the TF-Agents tutorial has where labkit's defaults for its environment deviate.
TUTORIAL_ENVIRONMENT = "MinitaurBulletEnv-v0"
TUTORIAL: dict[str, Any] = {
    "reward_scale_factor": 1,
    "initial_log_alpha": 0,
    "observation_scale": (),
    "replay_buffer_capacity": 10_000,
    "greedy_share": 0,
    "n_step": 1,
    "critic_layer_norm": False,
}
LONG = 20  # characters of a value


def name_of(config: SACConfig) -> str:
    """What a configuration asks for beyond its environment's defaults; else `defaults`.

    One that is nearer to the TF-Agents tutorial than to the defaults is named after it:
    `tutorial`, or `tutorial, n_step 5`; `observation_scale default` where the value is a long one.
    """
    usual = SACConfig.parse({"env_name": config.env_name})
    words = _changes(config, usual, usual)
    if config.env_name == TUTORIAL_ENVIRONMENT:
        tutorial = ["tutorial", *_changes(config, attrs.evolve(usual, **TUTORIAL), usual)]
        words = min(words, tutorial, key=len)
    else:
        words.insert(0, config.env_name)
    return ", ".join(words) or "defaults"


def _changes(config: SACConfig, base: SACConfig, usual: SACConfig) -> list[str]:
    words = []
    for name in (field.name for field in attrs.fields(SACConfig)):
        value = getattr(config, name)
        if name not in NOT_A_SETTING and value != getattr(base, name):
            known = value == getattr(usual, name) and len(str(value)) > LONG
            words.append(f"{name} {'default' if known else value}")
    return words


def told_apart(names: list[str], width: int) -> list[str]:
    """Names of at most `width` characters.

    Where some would look alike, what those share is counted, and the rest named.
    """
    labels = [shortened(name, width) for name in names]
    told = list(labels)
    for number, label in enumerate(labels):
        alike = [name for name, other in zip(names, labels, strict=True) if other == label]
        if len(alike) > 1:
            # `name value, name value`; a value may be a tuple, with commas of its own.
            changes = {name: re.split(r", (?=[a-z_]+ )", name) for name in alike}
            shared = set.intersection(*map(set, changes.values()))
            own = [change for change in changes[names[number]] if change not in shared]
            told[number] = shortened(", ".join([f"{len(shared)} shared", *own]), width)
    return told


def shortened(name: str, width: int) -> str:
    """The name, or its first words and an ellipsis: at most `width` characters."""
    return textwrap.shorten(name, width, placeholder=" …")
