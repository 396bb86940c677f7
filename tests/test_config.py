"""What a user may ask for, and the one line that says what is not allowed."""

import json

import attrs
import numpy as np
import pytest

from labkit.config import SACConfig
from labkit.errors import ParameterError
from labkit.training.run import start_run

INTEGERS = [
    f.name for f in attrs.fields(SACConfig) if f.default is not None and type(f.default) is int
]


@pytest.mark.parametrize("name", INTEGERS)
def test_whole_floats_are_integers(name):
    value = getattr(SACConfig(), name) or 1_000
    for given in (float(value), str(value), f"{value:e}"):
        taken = getattr(SACConfig.parse({name: given}), name)
        assert taken == value
        assert type(taken) is int


@pytest.mark.parametrize(
    ("name", "low", "high"),
    [
        ("initial_collect_steps", 1, 10**9),
        ("collect_steps_per_iteration", 1, 10_000),
        ("n_step", 1, 100),
        ("steps_per_call", 1, 1_000),
        ("learning_rate_decay_steps", 0, 10**9),
        ("actor_update_period", 1, 1_000),
        ("target_update_period", 1, 1_000_000),
        ("initial_log_alpha", -20, 20),
        ("log_interval", 0, 10**9),
        ("eval_interval", 0, 10**9),
        ("interim_eval_episodes", 1, 10_000),
        ("num_eval_episodes", 1, 10_000),
        ("policy_save_interval", 0, 10**9),
        ("checkpoint_interval", 0, 10**9),
        ("checkpoint_seconds", 0, 10**9),
        ("environment_timeout", 0, 10**9),
    ],
)
def test_the_bounds_of_a_number(name, low, high):
    for value in (low, high):
        assert getattr(SACConfig(**{name: value}), name) == value
    for value in (low - 1, high + 1):
        with pytest.raises(ParameterError, match=f"^`{name}` must be .*, got {value}$"):
            SACConfig(**{name: value})


@pytest.mark.parametrize(
    ("name", "value"),
    [
        *[
            ("num_iterations", value)
            for value in (0, -5, 1.5, "abc", True, None, float("nan"), "1e400")
        ],
        ("batch_size", 0),
        ("gamma", 1.5),
        ("gamma", float("inf")),
        ("critic_learning_rate", -1e-3),
        ("actor_learning_rate", 0),
        ("target_update_tau", 2),
        ("target_update_tau", 0),
        ("seed", -1),
        ("strategy", "gpus"),
        ("strategy", "mirrored:0"),
        ("strategy", 2),
        ("env_name", ""),
        ("actor_fc_layer_params", ()),
        ("actor_fc_layer_params", "(256, x)"),
        ("actor_fc_layer_params", (256, 0)),
        ("actor_fc_layer_params", (256, 25.5)),
        ("observation_scale", (1.0, 0.0)),
        ("reward_scale_factor", "None or so"),
        ("target_entropy", "low"),
        ("bootstrap_time_limits", 2),
    ],
)
def test_refusal_names_parameter_value_and_range(name, value):
    with pytest.raises(ParameterError) as caught:
        SACConfig.parse({name: value})
    message = str(caught.value)
    assert message.startswith(f"`{name}` must be ")
    assert f", got {value!r}"[:80] in message
    assert "\n" not in message
    assert caught.value._render_traceback_() == [f"ParameterError: {message}"]


def test_layers_from_text():
    config = SACConfig.parse({"actor_fc_layer_params": "(256, 128.0)"})
    assert config.actor_fc_layer_params == (256, 128)


def test_numpy_arrays_are_tuples_of_numbers():
    """As in `observation_scale=observed.std(axis=0)`."""
    config = SACConfig(observation_scale=np.full(28, 0.5, np.float32))
    assert config.observation_scale == (0.5,) * 28
    assert SACConfig(actor_fc_layer_params=np.array([64, 32])).actor_fc_layer_params == (64, 32)


@pytest.mark.parametrize("name", SACConfig.names())
def test_every_field_refuses_a_matrix(name):
    with pytest.raises(ParameterError, match=f"^`{name}` must be ") as caught:
        SACConfig(**{name: np.full((2, 2), 64.0)})
    assert "\n" not in str(caught.value)


def test_replay_smaller_than_a_batch_names_both():
    with pytest.raises(
        ParameterError,
        match=r"^`replay_buffer_capacity` must be at least `batch_size` = 256 .*, got 100",
    ):
        SACConfig(replay_buffer_capacity=100)


def test_unknown_name_says_what_was_meant():
    with pytest.raises(ParameterError, match="'num_iterations'"):
        SACConfig.parse({"num_iteration": 5})


def test_none_becomes_what_suits_the_environment():
    minitaur = SACConfig()
    assert (minitaur.reward_scale_factor, minitaur.initial_log_alpha) == (20.0, -4.0)
    assert (minitaur.n_step, minitaur.actor_update_period, minitaur.gamma) == (5, 2, 0.995)
    assert (minitaur.target_entropy, minitaur.recent_transitions) == (-4.0, 20_000)
    assert minitaur.symmetry_augmentation
    assert minitaur.critic_layer_norm
    assert len(minitaur.observation_scale) == 28
    other = SACConfig(env_name="HalfCheetahBulletEnv-v0")
    assert (other.reward_scale_factor, other.observation_scale, other.n_step) == (1.0, (), 1)
    assert (other.target_entropy, other.recent_transitions) == (None, 0)
    assert not other.symmetry_augmentation
    assert (other.actor_update_period, other.learning_rate_decay_steps, other.gamma) == (1, 0, 0.99)
    assert not other.critic_layer_norm
    assert SACConfig(reward_scale_factor=3).reward_scale_factor == 3.0


@pytest.mark.parametrize(("given", "meant"), [("True", True), ("false", False), (0, False)])
def test_a_switch_takes_what_papermill_passes(given, meant):
    assert SACConfig(critic_layer_norm=given).critic_layer_norm is meant


def test_a_switch_refuses_the_rest():
    with pytest.raises(ParameterError, match=r"`critic_layer_norm` must be .*, got 'maybe'"):
        SACConfig(critic_layer_norm="maybe")


def test_config_survives_json():
    config = SACConfig(num_iterations=5, actor_fc_layer_params=(8, 9))
    assert SACConfig.parse(json.loads(json.dumps(attrs.asdict(config)))) == config


def test_unknown_environment_names_the_nearest(tmp_path):
    with pytest.raises(ParameterError, match=r"MinitaurBulletEnv-v1.*'MinitaurBulletEnv-v0'"):
        start_run({"env_name": "MinitaurBulletEnv-v1", "run_dir": str(tmp_path / "run")})
    assert not (tmp_path / "run").exists()  # refused before anything was made
