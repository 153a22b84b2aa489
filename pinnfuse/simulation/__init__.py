"""Simulators on grids."""

from pinnfuse.simulation.evolution import Evolution, solve
from pinnfuse.simulation.fluid import FluidSimulator
from pinnfuse.simulation.heat import heat
from pinnfuse.simulation.physarum import Physarum
from pinnfuse.simulation.poisson import poisson_solve

__all__ = ["Evolution", "FluidSimulator", "Physarum", "heat", "poisson_solve", "solve"]
