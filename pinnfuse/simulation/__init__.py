"""Simulators on grids."""

from pinnfuse.simulation.evolution import Evolution, solve
from pinnfuse.simulation.fluid import FluidSimulator
from pinnfuse.simulation.gray_scott import gray_scott, gray_scott_pde
from pinnfuse.simulation.heat import heat
from pinnfuse.simulation.physarum import Physarum
from pinnfuse.simulation.poisson import poisson_solve

__all__ = ["Evolution", "FluidSimulator", "Physarum", "gray_scott", "gray_scott_pde", "heat", "poisson_solve", "solve"]
