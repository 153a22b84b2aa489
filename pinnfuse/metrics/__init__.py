"""Metrics as torchmetrics objects."""

from pinnfuse.metrics.relative_l2 import RelativeL2

__all__ = ["RelativeL2"]
