"""Records of a run: `metrics.csv` and Weights & Biases."""

from pinnfuse.tracking.history import History
from pinnfuse.tracking.wandb import logged_in, wandb_logger

__all__ = ["History", "logged_in", "wandb_logger"]
