"""SAC on standard robots: the published values, the published curves, the page, the runs."""

import json
import sys
from pathlib import Path

import attrs
import click
import numpy as np
import pandas as pd
import pytest
from click.testing import CliRunner

ROOT = Path(__file__).parents[2]
sys.path[:0] = [str(ROOT / "scripts")]
import standard  # noqa: E402
import standard_page  # noqa: E402
from trials import read  # noqa: E402

from benchmarks import side_by_side, standard_plan  # noqa: E402
from labkit.analysis import statistics  # noqa: E402
from labkit.config import SACConfig  # noqa: E402
from labkit.environments.gymnasium import hide_deprecations  # noqa: E402

# The published hyperparameters, in the words of both libraries, on Hopper-v4 with seed 2.
SIDE_BY_SIDE = (
    # (labkit, Stable-Baselines3, value)
    ("critic_learning_rate", "learning_rate", 3e-4),
    ("actor_learning_rate", "learning_rate", 3e-4),
    ("alpha_learning_rate", "learning_rate", 3e-4),
    ("replay_buffer_capacity", "buffer_size", 1_000_000),
    ("initial_collect_steps", "learning_starts", 5_000),
    ("batch_size", "batch_size", 256),
    ("target_update_tau", "tau", 0.005),
    ("target_update_period", "target_update_interval", 1),
    ("gamma", "gamma", 0.99),
    ("n_step", "n_steps", 1),
    ("target_entropy", "target_entropy", -3.0),
    ("seed", "seed", 2),
)
LABKIT_ONLY = {
    "env_name": "gymnasium:Hopper-v4",
    "num_iterations": 95_000,
    "collect_steps_per_iteration": 1,
    "bootstrap_time_limits": True,
    "actor_update_period": 1,
    "reward_scale_factor": 1.0,
    "initial_log_alpha": 0.0,
    "observation_scale": (),
    "actor_fc_layer_params": (256, 256),
    "critic_joint_fc_layer_params": (256, 256),
    "critic_layer_norm": False,
    "eval_interval": 5_000,
    "interim_eval_episodes": 10,
    "num_eval_episodes": 20,
    "log_interval": 500,
}
SB3_ONLY = {
    "train_freq": 1,
    "gradient_steps": 1,
    "ent_coef": "auto_1.0",
    "policy_kwargs": {"net_arch": [256, 256]},
    "device": "cpu",
}
MEANS = {"HalfCheetah-v4": 6_156, "Hopper-v4": 1_103, "Walker2d-v4": 690}


@pytest.fixture(scope="module")
def reference():
    return standard_page.read_reference(standard.KEPT)


def config(settings, env="Hopper-v4", seed=2):
    return SACConfig.parse(standard_plan.labkit_parameters(settings, env, seed, 100_000))


def write(folder, scores, content=None, steps=100_000, episodes=20):
    """A synthetic run: `scores` at its evaluations, every episode of one alike."""
    folder.mkdir(parents=True)
    made = {"config": {}, "commit": "abcdefghij", "cpu": "a CPU", "versions": {"tensorflow": "2"}}
    (folder / "config.json").write_text(json.dumps(content or made))
    lines = ["env_step,gradient_step,training_seconds,eval_returns"]
    for place, score in enumerate(reversed(scores)):
        lines.append(f"{steps - 5_000 * place},0,{place}.5,{' '.join([str(score)] * episodes)}")
    (folder / "metrics.csv").write_text("\n".join([lines[0], *lines[:0:-1]]) + "\n")


def write_all(folder, scores):
    """`scores`: (settings, environment) → a final return for each seed."""
    for (settings, env), values in scores.items():
        for seed, value in enumerate(values, 1):
            write(folder / settings / env / f"seed-{seed}", [0.0, value])


# --- the plan


def test_both_libraries_get_the_published_values():
    ours, theirs = config("published"), standard_plan.sb3_arguments("Hopper-v4", 2, 100_000)
    for name, argument, value in SIDE_BY_SIDE:
        assert (getattr(ours, name), theirs[argument]) == (value, value), name
    assert {name: getattr(ours, name) for name in LABKIT_ONLY} == LABKIT_ONLY
    assert {name: theirs[name] for name in SB3_ONLY} == SB3_ONLY
    assert set(theirs) == {argument for _, argument, _ in SIDE_BY_SIDE} | set(SB3_ONLY)
    given = standard_plan.labkit_parameters("published", "Hopper-v4", 2, 100_000)
    assert set(given) == {name for name, _, _ in SIDE_BY_SIDE} | set(LABKIT_ONLY)


def test_each_of_the_other_settings_changes_what_its_label_says():
    def changes(settings):
        ours, base = attrs.asdict(config(settings)), attrs.asdict(config("published"))
        return {name: value for name, value in ours.items() if value != base[name]}

    improved = {"critic_layer_norm": True, "n_step": 3}
    assert changes("improved") == improved
    assert changes("delayed") == {**improved, "actor_update_period": 2}
    rates = {f"{part}_learning_rate": 0.001 for part in ("critic", "actor", "alpha")}
    assert changes("rate-0.001") == rates
    assert set(standard_plan.LABELS) == {*standard_plan.LABKIT, standard_plan.SB3}


def test_the_target_entropy_is_minus_the_dimension_of_the_action():
    gymnasium = pytest.importorskip("gymnasium")
    pytest.importorskip("mujoco")
    hide_deprecations()  # MuJoCo would write a file
    for env in standard_plan.ACTIONS:
        (dimension,) = gymnasium.make(env).action_space.shape
        assert config("published", env).target_entropy == -dimension, env


def test_a_trial_learns_although_it_is_short():
    assert (standard_plan.warm_up(2_000), standard_plan.warm_up(100_000)) == (500, 5_000)
    arguments = standard_plan.sb3_arguments("Hopper-v4", 1, 2_000)
    assert arguments["learning_starts"] == 500


# --- the published curves


def test_the_reference_agrees_with_its_stated_means(reference):
    for env, mean in MEANS.items():
        scores = standard_page.published_scores(reference, env)
        assert len(scores) == 10
        assert np.mean(scores) == pytest.approx(mean, abs=0.5), env
    assert set(reference.env_step.diff()[reference.env_step > 1]) <= {16_665, 16_666}
    assert reference.env_step.max() == 99_996


def test_the_reference_names_its_source():
    first, second = (standard.KEPT / "reference.csv").read_text().splitlines()[:2]
    assert first == f"# {standard_page.SOURCE}"
    assert second == "# Apache License 2.0"


def test_only_the_needed_numbers_are_taken():
    columns = ["env_name", "seed", "env_step", "value"]
    rows = [
        ("Hopper-v4", 0, 99_996.0, 1.5),
        ("Hopper-v4", 0, 116_662.0, 2.5),
        ("Ant-v4", 0, 1.0, 3.5),
    ]
    text = standard.reference_text(pd.DataFrame(rows, columns=columns))
    assert text.splitlines()[2:] == ["env_name,seed,env_step,return", "Hopper-v4,0,99996,1.5"]


def test_another_file_is_refused(tmp_path):
    (tmp_path / "sac.csv").write_text("env_name,seed,env_step,value\n")
    before = (standard.KEPT / "reference.csv").read_bytes()
    done = CliRunner().invoke(standard.main, ["reference", str(tmp_path / "sac.csv")])
    assert done.exit_code == 1
    assert "FILE must be https://github.com/dojeon-ai/SimbaV2, results/baseline" in done.output
    assert (standard.KEPT / "reference.csv").read_bytes() == before


# --- the page


def test_the_verdict_by_hand():
    published = np.array([90.0, 110.0, 100.0])  # a mean of 100 with a deviation of 10
    for score, word in ((119.0, "inside"), (121.0, "outside"), (81.0, "inside"), (79.0, "outside")):
        scores = {("published", "Hopper-v4"): [score - 3, score, score + 3]}
        sentence = standard_page.verdict("Hopper-v4", scores, published)
        assert f"is **{word}** the published spread" in sentence
        assert (
            f"{sum(80 <= s <= 120 for s in scores['published', 'Hopper-v4'])} of the 3 runs"
            in sentence
        )
        assert "3 seeds: 80 to 120" in sentence
    few = standard_page.verdict("Hopper-v4", {("published", "Hopper-v4"): [100.0]}, published)
    assert "no verdict yet: 1 of 3 runs made" in few


@pytest.mark.parametrize(
    ("hopper", "expected"),
    [
        ([100.0, 101.0, 102.0], "no significant difference on any."),
        ([10.0, 11.0, 12.0], "significantly below on Hopper-v4."),
        ([900.0, 901.0, 902.0], "significantly above on Hopper-v4."),
    ],
)
def test_only_significant_differences_are_named(hopper, expected):
    scores = {(name, env): [100.0, 101.0, 102.5] for name in ("published", "sb3") for env in MEANS}
    scores["published", "Hopper-v4"] = hopper
    sentence = standard_page.comparison("published", "sb3", scores)
    assert f": {expected}" in sentence
    del scores["sb3", "Walker2d-v4"]
    assert "no test yet" in standard_page.comparison("published", "sb3", scores)


def test_the_page_says_where_both_libraries_score_less_than_the_published_curves(reference):
    low = {settings: [900.0, 1_000.0, 1_100.0] for settings in ("published", "sb3")}
    scores = {(name, "HalfCheetah-v4"): values for name, values in low.items()}
    assert "On HalfCheetah-v4, both libraries" in standard_page.lower(scores, reference)
    scores["sb3", "HalfCheetah-v4"] = [6_000.0, 6_100.0, 6_200.0]
    assert standard_page.lower(scores, reference) == ""
    published = standard_page.published_scores(reference, "HalfCheetah-v4")
    sentence = standard_page.gaps("HalfCheetah-v4", scores, published)
    ours = low["published"]
    _, (lowest, highest), _ = statistics.mean_difference(ours, list(published))
    mean = f"labkit {1_000 - np.mean(published):+.0f}"
    assert f"{mean} (95 % interval {lowest:+.0f} to {highest:+.0f})" in sentence
    assert "Stable-Baselines3 -56 (" in sentence


def test_the_p_values_are_corrected_for_three_tests():
    scores = {(name, env): [100.0, 101.0, 102.5] for name in ("published", "sb3") for env in MEANS}
    scores["published", "Hopper-v4"] = [97.0, 98.0, 99.5]  # p = 0.040 by itself
    sentence = standard_page.comparison("published", "sb3", scores)
    p = standard_page.statistics.welch([97.0, 98.0, 99.5], [100.0, 101.0, 102.5])
    assert p < 0.05 < 3 * p
    assert f"Hopper-v4 -3 (p = {3 * p:.3g})" in sentence
    assert ": no significant difference on any" in sentence


def test_the_page_shows_every_run_and_what_is_missing(tmp_path, reference):
    write_all(tmp_path, {("published", env): [mean] * 3 for env, mean in MEANS.items()})
    for seed, score in ((1, 1_000.0), (2, 1_200.0)):
        versions = {"versions": {"gymnasium": "1.4.0"}, "config": {}}
        write(tmp_path / "sb3" / "Hopper-v4" / f"seed-{seed}", [0.0, score], versions)
    write(tmp_path / "published" / "Hopper-v4" / "seed-1-replaced-1", [-5_000.0])
    write(tmp_path / "improved" / "Hopper-v4" / "seed-1", [77.0], episodes=10)
    text = standard_page.text(standard_page.find(tmp_path), reference)
    assert text.count("It is **inside** the published spread") == 3
    made = "tensorflow 2; not recorded, but locked: gymnasium 1.3.0, mujoco 4.0.0."
    assert f"- `published` and `improved`: {made}" in text
    assert "- `sb3`: gymnasium 1.4.0." in text
    assert (
        "| Hopper-v4 | `published` | seed-1-replaced-1 | 100 000 | -5000 | -5000 to -5000 |" in text
    )
    assert "| Hopper-v4 | `improved` | seed-1 | 100 000 | not finished |" in text
    assert "| Hopper-v4 | 1103 ± 775 | 1103 | 1100 (2 seeds) |" in text
    assert "sb3 on Hopper-v4 (2 of 3 seeds)" in text
    assert "published on" not in text.split("Not run yet")[1].split("\n")[0]


def test_the_figure_has_a_panel_for_each_robot(tmp_path, reference):
    write_all(tmp_path, {("published", env): [10.0, 20.0, 30.0] for env in MEANS})
    drawn = standard_page.figure(standard_page.find(tmp_path), reference)
    assert [axes.get_title("left") for axes in drawn.axes] == list(MEANS)
    for axes in drawn.axes:
        (curve,) = (line for line in axes.lines if "labkit" in str(line.get_label()))
        assert curve.get_ydata().tolist() == [0.0, 20.0]  # the mean over the seeds


# --- the runs


@pytest.fixture
def folders(monkeypatch, tmp_path):
    """Temporary folders, and a `run_logged` that writes a run instead of training."""
    monkeypatch.setattr(standard, "ROOT", tmp_path)
    monkeypatch.setattr(standard, "RUNS", tmp_path / "runs")
    monkeypatch.setattr(standard, "KEPT", tmp_path / "kept")
    commands = []

    def run_logged(name, command, log, root, env):
        commands.append(command)
        values = dict(zip(command[3::2], command[4::2], strict=True))
        write(Path(values["--run-dir"]), [1.0], steps=int(values["--steps"]))
        return ""

    monkeypatch.setattr(standard.side_by_side, "run_logged", run_logged)
    monkeypatch.setattr(standard.implementations, "make_peers_venv", lambda: None)
    return tmp_path, commands


def invoke(*words):
    done = CliRunner().invoke(standard.main, ["run", *words], catch_exceptions=False)
    assert done.exit_code == 0, done.output


def test_a_run_is_made_once_and_tracked(folders):
    folder, commands = folders
    invoke("--seed", "1")
    assert len(commands) == 9
    assert sum("benchmarks.standard_sb3" in command for command in commands) == 3
    assert len([*(folder / "kept").glob("*/*/seed-1/metrics.csv")]) == 9
    invoke("--seed", "1", "--workers", "3")
    assert len(commands) == 9


def test_a_trial_is_not_tracked(folders):
    folder, commands = folders
    invoke("--steps", "2000", "--settings", "published", "--env", "Hopper-v4", "--seed", "1")
    assert len(commands) == 1
    assert not (folder / "kept").exists()
    invoke("--settings", "published", "--env", "Hopper-v4", "--seed", "1")
    assert len(commands) == 2


def test_another_run_of_a_seed_does_not_replace_the_first_silently(folders):
    folder, _ = folders
    write(folder / "kept" / "published" / "Hopper-v4" / "seed-1", [5.0], episodes=10)
    invoke("--settings", "published", "--env", "Hopper-v4", "--seed", "1")
    names = {path.name for path in (folder / "kept" / "published" / "Hopper-v4").iterdir()}
    assert names == {"seed-1", "seed-1-replaced-1"}


def test_an_unfinished_run_is_named(folders, monkeypatch):
    monkeypatch.setattr(standard.side_by_side, "run_logged", lambda *_: "")
    words = ["run", "--settings", "published", "--env", "Hopper-v4", "--seed", "1"]
    done = CliRunner().invoke(standard.main, words)
    assert done.exit_code == 1
    assert "published/Hopper-v4/seed-1 is not finished: the same command resumes it" in done.output


def test_jobs_run_on_one_core_each_and_all_failures_are_named(tmp_path):
    script = "import os, sys; print(len(os.sched_getaffinity(0))); sys.exit(int(sys.argv[1]))"

    def run_one(number):
        command = [sys.executable, "-c", script, str(number)]
        return side_by_side.run_logged(f"job {number}", command, tmp_path / f"{number}", tmp_path)

    with pytest.raises(click.ClickException) as caught:
        side_by_side.run_all(run_one, [1, 0, 2], workers=2)
    assert [part.split(":")[0] for part in caught.value.message.split("; ")] == [
        "job 1 failed",
        "job 2 failed",
    ]
    assert [(tmp_path / name).read_text() for name in "012"] == ["1\n"] * 3


def test_the_tracked_runs_are_those_of_the_plan():
    runs = standard_page.find(standard.KEPT)
    assert runs
    for run in runs:
        seed = int(run.name.split("-")[1])
        if run.settings == standard_plan.SB3:
            expected = standard_plan.sb3_arguments(run.env, seed, 100_000)
            got = {name: run.content["config"][name] for name in expected}
            # The library writes this into the dictionary that it gets.
            assert got["policy_kwargs"].pop("use_sde") is False
            assert got == expected
        else:
            expected = config(run.settings, run.env, seed)
            assert SACConfig.parse(run.content["config"]) == expected
        assert run.replaced or run.score is not None


def test_the_tracked_page_is_what_the_command_writes(reference):
    runs = standard_page.find(standard.KEPT)
    assert (standard.KEPT / "README.md").read_text() == standard_page.text(runs, reference)
    for run in runs:
        _, rows = read(standard.KEPT / run.settings / run.env / run.name)
        assert np.isfinite(rows.returns.iloc[-1]).all()
