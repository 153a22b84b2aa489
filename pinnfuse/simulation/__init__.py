"""Simulators on grids."""

from pinnfuse.simulation.physarum import Physarum

__all__ = ["Physarum"]
