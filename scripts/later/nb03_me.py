"""Idempotent: notebook 03 names the evidence over seeds."""
import sys, nbformat
p = sys.argv[1] if len(sys.argv) > 1 else "./notebooks/03_sac_minitaur.ipynb"
nb = nbformat.read(p, as_version=4)
old = "Four of them are the Minitaur's; `None` takes what `labkit` knows for the environment."
new = """What each of them is worth was measured over seeds, taken back one at a time: see
[results](../results/minitaur/README.md).

""" + old
for c in nb.cells:
    if c.cell_type == "markdown" and old in c.source and "results/minitaur/README.md" not in c.source:
        c.source = c.source.replace(old, new)
    t = "- Compare greedy policies over many episodes that nothing was chosen by; single returns scatter."
    if c.cell_type == "markdown" and t in c.source and "05_compare_runs" not in c.source:
        c.source = c.source.replace(t, t + "\n- One run is one sample. [Notebook 05](05_compare_runs.ipynb) compares several, with intervals.")
nbformat.write(nb, p)
