"""Settings against a baseline: its choice, what counts once, and the sentence of each verdict."""

import json

import numpy as np
import pandas as pd
import pytest
from test_compare import write_run

from labkit.analysis import choices, compare, comparison_plots, conclusions, statistics
from labkit.errors import ParameterError


def table_of(**returns):
    """As `compare.scores`, with the seeds 0, 1, … of each setting."""
    rows = [
        (name, seed, value, f"{name}/{seed}")
        for name, values in returns.items()
        for seed, value in enumerate(values)
    ]
    return pd.DataFrame(rows, columns=["setting", "seed", "return", "path"])


@pytest.fixture
def study(tmp_path):
    """Runs of an older version: its defaults, one changed field, and the tutorial's values."""
    old = {"n_step": 3, "gamma": 0.9}
    write_run(tmp_path / "defaults" / "seed-0", 0, [1.0], **old)
    write_run(tmp_path / "again" / "seed-0", 0, [2.0], **old)
    write_run(tmp_path / "other", 0, [3.0], **{**old, "critic_layer_norm": False})
    write_run(tmp_path / "rates", 0, [4.0], **{**old, **dict.fromkeys(choices.RATES, 0.01)})
    write_run(tmp_path / "source", 0, [5.0], **{**compare.TUTORIAL, "observation_scale": None})
    for path in tmp_path.rglob("config.json"):
        content = json.loads(path.read_text())
        content["config"]["greedy_share"] = 0.0 if path.parent.name == "other" else 0.3
        path.write_text(json.dumps(content))
    return tmp_path


def test_settings_are_named_by_their_difference_from_the_runs_in_a_folder(study):
    runs = conclusions.relative_to(compare.find_runs(study)[0], study, "defaults")
    assert {run.path.name: run.setting for run in runs} == {
        "seed-0": "baseline",  # in both folders
        "other": "critic_layer_norm False, greedy_share 0",
        "rates": "learning_rates 0.01",
        "source": "tutorial, observation_scale default, greedy_share 0.3",
    }
    assert [run.setting for run in runs].count("baseline") == 2


def test_a_settings_name_comes_before_a_folders(tmp_path):
    write_run(tmp_path / "a", 0, [1.0])
    write_run(tmp_path / "defaults", 0, [1.0], gamma=0.5)
    runs = conclusions.relative_to(compare.find_runs(tmp_path)[0], tmp_path, "defaults")
    assert [run.setting for run in runs] == ["baseline", "gamma 0.5"]
    runs = conclusions.relative_to(runs, tmp_path, "gamma 0.5")
    assert [run.setting for run in runs] == ["gamma 0.995", "baseline"]


@pytest.mark.parametrize("baseline", ["no such", "both", "", None, 3])
def test_an_unknown_baseline_is_one_line_with_the_settings(tmp_path, baseline):
    write_run(tmp_path / "both" / "a", 0, [1.0])
    write_run(tmp_path / "both" / "b", 0, [1.0], gamma=0.5)
    with pytest.raises(ParameterError) as error:
        conclusions.relative_to(compare.find_runs(tmp_path)[0], tmp_path, baseline)
    assert str(error.value) == (
        "`baseline` must be a folder in `runs` whose runs have one setting, or one of these: "
        f"'defaults', 'gamma 0.5', got {baseline!r}"
    )


def test_runs_of_two_environments_are_not_compared(tmp_path):
    write_run(tmp_path / "a", 0, [1.0])
    write_run(tmp_path / "b", 0, [1.0], env_name="Pendulum-v1")
    with pytest.raises(
        ParameterError, match=r"^`runs` must be a folder of runs in one environ.* a"
    ):
        conclusions.relative_to(compare.find_runs(tmp_path)[0], tmp_path, "defaults")


def test_the_first_run_of_a_seed_counts_whatever_it_scored():
    table = table_of(a=[1.0, 2.0], b=[3.0])
    table.loc[3] = ("a", 0, 99.0, "a-again/0")  # as text it comes before "a/0"
    table = table.sample(frac=1, random_state=0)
    first, again = conclusions.once_each_seed(table)
    assert first["return"].tolist() == [1.0, 2.0, 3.0]
    assert again["return"].tolist() == [99.0]
    assert conclusions.once_each_seed(table, "last")[0]["return"].tolist() == [99.0, 2.0, 3.0]
    measured, single = conclusions.with_several_seeds(first)
    assert (set(measured.setting), set(single.setting)) == ({"a"}, {"b"})


def test_each_setting_is_compared_with_the_baseline_and_corrected():
    returns = {"baseline": [10.0, 11.0, 12.0], "far": [1.0, 2.0, 3.5], "near": [9.0, 10.0, 12.5]}
    table = conclusions.against(table_of(**returns))
    assert table.index.tolist() == ["near", "far"], "the highest difference first"
    p = [statistics.welch(returns[name], returns["baseline"]) for name in table.index]
    assert table.p.tolist() == pytest.approx(p), "of three seeds none is left out"
    assert table.corrected.tolist() == pytest.approx([max(p[0], 2 * p[1]), 2 * p[1]])
    assert conclusions.against(table_of(near=[1.0, 2.0])).empty


def test_only_the_corrected_p_decides():
    compared = pd.DataFrame(
        {
            "difference": [2.0, 1.0, 0.5],
            "low": [1.0, 0.1, -1.0],
            "high": [3.0, 1.9, 2.0],
            "p": [0.001, 0.03, 0.6],
            "corrected": [0.003, 0.06, 0.6],
        },
        index=["much", "some", "little"],
    )
    text = conclusions.verdicts(compared)
    assert max(map(len, text.splitlines())) <= conclusions.LINE
    assert text.replace("\n  ", " ").splitlines() == [
        "IQM of much minus baseline is +2.00 (95 % interval +1.00 to +3.00): "
        "higher than baseline, Holm's p = 0.003.",
        "IQM of some minus baseline is +1.00 (95 % interval +0.10 to +1.90): "
        "no detectable difference, Holm's p = 0.06; without the correction for 3 tests, p = 0.03.",
        "IQM of little minus baseline is +0.50 (95 % interval -1.00 to +2.00): "
        "no detectable difference, Holm's p = 0.6.",
    ]
    assert conclusions.verdicts(compared.iloc[:0]).startswith("Nothing to compare")


def test_figures_mark_the_baseline_and_the_repeated_seeds(tmp_path):
    for seed in range(3):
        write_run(tmp_path / f"a{seed}", seed, [0.0, 9.0 + seed])
        write_run(tmp_path / f"b{seed}", seed, [0.0, 3.0 + seed], gamma=0.5)
    runs = conclusions.relative_to(compare.find_runs(tmp_path)[0], tmp_path, "gamma 0.5")
    axes = comparison_plots.curves(runs, 20, baseline="baseline").axes[0]
    colors = {str(line.get_label()).split(":")[0]: line.get_color() for line in axes.lines}
    assert colors["baseline"] == comparison_plots.BASELINE
    assert colors["gamma 0.995"] == comparison_plots.COLORS[0]
    scores = compare.scores(runs, 20)
    again = scores.head(1).assign(**{"return": 77.0})
    axes = comparison_plots.ranking(scores, baseline="baseline", repeated=again).axes[0]
    rings = [line for line in axes.lines if line.get_markerfacecolor() == "none"]
    assert 77.0 in np.concatenate([line.get_xdata() for line in rings])
    dashed = [line.get_xdata()[0] for line in axes.lines if line.get_linestyle() == "--"]
    assert dashed == [4.0], "the baseline's interquartile mean"
    assert "ring: a repeated seed" in axes.get_xlabel()
