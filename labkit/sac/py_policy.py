"""A policy of this package as one that TF-Agents' actors and drivers accept."""

from typing import Any

import tf_agents.typing.types as types
from tf_agents.policies import py_policy
from tf_agents.trajectories import policy_step
from tf_agents.trajectories.time_step import TimeStep

from labkit.sac.policies import Policy


class FunctionPyPolicy(py_policy.PyPolicy):
    """Wraps a function from an observation `[obs] float32` to an action `[act] float32`.

    It has no state and no info, and takes one time step at a time, without a batch dimension.
    """

    def __init__(
        self, time_step_spec: TimeStep, action_spec: types.NestedArraySpec, function: Policy
    ):
        super().__init__(time_step_spec, action_spec)
        self._function = function

    def _action(
        self, time_step: TimeStep, policy_state: Any, seed: types.Seed | None = None
    ) -> policy_step.PolicyStep:
        return policy_step.PolicyStep(self._function(time_step.observation), policy_state)
