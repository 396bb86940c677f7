"""labkit: see experience replay work, then train Soft Actor-Critic with it.

import labkit                                        # before TensorFlow: it sets what that reads
config = labkit.SACConfig(num_iterations=100_000, seed=3)
run = labkit.train(config)                           # one process; results under runs/
run.metrics()                                        # a pandas table
"""

import importlib
from typing import TYPE_CHECKING

from labkit import runtime
from labkit.config import SACConfig
from labkit.errors import ParameterError, RunError
from labkit.runtime import quiet

if TYPE_CHECKING:
    from labkit.distributed.driver import train_on_ray
    from labkit.environments.make import make_environment
    from labkit.sac.actor import ActorPolicy
    from labkit.sac.rollout import evaluate
    from labkit.training.local import train
    from labkit.training.run import Run, open_run, start_run
else:  # TensorFlow takes seconds to load: a wrong parameter is rejected before that

    def __getattr__(name):
        if name not in _LAZY:
            raise AttributeError(f"module 'labkit' has no attribute {name!r}")
        return getattr(importlib.import_module(_LAZY[name]), name)


runtime.prepare()

__version__ = "0.2.0"
__all__ = ["ActorPolicy", "ParameterError", "Run", "RunError", "SACConfig", "evaluate"]
__all__ += ["make_environment", "open_run", "quiet", "start_run", "train", "train_on_ray"]
_LAZY = {
    "ActorPolicy": "labkit.sac.actor",
    "Run": "labkit.training.run",
    "evaluate": "labkit.sac.rollout",
    "make_environment": "labkit.environments.make",
    "open_run": "labkit.training.run",
    "start_run": "labkit.training.run",
    "train": "labkit.training.local",
    "train_on_ray": "labkit.distributed.driver",
}


def __dir__() -> list[str]:
    return sorted({*__all__, *globals()})
