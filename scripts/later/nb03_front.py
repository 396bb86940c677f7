"""Edits notebooks/03_sac_minitaur.ipynb for issue 10; idempotent. Run from the repository's root.

    .venv/bin/python nb03_front.py [notebook]
"""

import sys

import nbformat

sys.path.insert(0, "scripts")
import front

path = sys.argv[1] if len(sys.argv) > 1 else "notebooks/03_sac_minitaur.ipynb"
notebook = nbformat.read(path, as_version=4)
front.front(notebook, "", "notebooks/03_sac_minitaur.ipynb")
cells = {cell.id: cell for cell in notebook.cells}


def change(cell_id, old, new):
    """Replaces `old` by `new` once; says so where neither is there."""
    cell = cells[cell_id]
    if new in cell.source:
        return
    if cell.source.count(old) != 1:
        raise SystemExit(f"cell {cell_id} has changed, edit it by hand:\n{old!r}\n-> {new!r}")
    cell.source = cell.source.replace(old, new)


# Alt text for pictures that are no labkit figures.
change(
    "b60e7416",
    "PIL.Image.fromarray(picture)",
    'alt = {"image/png": {"alt": "The environment at its start, seen from the side"}}\n'
    "display(PIL.Image.fromarray(picture), metadata=alt)",
)
change(
    "a8bc93c9",
    "    display(Image(measured.with_suffix(\".png\").read_bytes()))",
    '    alt = "Gradient steps a second by number of replicas, as make bench-scaling measured them"\n'
    '    display(Image(measured.with_suffix(".png").read_bytes(), alt=alt))',
)

# The live view.
change(
    "3aaffce7",
    "Progress shows here; every `eval_interval` steps five\n"
    "greedy episodes are played, and twenty at the end.",
    "One line and one figure below are drawn anew while\n"
    "it runs; every `eval_interval` steps five greedy episodes are played, and twenty at the end.",
)
change(
    "e9055421",
    "`metrics.csv` holds a row for every log and every evaluation.",
    "`metrics.csv` holds a row for every log and every evaluation. TensorBoard shows the same numbers:\n"
    "`%load_ext tensorboard`, then `%tensorboard --logdir runs --host 127.0.0.1` in a cell of their\n"
    "own, or `make tensorboard` in a terminal.",
)

# A run that was stopped before its first log or evaluation.
change(
    "cc643248",
    'final = evaluations.iloc[-1]\n'
    "if train_step.numpy() == config.num_iterations:  # not so after the stop button\n"
    "    assert len(final.eval_returns) == config.num_eval_episodes\n"
    "pd.DataFrame(\n"
    '    {name: getattr(final, f"eval_{name}") for name in ("returns", "lengths", "distances")}\n'
    ').describe().loc[["count", "mean", "std", "min", "max"]].round(2)',
    "final = None if evaluations.empty else evaluations.iloc[-1]\n"
    "if train_step.numpy() == config.num_iterations:  # not so after the stop button\n"
    "    assert len(final.eval_returns) == config.num_eval_episodes\n"
    "if final is None:\n"
    '    print("no table: the run was stopped before its first evaluation")\n'
    "else:\n"
    '    names = ("returns", "lengths", "distances")\n'
    '    episodes = pd.DataFrame({name: getattr(final, f"eval_{name}") for name in names})\n'
    '    display(episodes.describe().loc[["count", "mean", "std", "min", "max"]].round(2))',
)
change(
    "43fe3d0f",
    "plots.learning_curve(metrics, published=is_minitaur)",
    "plots.if_any(plots.learning_curve, metrics, published=is_minitaur)",
)
change(
    "6d90d0b0", "plots.distance_and_length(metrics)", "plots.if_any(plots.distance_and_length, metrics)"
)
change("b7b77a25", "plots.losses(metrics)", "plots.if_any(plots.losses, metrics)")
change(
    "797255b2",
    'print(f"greedy:  mean return {final.eval_return:+.2f}")',
    "if final is not None:\n"
    '    print(f"greedy:  mean return {final.eval_return:+.2f}")',
)
nbformat.validate(notebook)
nbformat.write(notebook, path)
