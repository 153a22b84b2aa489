"""Fields on uniform grids: grids, boundaries, difference formulas, differential operators.

Operators take `[..., *space]` tensors of any strides and a `Grid`; see `docs/grid.md`.
"""

from pinnfuse.grid import spectral
from pinnfuse.grid.boundary import Dirichlet, Neumann, OneSided, Periodic
from pinnfuse.grid.custom import custom
from pinnfuse.grid.dispatch import backends
from pinnfuse.grid.grid import Grid
from pinnfuse.grid.operators import biharmonic, curl, derivative, divergence, gradient, laplacian
from pinnfuse.grid.residual import FusedGridResidualLoss
from pinnfuse.grid.sampling import sample
from pinnfuse.grid.stencils import AxisStencil, Row, axis_stencil
from pinnfuse.grid.time import time_difference
from pinnfuse.grid.transport import convection, diffusion

__all__ = [
    "AxisStencil",
    "Dirichlet",
    "FusedGridResidualLoss",
    "Grid",
    "Neumann",
    "OneSided",
    "Periodic",
    "Row",
    "axis_stencil",
    "backends",
    "biharmonic",
    "convection",
    "curl",
    "custom",
    "derivative",
    "diffusion",
    "divergence",
    "gradient",
    "laplacian",
    "sample",
    "spectral",
    "time_difference",
]
