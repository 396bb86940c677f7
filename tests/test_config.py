"""What a user may ask for, and the one line that says what is not allowed."""

import json

import attrs
import numpy as np
import pytest

from labkit.config import MINITAUR, SACConfig
from labkit.errors import ParameterError
from labkit.training.run import start_run

PLAIN = {field.name: field.metadata["default"] for field in attrs.fields(SACConfig)}
INTEGERS = [name for name, default in PLAIN.items() if type(default) is int]
OTHER = SACConfig(env_name="HalfCheetahBulletEnv-v0")


@pytest.mark.parametrize("name", INTEGERS)
def test_whole_floats_are_integers(name):
    """papermill passes `1e6` as the float 1000000.0."""
    value = getattr(SACConfig(), name) or 1_000
    for given in (float(value), str(value), f"{value:e}"):
        taken = getattr(SACConfig.parse({name: given}), name)
        assert (taken, type(taken)) == (value, int)


@pytest.mark.parametrize(
    ("name", "low", "high"),
    [
        ("num_iterations", 1, 10**9),
        ("initial_collect_steps", 1, 10**9),
        ("n_step", 1, 100),
        ("steps_per_call", 1, 1_000),
        ("actor_update_period", 1, 1_000),
        ("initial_log_alpha", -20, 20),
        ("eval_interval", 0, 10**9),
        ("num_eval_episodes", 1, 10_000),
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
        *(("num_iterations", value) for value in (1.5, "abc", True, float("nan"), "1e400")),
        *(("gamma", value) for value in (1.5, float("inf"))),
        ("critic_learning_rate", -1e-3),
        ("actor_learning_rate", 0),
        ("target_update_tau", 0),
        ("seed", -1),
        ("strategy", "gpus"),
        ("strategy", "mirrored:0"),
        ("env_name", ""),
        ("actor_fc_layer_params", ()),
        ("actor_fc_layer_params", "(256, x)"),
        ("actor_fc_layer_params", (256, 25.5)),
        ("observation_scale", (1.0, 0.0)),
        ("target_entropy", "low"),
        ("bootstrap_time_limits", 2),
    ],
)
def test_a_wrong_value_gets_one_line(name, value):
    with pytest.raises(ParameterError) as caught:
        SACConfig.parse({name: value})
    message = str(caught.value)
    assert message.startswith(f"`{name}` must be ")
    assert f", got {value!r}" in message
    assert "\n" not in message
    assert caught.value._render_traceback_() == [f"ParameterError: {message}"]


@pytest.mark.parametrize("name", SACConfig.names())
def test_every_field_rejects_a_matrix(name):
    with pytest.raises(ParameterError, match=f"^`{name}` must be ") as caught:
        SACConfig(**{name: np.full((2, 2), 64.0)})
    assert "\n" not in str(caught.value)


def test_a_name_that_is_no_field_says_what_was_meant():
    with pytest.raises(ParameterError, match="did you mean 'num_iterations'"):
        SACConfig.parse({"num_iteration": 5})


def test_fields_that_do_not_fit_each_other():
    with pytest.raises(ParameterError, match=r"at least `batch_size` = 256 .*, got 100"):
        SACConfig(replay_buffer_capacity=100)
    with pytest.raises(ParameterError, match="`symmetry_augmentation` must be False for Half"):
        SACConfig(env_name="HalfCheetahBulletEnv-v0", symmetry_augmentation=True)
    with pytest.raises(ParameterError, match="`batch_size` must be even with `symmetry_augm"):
        SACConfig(batch_size=7)


def test_texts_and_arrays_become_tuples():
    assert SACConfig(actor_fc_layer_params="(256, 128.0)").actor_fc_layer_params == (256, 128)
    config = SACConfig(observation_scale=np.full(28, 0.5, np.float32))
    assert config.observation_scale == (0.5,) * 28


@pytest.mark.parametrize(("given", "meant"), [("True", True), ("false", False), (0, False)])
def test_a_switch_takes_what_papermill_passes(given, meant):
    assert SACConfig(critic_layer_norm=given).critic_layer_norm is meant


@pytest.mark.parametrize("name", MINITAUR)
def test_a_parameter_that_is_left_open_suits_the_environment(name):
    plain = PLAIN[name]
    assert getattr(OTHER, name) == plain
    for left_open in ({}, {name: None}, {name: "None"}):
        assert getattr(SACConfig(**left_open), name) == MINITAUR[name] != plain


def test_a_given_value_counts_on_the_minitaur_too():
    assert SACConfig(gamma=0.9).gamma == 0.9


def test_a_configuration_survives_json():
    config = SACConfig(num_iterations=5, actor_fc_layer_params=(8, 9))
    assert SACConfig.parse(json.loads(json.dumps(attrs.asdict(config)))) == config


def test_an_unknown_environment_names_the_nearest(tmp_path):
    with pytest.raises(ParameterError, match=r"versioned environments: \[ `v0` \]"):
        start_run({"env_name": "MinitaurBulletEnv-v1", "run_dir": str(tmp_path / "run")})
    assert not (tmp_path / "run").exists()  # rejected before anything was made
