"""Writes results/README.md, its figures, and the numbers in README.md, from tracked data alone.

    python scripts/pages.py              # seconds; the same data give the same bytes

The prose is in results_page.md, next to this file: `{name}` stands for a value computed here.
Its last part is for README.md.
"""

import json
import re
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import study
from matplotlib.figure import Figure

from labkit.analysis import statistics
from labkit.analysis.runs import compare
from labkit.parameters import brief, grouped
from labkit.plotting.curves import RETURN, published_curve
from labkit.plotting.style import BLUE, GREEN, GREY, ORANGE, PURPLE, label_axes, subplots

RESULTS = study.ROOT / "results"
MINITAUR = RESULTS / "minitaur"
MARKS = "<!-- numbers: make pages -->\n", "<!-- /numbers -->\n"
SOLVED = 15.0  # the environment's own `reward_threshold`
EARLIER = "earlier-target-entropy-8"
PEERS = {
    "sb3_sac-defaults": "Stable-Baselines3 SAC, its defaults",
    "sb3_sac-tuned": "Stable-Baselines3 SAC, labkit's choices",
    "sbx_sac-tuned": "SBX SAC, labkit's choices",
    "sbx_crossq-tuned": "SBX CrossQ, labkit's choices",
}
TUNED = list(PEERS)[1:]  # three seeds each
STANDARD = {
    "published": ("labkit, published hyperparameters", BLUE),
    "sb3": ("Stable-Baselines3, the same", ORANGE),
    "improved": ("labkit, layer norm and three-step returns", GREEN),
}
Rows = Iterator[Sequence[object]]


def main() -> None:
    """Writes scores.csv, the figures, the page and README's numbers."""
    scores = study.write_scores()
    runs = {run.config.seed: run for run in study.kept_runs() if run.setting == "defaults"}
    others = pd.read_csv(MINITAUR / "evaluations.csv")
    published = pd.read_csv(MINITAUR / "published.csv")
    standard = pd.read_csv(RESULTS / "standard" / "evaluations.csv")
    reference = pd.read_csv(RESULTS / "standard" / "reference.csv", comment="#")
    lander = pd.read_csv(RESULTS / "lunarlander" / "summary.csv")
    for name, figure in (
        ("minitaur/curves.png", minitaur_curves(runs, others, published)),
        ("minitaur/ablations.png", ablation_figure(scores)),
        ("standard/curves.png", standard_curves(standard, reference)),
    ):
        figure.savefig(RESULTS / name, dpi=100, metadata={"Software": None})
    tried = pd.read_csv(MINITAUR / "tried.csv")
    adopted = tried[tried.verdict == "adopted"]["return"].tolist()
    values = {
        **minitaur_values(scores, runs, others),
        "adopted_iqm": number(statistics.interquartile_mean(adopted)),
        "adopted_worst": number(min(adopted)),
        **other_values(standard, lander),
        "minitaur": table(minitaur_rows(scores, others, published)),
        "ablations": table(ablation_rows(scores)),
        "tried": table(tried_rows(tried)),
        "standard": table(standard_rows(standard, reference)),
        "lander": table(lander_rows(lander)),
    }
    template = Path(__file__).with_name("results_page.md").read_text()
    page, numbers = template.format_map(values).split("<!-- README.md -->\n")
    (RESULTS / "README.md").write_text(page)
    readme = study.ROOT / "README.md"
    before, _, rest = readme.read_text().partition(MARKS[0])
    readme.write_text(before + MARKS[0] + numbers + MARKS[1] + rest.partition(MARKS[1])[2])
    print("written: results/README.md, its figures, the numbers in README.md")


def table(rows: Rows) -> str:
    """A Markdown table; the first row is its head."""
    head, *body = (f"| {' | '.join(map(str, row))} |" for row in rows)
    text = "\n".join([head, "|---" * (head.count(" | ") + 1) + "|", *body])
    return re.sub(r"(?<=\d) (?=\d{3})", "\u00a0", text)  # 60 000 stays in one line


def number(value: float, places: int = 1) -> str:
    """A number with a true minus sign; zero has none."""
    return f"{round(value, places) + 0:.{places}f}".replace("-", "−")


def listed(values: Sequence[float], between: str = ", ") -> str:
    """Several numbers, as in `20.7, 13.9, 24.9`."""
    return between.join(number(value) for value in values)


def mean_of(values: Any, places: int = 1) -> str:
    """The mean as text."""
    return number(float(np.mean(values)), places)


def scores_of(scores: pd.DataFrame, setting: str, env_steps: int) -> pd.DataFrame:
    """The rows of one setting and budget."""
    return scores[(scores.setting == setting) & (scores.env_steps == env_steps)]


def finals(others: pd.DataFrame, setting: str) -> pd.DataFrame:
    """The last evaluation of each seed of a run outside of the study."""
    return others[others.setting == setting].groupby("seed").tail(1)


def minitaur_values(scores: pd.DataFrame, runs: dict, others: pd.DataFrame) -> dict[str, Any]:
    """How soon the robot walks, how well, and how it compares."""
    rows = {seed: study.first_at(run.evaluations) for seed, run in runs.items()}
    first = {seed: row for seed, row in rows.items() if row is not None}
    steps = [row.env_step for row in first.values()]
    minutes = [study.training_minutes(runs[s].metrics)[row.name] for s, row in first.items()]
    found: dict[str, Any] = {}
    for budget in (60, 100):
        values = scores_of(scores, "defaults", budget * 1000)["return"]
        found |= {
            f"worst_{budget}": number(values.min()),
            f"runs_{budget}": len(values),
            f"solved_{budget}": sum(values >= SOLVED),
        }
    by_seed = scores_of(scores, "defaults", 60_000).set_index("seed")["return"]
    same = scores_of(scores, EARLIER, 100_000)["return"].tolist()
    peers = [finals(others, name)["return"].tolist() for name in TUNED]
    p_values = statistics.holm([statistics.welch(same, peer) for peer in peers])
    found |= {f"{name}_p": f"{p:.2g}" for name, p in zip(TUNED, p_values, strict=True)}
    ablated = compare(ablations(scores), "defaults")
    return found | {
        "walk_steps": grouped(int(np.median(steps))),
        "walk_minutes": number(float(np.median(minutes))),
        "walk_most_steps": grouped(int(max(steps))),
        "solved": number(SOLVED, 0),
        "defaults_300": listed(scores_of(scores, "defaults", 300_000)["return"].tolist()),
        "earlier_300": listed(scores_of(scores, EARLIER, 300_000)["return"].tolist()),
        "fresh": mean_of(by_seed[[8, 9, 10]]),
        "first_three": mean_of(by_seed[[1, 2, 3]]),
        "rest": mean_of(by_seed[by_seed.index > 3]),
        "same_mean": mean_of(same),
        "sb3_mean": mean_of(peers[0]),
        "detected": " and ".join(f"`{name}`" for name in ablated.index[ablated.corrected < 0.05]),
        "tests": len(ablated),
    }


def other_values(standard: pd.DataFrame, lander: pd.DataFrame) -> dict[str, Any]:
    """Values about speed, as `make bench` measured it, the standard robots and both executors."""
    text = (study.ROOT / "benchmarks" / "results" / "throughput.json").read_text()
    measured = json.loads(text)["implementations"]
    rates = {k: np.array([turn["rate"] for turn in v["repeats"]]) for k, v in measured.items()}
    last = standard.groupby(["env_name", "setting", "seed"])["return"].last()
    robots = last.index.unique("env_name")
    p_values = [statistics.welch(last[r, "published"], last[r, "sb3"]) for r in robots]
    folder, present = RESULTS / "ray_vs_local", lander[~lander.replaced]
    means = pd.read_csv(folder / "summary.csv").groupby("executor").mean_return.agg(list)
    on_ray = means["ray"] + pd.read_csv(folder / "lost.csv").mean_return.tolist()
    return {
        "rate": mean_of(np.median(rates["labkit"]), 0),
        "run_minutes": mean_of(100_000 / np.median(rates["labkit"]) / 60, 0),
        "sb3_speed": mean_of(np.median(rates["labkit_same"] / rates["sb3_sac"]), 2),
        "standard_p": f"{min(statistics.holm(p_values)):.2g}",
        **{f"cheetah_{name}": mean_of(last["HalfCheetah-v4", name], 0) for name in STANDARD},
        "lander_runs": len(present),
        "lander_solved": sum(present.confirmed_mean_return >= 200),
        "lander_replaced": sum(lander.replaced),
        "lander_reached": sum(lander.ended[lander.replaced] == "mean of 200"),
        "local_runs": len(means["local"]),
        "local_mean": mean_of(means["local"]),
        "ray_runs": len(on_ray),
        "ray_mean": mean_of(on_ray),
        "ray_p": number(statistics.welch(on_ray, means["local"]), 2),
    }


# --- tables


def minitaur_rows(scores: pd.DataFrame, others: pd.DataFrame, published: pd.DataFrame) -> Rows:
    """Defaults, peers and published results on the Minitaur."""
    yield "", "env steps", "seeds", "mean", "IQM", "worst", "walks after", "made by"
    names = {"defaults": "**labkit's defaults**", EARLIER: "labkit, target entropy −8"}
    names["source"] = "labkit, all of the tutorial's values"
    for setting, budget in (
        *(("defaults", 60_000), ("defaults", 100_000), ("defaults", 300_000)),
        *((EARLIER, 100_000), (EARLIER, 300_000), ("source", 60_000)),
    ):
        rows = scores_of(scores, setting, budget)
        made = "`make results` (*)" if setting == EARLIER else "`make study`"
        yield line(names[setting], budget, rows["return"], rows.steps_to_10, made)
        if (setting, budget) == ("defaults", 300_000):
            yield other_line(others, "defaults-notebook", names[setting], "`make run`")
            made = "`make run ARGS='-p num_iterations 1e6'`"
            yield other_line(others, "defaults-million", names[setting], made)
    for name, label in PEERS.items():
        yield other_line(others, name, label, "`make peers` (*)")
    for row in published.to_dict("records"):
        label = f"[{row['method']}]({row['address']})"
        yield label, grouped(row["env_steps"]), 1, number(row["return"]), "", "", "", "published"


def other_line(others: pd.DataFrame, name: str, label: str, made: str) -> list[str]:
    """The row of runs outside of the study."""
    last, runs = finals(others, name), others[others.setting == name].groupby("seed")
    first = [study.first_at(rows, "return") for _, rows in runs]
    walked = pd.Series([np.nan if row is None else row.env_step for row in first])
    return line(label, int(last.env_step.iloc[0]), last["return"], walked, made)


def line(label: str, budget: int, returns: pd.Series, walked: pd.Series, made: str) -> list[str]:
    """One row: an interval from five seeds on; a run that never walked is infinitely late."""
    values, middle = returns.tolist(), walked.fillna(np.inf).median()
    interval, iqm = statistics.bootstrap_interval(values), ""
    if interval:
        iqm = f"{number(statistics.interquartile_mean(values))} ({listed(interval, '–')})"
    worst = number(min(values)) if len(values) > 1 else ""
    soon = grouped(int(middle)) if np.isfinite(middle) else "–"
    return [label, grouped(budget), str(len(values)), mean_of(values), iqm, worst, soon, made]


def ablations(scores: pd.DataFrame) -> pd.DataFrame:
    """The scores after 60 000 env steps, of the defaults and of the settings of the study."""
    return scores[(scores.env_steps == study.BUDGET) & scores.setting.isin(study.SETTINGS)]


def in_order(scores: pd.DataFrame) -> list[tuple[str, list[float]]]:
    """The settings and their scores, best mean first."""
    groups = ablations(scores).groupby("setting")["return"].agg(list)
    return sorted(groups.items(), key=lambda item: -float(np.mean(item[1])))


def ablation_rows(scores: pd.DataFrame) -> Rows:
    """One row a setting, best mean first."""
    compared = compare(ablations(scores), "defaults")
    yield "setting", "value", "mean", "worst", "seeds", "minus the defaults", "p"
    for name, values in in_order(scores):
        changed = study.SETTINGS[name].items()
        words = ["none" if value == () else brief(value) for _, value in changed] or [""]
        what = words[0] if len(words) < 2 else f"{len(words)} choices"
        tail = ["", ""]
        if name in compared.index:
            tail = [number(compared.difference[name]), f"{compared.corrected[name]:.2g}"]
        yield [f"`{name}`", what, mean_of(values), number(min(values)), len(values), *tail]


def tried_rows(tried: pd.DataFrame) -> Rows:
    """One row for each change that was tried, and budget, in the order of the file."""
    yield "change", "env steps", "seeds", "worst", "mean", "IQM", "verdict"
    by = ["change", "env_steps", "verdict"]
    for (change, env_steps, verdict), runs in tried.groupby(by, sort=False):
        values, seeds = runs["return"].tolist(), ", ".join(map(str, runs.seed))
        iqm = number(statistics.interquartile_mean(values))
        worst, mean = number(min(values)), mean_of(values)
        yield change, grouped(env_steps), seeds, worst, mean, iqm, verdict


def standard_rows(standard: pd.DataFrame, reference: pd.DataFrame) -> Rows:
    """Published curves, labkit and Stable-Baselines3 after 100 000 env steps."""
    last = standard.groupby(["env_name", "setting", "seed"])["return"].last()
    labels = [label for label, _ in STANDARD.values()]
    yield ["mean (worst seed)", "published, ± 2 sd", *labels]
    for robot, rows in reference.groupby("env_name"):
        ends = rows[rows.env_step == rows.env_step.max()]["return"]
        ours = [last[robot, name] for name in STANDARD]
        cells = [f"{values.mean():.0f} ({values.min():.0f})" for values in ours]
        yield [robot, f"{ends.mean():.0f} ± {2 * ends.std():.0f}", *cells]


def lander_rows(lander: pd.DataFrame) -> Rows:
    """The present run of each seed and executor."""
    yield "executor", "seed", "env steps", "mean of 20 episodes", "mean of 100 new episodes"
    for row in lander[~lander.replaced].itertuples():
        means = number(row.last_mean_return), number(row.confirmed_mean_return)
        yield row.executor, row.seed, grouped(row.last_env_step), *means


# --- figures


def minitaur_curves(runs: dict, others: pd.DataFrame, published: pd.DataFrame) -> Figure:
    """The first 100 000 env steps beside the peers, and the long runs."""
    curves = {s: run.evaluations.groupby("env_step").eval_return.last() for s, run in runs.items()}
    ppo, sac, _ = published.to_dict("records")
    with subplots(11, 5, 1, 2, sharey=True) as (figure, (short, long)):
        for axes, end in ((short, 105_000), (long, 1_005_000)):
            axes.axhline(0, color=GREY, lw=0.8)
            axes.axhline(SOLVED, color=GREY, lw=1, ls=":", label=f"solved: {SOLVED:.0f}")
            for seed, curve in curves.items():
                label = "labkit's defaults, each seed" if seed == 1 else None
                axes.plot(curve[curve.index <= end], color=BLUE, lw=0.8, alpha=0.4, label=label)
        mean = pd.DataFrame(curves).loc[:60_000].mean(axis=1)
        short.plot(mean, color=BLUE, lw=2.8, label="labkit's defaults, mean of ten seeds")
        for name, color, marker in zip(TUNED, (ORANGE, GREEN, PURPLE), "os^", strict=True):
            rows = others[others.setting == name].groupby("env_step")["return"].mean()
            label = f"{PEERS[name]}, mean of three seeds"
            short.plot(rows, color=color, marker=marker, markevery=4, ms=5, lw=1.5, label=label)
        published_curve(short)
        rows = others[others.setting == "defaults-million"].set_index("env_step")["return"]
        long.plot(rows, color="black", lw=1.2, label="labkit's defaults, a million gradient steps")
        label = "SAC (Rafael1s), published"
        long.plot(sac["env_steps"], sac["return"], "D", color=ORANGE, ms=8, label=label)
        label = "PPO2 after 2 000 000 env steps, published"
        long.axhline(ppo["return"], color=PURPLE, ls="--", label=label)
        label_axes(short, "env steps", RETURN, "The first 100 000 env steps")
        label_axes(long, "env steps", "", "A million")
        legend(figure)
    return figure


def legend(figure: Figure) -> None:
    """One legend below all panels, each label once."""
    labels: dict[str, Any] = {}
    for axes in figure.axes:
        labels |= dict(zip(*axes.get_legend_handles_labels()[::-1], strict=True))
    figure.legend(labels.values(), labels.keys(), loc="outside lower center", ncols=2)


def ablation_figure(scores: pd.DataFrame) -> Figure:
    """A row a setting: a dot for each seed, a bar at the mean."""
    rows = in_order(scores)
    with subplots(8, 5.6) as (figure, axes):
        for place, (name, values) in enumerate(rows):
            color = "black" if name == "defaults" else BLUE
            dots, bars = ("a seed", "mean of the setting") if place == 1 else (None, None)
            height = [place] * len(values)
            axes.plot(values, height, "o", color=color, alpha=0.5, ms=6, mew=0, label=dots)
            axes.plot(np.mean(values), place, "|", color=color, ms=16, mew=2.5, label=bars)
            if name == "defaults":
                label = "mean of the defaults"
                axes.axvline(np.mean(values), color=GREY, lw=1, ls="--", label=label)
        axes.set_yticks(range(len(rows)), [name for name, _ in rows])
        axes.invert_yaxis()
        axes.set_xlabel("return after 60 000 env steps")
        figure.legend(loc="outside lower center", ncols=3)
    return figure


def standard_curves(standard: pd.DataFrame, reference: pd.DataFrame) -> Figure:
    """A panel a robot: published mean and spread, labkit, Stable-Baselines3."""
    with subplots(11, 4.4, 1, 3) as (figure, panels):
        for axes, (robot, rows) in zip(panels, reference.groupby("env_name"), strict=True):
            by_step = rows.groupby("env_step")["return"]
            mean, spread = by_step.mean(), 2 * by_step.std()
            label = "published, ± 2 standard deviations of 10 seeds"
            axes.fill_between(mean.index, mean - spread, mean + spread, color="#ddd", label=label)
            axes.plot(mean, "--", color="black", label="published, mean")
            for name, (text, color) in STANDARD.items():
                chosen = standard[(standard.setting == name) & (standard.env_name == robot)]
                for _, one in chosen.groupby("seed"):
                    axes.plot(one.env_step, one["return"], color=color, lw=0.8, alpha=0.35)
                mean = chosen.groupby("env_step")["return"].mean()
                axes.plot(mean, color=color, label=f"{text}, mean of 3 seeds")
            label_axes(axes, "env steps", RETURN if axes is panels[0] else "", str(robot))
            axes.set_xticks([0, 50_000, 100_000])
        legend(figure)
    return figure


if __name__ == "__main__":
    main()
