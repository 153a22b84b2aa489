"""Records of a run or a simulation: `metrics.csv` and Weights & Biases."""

from pinnfuse.tracking.history import History
from pinnfuse.tracking.simulation import follow
from pinnfuse.tracking.wandb import QuietWandbLogger, logged_in, start_run

__all__ = ["History", "QuietWandbLogger", "follow", "logged_in", "start_run"]
