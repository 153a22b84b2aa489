"""Simulators on grids."""

from pinnfuse.simulation.physarum import Physarum
from pinnfuse.simulation.poisson import poisson_solve

__all__ = ["Physarum", "poisson_solve"]
