"""labkit: see experience replay work, then train Soft Actor-Critic with it.

import labkit                                        # before TensorFlow: it sets what that reads
config = labkit.SACConfig(num_iterations=100_000, seed=3)
run = labkit.train(config)                           # one process; results under runs/
run.metrics()                                        # a pandas table
"""

from labkit import runtime
from labkit.config import ParameterError, SACConfig
from labkit.runtime import quiet

runtime.prepare()

__version__ = "0.1.0"
__all__ = [
    "ParameterError",
    "Parts",
    "SACConfig",
    "evaluate",
    "make_environment",
    "quiet",
    "start_run",
    "train",
    "train_on_ray",
]

# TensorFlow takes seconds to load: a wrong parameter is refused before that happens.
_LAZY = {
    "Parts": ("labkit.parts", "Parts"),
    "evaluate": ("labkit.evaluation", "evaluate"),
    "make_environment": ("labkit.environments", "make"),
    "start_run": ("labkit.opening", "start_run"),
    "train": ("labkit.training", "train"),
    "train_on_ray": ("labkit.distributed", "train_on_ray"),
}


def __getattr__(name: str):
    import importlib

    if name not in _LAZY:
        raise AttributeError(f"module 'labkit' has no attribute {name!r}")
    module, attribute = _LAZY[name]
    return getattr(importlib.import_module(module), attribute)
