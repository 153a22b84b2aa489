"""Fields on uniform grids: grids, boundaries, difference formulas."""

from pinnfuse.grid.boundary import Dirichlet, Neumann, OneSided, Periodic
from pinnfuse.grid.grid import Grid
from pinnfuse.grid.stencils import AxisStencil, Row, axis_stencil

__all__ = ["AxisStencil", "Dirichlet", "Grid", "Neumann", "OneSided", "Periodic", "Row", "axis_stencil"]
