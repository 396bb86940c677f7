"""A mistake in a loss of notebook 03 makes a cell fail: the one that checks this loss.

All cells that the checks need run once, on a Pendulum. Then, in the same kernel, a cell runs again
with one mistake in it, and after it the cell that checks.
"""

import re
from pathlib import Path

import nbformat
import pytest
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError

NOTEBOOK = Path(__file__).parents[2] / "notebooks" / "03_sac_minitaur.ipynb"
# Three env steps to a row, normalised critics, one action between -2 and 2.
PENDULUM = """
env_name, batch_size, n_step, seed = "Pendulum-v1", 16, 3, 2
critic_layer_norm, target_entropy, initial_log_alpha, gamma = True, -1.5, -1.0, 0.9
actor_fc_layer_params = critic_joint_fc_layer_params = (16, 16)
"""
BEFORE_CHECKS = ("set-up", "start-run", "imports", "seed", "watchdog", "specs", "devices")
# They train and check nothing of LOSSES, and no check needs them.
NOT_NEEDED = ("mirror-rows-code", "mirror-broken-code", "mirror-learner-code", "mirror-train")
LOSSES = {  # what is wrong: (right, wrong, the cell that notices, what it says)
    "no log-determinant": ("log_normal - log_slope", "log_normal", "sac-sample-checked", "log π"),
    "no half range": (" - np.log(half_range)", "", "sac-sample-checked", "log π"),
    "no discount after a fall": (
        *("config.gamma * after.discount", "config.gamma", "sac-critic-checked"),
        "the loss is",
    ),
    "another reward scale": (
        *("config.reward_scale_factor * after", "1.5 * after", "sac-critic-checked"),
        "the gradient of critic 2",
    ),
    "sign of the entropy bonus": (
        *("lower - tf.exp(net.log_alpha)", "lower + tf.exp(net.log_alpha)", "sac-critic-checked"),
        "the gradient of critic 1",
    ),
    "critics in place of targets": (
        *("q_values(net.targets", "q_values(net.critics", "sac-critic-checked"),
        "the loss is",
    ),
    "no gradient through the sample": (
        *("u = mean + std * noise", "u = tf.stop_gradient(mean + std * noise)"),
        *("sac-actor-code", "LossMismatch: the gradient of actor"),
    ),
    "sign of Q": ("* log_pi - lower)", "* log_pi + lower)", "sac-actor-code", "the loss is"),
    "sign of the temperature": ("(-log_pi - ", "(log_pi - ", "sac-alpha-code", "the loss is"),
    "weights of the average": (
        *("tau * w + (1 - tau) * target", "(1 - tau) * w + tau * target", "sac-polyak-code"),
        "the target network",
    ),
    "no division by the global batch": (
        *("replica_gradients(divisor=global_batch)", "replica_gradients(divisor=share)"),
        *("mirror-sum", "the sum of the replicas' gradients"),
    ),
}


class Kernel:
    """Runs cells of the notebook in one kernel."""

    def __init__(self, folder):
        cells = nbformat.read(NOTEBOOK, as_version=4).cells
        self.cells = {cell.id: cell for cell in cells if cell.cell_type == "code"}
        empty = nbformat.v4.new_notebook()
        resources = {"metadata": {"path": str(folder)}}
        self.client = NotebookClient(empty, timeout=200, resources=resources)

    def run(self, *sources):
        for source in sources:
            cell = nbformat.v4.new_code_cell(source)
            self.client.nb.cells.append(cell)
            self.client.execute_cell(cell, len(self.client.nb.cells) - 1)

    def prepare(self):
        for name, cell in self.cells.items():
            wanted = name in BEFORE_CHECKS or name.startswith(("sac-", "mirror-"))
            if wanted and name not in NOT_NEEDED:
                self.run(cell.source)
            if "parameters" in cell.metadata.get("tags", []):
                self.run(cell.source + PENDULUM)


@pytest.fixture(scope="module")
def kernel(tmp_path_factory):
    made = Kernel(tmp_path_factory.mktemp("losses"))
    with made.client.setup_kernel():
        made.prepare()
        yield made


@pytest.mark.timeout(300)
@pytest.mark.parametrize("mistake", LOSSES)
def test_a_wrong_loss_fails_in_the_cell_that_checks_it(kernel, mistake):
    right, wrong, check, message = LOSSES[mistake]
    (name,) = [name for name, cell in kernel.cells.items() if right in cell.source]
    source, check_source = kernel.cells[name].source, kernel.cells[check].source
    try:
        with pytest.raises(CellExecutionError) as caught:
            kernel.run(source.replace(right, wrong), check_source)
        # Not `match`: the text of the error has the cell's source, which has these words, too.
        assert re.search(message, f"{caught.value.ename}: {caught.value.evalue}")
    finally:
        kernel.run(source, check_source)  # without the mistake it passes
