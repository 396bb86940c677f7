"""Adds `num_collectors` to notebook 03: run from the repository's root; safe to repeat."""
import nbformat

PATH = "notebooks/03_sac_minitaur.ipynb"
nb = nbformat.read(PATH, as_version=4)

def cell(beginning):
    (found,) = [c for c in nb.cells if beginning in c.source and c.cell_type == "code"]
    return found

parameters = next(c for c in nb.cells if "parameters" in c.metadata.get("tags", []))
line = "num_collectors: int = 0  # rollout workers beside the learner, on Ray; 0 is this process alone"
if "num_collectors" not in parameters.source:
    lines = parameters.source.splitlines()
    place = next(i for i, text in enumerate(lines) if text.startswith("collect_steps_per_iteration"))
    parameters.source = "\n".join([*lines[: place + 1], line, *lines[place + 1 :]])

start = cell("run = labkit.start_run(globals())")
if "num_collectors" not in start.source:
    start.source = start.source.replace(
        "run = labkit.start_run(globals())\n",
        'run = labkit.start_run(globals())\n'
        'num_collectors = whole("num_collectors", num_collectors, 0, 64, "rollout workers")\n',
    )
    start.source = "from labkit.config import whole\n\n" + start.source

train = cell("labkit.train(config, run=run, parts=parts)")
if "num_collectors" not in train.source:
    train.source = train.source.replace(
        "labkit.train(config, run=run, parts=parts)\n",
        "if num_collectors:\n"
        "    labkit.train_on_ray(config, num_collectors, run=run)\n"
        "    parts.load(run.path)  # what the learner's process made\n"
        "else:\n"
        "    labkit.train(config, run=run, parts=parts)\n",
    )

text = next(c for c in nb.cells if c.cell_type == "markdown" and c.source.startswith("### The run"))
more = (
    "\n\nWith `num_collectors = 1` the env steps are taken in another process, on Ray, while the learner "
    "trains\nin a third; a rate limiter keeps the ratio. Notebook 04 explains it."
)
if "num_collectors" not in text.source:
    text.source += more

nbformat.validate(nb)
nbformat.write(nb, PATH)
