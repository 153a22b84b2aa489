"""Velocities on the faces of cells (marker and cell), and their momentum equation, second order.

    p at the centres of cells, velocity component a on the faces across axis a

    u_t + div(u u) = -grad p + nu laplacian(u) + f,     div u = 0

Along a periodic axis of n cells face i is the low face of cell i, n of them. Along an axis with walls the n - 1 faces
between cells are stored; on the walls the normal velocity is 0. A wall's own speed (of tangential components) enters
by mirrored values outside: 2 w - u.

Source: Harlow, Welch, Numerical calculation of time-dependent viscous incompressible flow, Phys. Fluids 8 (1965).
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn.functional import pad

from pinnfuse.grid import Dirichlet, Grid

Velocity = tuple[Tensor, Tensor]


@dataclass(frozen=True)
class Axis:
    """One axis of cells. All functions act on dimension `dim` of a tensor."""

    h: float
    periodic: bool
    low: float
    high: float
    """Speed of the walls, of the tangential velocity."""
    dim: int

    def faces(self, n: int) -> int:
        """How many faces are stored for n cells."""
        return n if self.periodic else n - 1

    def all_faces(self, u: Tensor) -> Tensor:
        """Normal velocity on all n + 1 faces, walls included."""
        if self.periodic:
            return torch.cat([u, u.narrow(self.dim, 0, 1)], self.dim)
        return pad(u, self._widths())

    def to_cells(self, u: Tensor) -> tuple[Tensor, Tensor]:
        """Mean and difference quotient in each cell of the normal velocity on its faces."""
        return self._between(self.all_faces(u))

    def to_faces(self, p: Tensor) -> tuple[Tensor, Tensor]:
        """Mean and difference quotient on the stored faces of a quantity of the cells."""
        if self.periodic:
            p = torch.cat([p.narrow(self.dim, -1, 1), p], self.dim)
        return self._between(p)

    def to_edges(self, u: Tensor) -> tuple[Tensor, Tensor]:
        """Mean and difference quotient, on all n + 1 faces, of a tangential velocity of the cells."""
        first, last = u.narrow(self.dim, 0, 1), u.narrow(self.dim, -1, 1)
        if self.periodic:
            return self._between(torch.cat([last, u, first], self.dim))
        return self._between(torch.cat([2 * self.low - first, u, 2 * self.high - last], self.dim))

    def divergence(self, flux: Tensor) -> Tensor:
        """Difference quotient of neighbouring entries."""
        return self._between(flux)[1]

    def _between(self, x: Tensor) -> tuple[Tensor, Tensor]:
        n = x.shape[self.dim] - 1
        below, above = x.narrow(self.dim, 0, n), x.narrow(self.dim, 1, n)
        return 0.5 * (below + above), (above - below) / self.h

    def _widths(self) -> tuple[int, ...]:
        return (1, 1) if self.dim == -1 else (0, 0, 1, 1)


def axes(grid: Grid) -> tuple[Axis, Axis]:
    """Both axes of a cell-centred grid whose boundary holds the tangential speed of each wall."""
    if grid.dimension != 2 or grid.centring != "cell" or grid.order != 2:
        raise ValueError(
            "FluidSimulator: `grid` must have two axes, centring='cell' and order=2; got "
            f"{grid.axes}, {grid.centring!r}, {grid.order}."
        )
    found = []
    for k, axis in enumerate(grid.axes):
        low, high = grid.sides[axis]
        if not grid.periodic[axis] and not (isinstance(low, Dirichlet) and isinstance(high, Dirichlet)):
            raise ValueError(
                f"FluidSimulator: the boundary along {axis!r} must be periodic, or Dirichlet(speed of the wall) at "
                f"both ends (no slip); got ({low}, {high})."
            )
        found.append(Axis(grid.spacing[k], grid.periodic[axis], low.number, high.number, k - 2))
    return found[0], found[1]


def divergence(velocity: Velocity, x: Axis, y: Axis) -> Tensor:
    """Of every cell."""
    return x.to_cells(velocity[0])[1] + y.to_cells(velocity[1])[1]


def acceleration(velocity: Velocity, x: Axis, y: Axis, viscosity: float | Tensor) -> Velocity:
    """-div(u u) + nu laplacian(u) on the stored faces: fluxes through the faces of a velocity's own cell."""
    u, v = velocity
    u_cells, u_x = x.to_cells(u)
    v_cells, v_y = y.to_cells(v)
    u_edges, u_y = y.to_edges(u)  # [stored x faces, all y faces]
    v_edges, v_x = x.to_edges(v)  # [all x faces, stored y faces]
    v_at_u, _ = x.to_faces(y.all_faces(v))  # the carrying velocity on the same edges
    u_at_v, _ = y.to_faces(x.all_faces(u))
    du = x.to_faces(viscosity * u_x - u_cells**2)[1] + y.divergence(viscosity * u_y - u_edges * v_at_u)
    dv = y.to_faces(viscosity * v_y - v_cells**2)[1] + x.divergence(viscosity * v_x - v_edges * u_at_v)
    return du, dv
