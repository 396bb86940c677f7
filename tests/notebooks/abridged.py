"""Copies of notebook 03 without cells that no later cell needs.

Most of the time goes into these cells, and what they show does not depend on how the run ends. The
tests that execute the whole notebook cover them; a test of something else leaves them out.
"""

from collections.abc import Collection
from pathlib import Path

import nbformat

NOTEBOOK = Path(__file__).parents[2] / "notebooks" / "03_sac_minitaur.ipynb"
# Agents copied to several replicas and trained there, the tutorial's environment, the study.
SIDE_STEPS = {
    *("mirror-setup", "mirror-rows-code", "mirror-gradient-code", "mirror-replicas-code"),
    *("mirror-sum", "mirror-broken-code", "mirror-learner-code", "mirror-train"),
    *("c7bd5bc4", "choices"),
}
# The films at the end of the notebook, each of a whole episode, too.
WITHOUT_FILMS = {*SIDE_STEPS, "worst", "replay"}
# All of the derivation, which a run that ends in its warm-up does not need.
BEFORE_THE_WARM_UP = {
    *SIDE_STEPS,
    *("sac-return-code", "sac-entropy", "sac-sample-code", "sac-sample-checked"),
    *("sac-critic-code", "sac-critic-checked", "sac-actor-code", "sac-alpha-code"),
    "sac-polyak-code",
}
# The tutorial's own training loop, and the sections that use what it made.
TUTORIAL_LOOP = {
    *("15598a06", "2b3725fe", "2cb65d11", "42b55013"),
    *("a107656b", "5fa3981a", "new-weights", "f93a01cb"),
}
# What is left trains, evaluates and draws one run.
TRAINING_ALONE = WITHOUT_FILMS | BEFORE_THE_WARM_UP | TUTORIAL_LOOP


# Episodes and pictures of the usual size would take longer than all the rest.
SHORT_EPISODES = """\
# Added by the tests: episodes of 200 env steps, and small films with few pictures.
from labkit.plotting import rendering

labkit.make_environment.__defaults__ = (None, 200, True, 0)  # max_episode_steps is the second
video.record_episode.__kwdefaults__.update(fps=5, width=160, height=120)
rendering.frame.__defaults__ = (160, 120)
"""


def write(
    folder: Path, leave_out: Collection[str] = SIDE_STEPS, short_episodes: bool = False
) -> Path:
    """Writes a copy without the cells that have these ids, not executed, into `folder`.

    With `short_episodes`, an episode ends after 200 env steps, and pictures are small and few.
    """
    notebook = nbformat.read(NOTEBOOK, as_version=4)
    left = [cell for cell in notebook.cells if cell.id not in leave_out]
    assert len(left) == len(notebook.cells) - len(leave_out), "a cell has another id now"
    for cell in left:
        if cell.cell_type == "code":
            cell.outputs, cell.execution_count = [], None
    if short_episodes:
        place = next(i for i, cell in enumerate(left) if cell.id == "imports") + 1
        left.insert(place, nbformat.v4.new_code_cell(SHORT_EPISODES, id="short-episodes"))
    notebook.cells = left
    nbformat.write(notebook, folder / "abridged.ipynb")
    return folder / "abridged.ipynb"
