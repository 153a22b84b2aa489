"""Records of a run: `metrics.csv` and Weights & Biases."""

from pinnfuse.tracking.history import History
from pinnfuse.tracking.wandb import QuietWandbLogger, logged_in

__all__ = ["History", "QuietWandbLogger", "logged_in"]
