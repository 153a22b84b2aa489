"""Simulators on grids."""

from pinnfuse.simulation.fluid import FluidSimulator
from pinnfuse.simulation.physarum import Physarum
from pinnfuse.simulation.poisson import poisson_solve

__all__ = ["FluidSimulator", "Physarum", "poisson_solve"]
