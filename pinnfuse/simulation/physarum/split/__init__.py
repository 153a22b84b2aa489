"""Physarum over several processes: bands of rows, halos, and what neighbours exchange."""

from pinnfuse.simulation.physarum.split.processes import spawn, under_torchrun
from pinnfuse.simulation.physarum.split.simulation import SplitPhysarum

__all__ = ["SplitPhysarum", "spawn", "under_torchrun"]
