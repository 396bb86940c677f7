"""Physical quantities of an environment: seconds of one env step, position of the robot."""

from typing import TYPE_CHECKING

from labkit.environments.seeding import raw_env

if TYPE_CHECKING:
    from tf_agents.environments.py_environment import PyEnvironment


def step_seconds(env: "PyEnvironment") -> float:
    """Simulated seconds of one env step: 0.01 for the Minitaur, whose metadata are wrong."""
    inner = raw_env(env)
    if hasattr(inner, "_action_repeat") and hasattr(inner, "_time_step"):
        return inner._time_step * inner._action_repeat
    if getattr(inner, "scene", None) is not None and hasattr(inner.scene, "dt"):
        return inner.scene.dt
    if hasattr(inner, "tau"):
        return inner.tau
    if isinstance(getattr(inner, "dt", None), float):  # the pendulum, and Gymnasium's MuJoCo robots
        return inner.dt
    rates = [inner.metadata.get(key) for key in ("render_fps", "video.frames_per_second")]
    return 1.0 / next((rate for rate in rates if rate), 50)


def forward_position(env: "PyEnvironment") -> float | None:
    """The base's position along the axis that the reward counts, in metres; None without one."""
    inner = raw_env(env)
    if hasattr(inner, "minitaur"):
        return float(inner.minitaur.GetBasePosition()[0])
    if hasattr(getattr(inner, "robot", None), "walk_target_x"):
        return float(inner.robot.body_xyz[0])
    return None
