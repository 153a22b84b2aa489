"""Physarum over several processes: bands of rows, halos, and what neighbours exchange."""

from pinnfuse.simulation.physarum.split.processes import join, spawn, under_torchrun
from pinnfuse.simulation.physarum.split.simulation import SplitPhysarum

__all__ = ["SplitPhysarum", "join", "spawn", "under_torchrun"]
