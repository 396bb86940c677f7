"""Sends each row of metrics to an experiment tracker: three lines each. Neither is installed here.

pip install wandb      and    python examples/loggers.py wandb
pip install trackio    and    python examples/loggers.py trackio
"""

import sys

import labkit


def train_with_wandb(config: labkit.SACConfig) -> labkit.Run:
    """Trains, and sends the metrics to Weights & Biases."""
    import wandb

    with wandb.init(project="labkit") as tracked:
        return labkit.train(config, on_metrics=tracked.log)


def train_with_trackio(config: labkit.SACConfig) -> labkit.Run:
    """Trains, and keeps the metrics in trackio's local database."""
    import trackio

    trackio.init(project="labkit")
    run = labkit.train(config, on_metrics=trackio.log)
    trackio.finish()
    return run


if __name__ == "__main__":
    trainers = {"wandb": train_with_wandb, "trackio": train_with_trackio}
    trainers[sys.argv[1]](labkit.SACConfig(num_iterations=10_000))
