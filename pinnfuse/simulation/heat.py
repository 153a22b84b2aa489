r"""The heat equation by explicit Euler steps: u_t = alpha laplacian(u).

    u(t + dt) = u(t) + dt alpha (D u(t) + c)

D is the discrete Laplacian of the grid with its walls, c what the walls' numbers contribute. The step is stable where
|1 + dt alpha lambda| <= 1 for every eigenvalue lambda of D: dt <= min -2 Re(lambda) / (alpha |lambda|^2), which for the
periodic grid of order 2 and equal spacing h is alpha dt / h^2 <= 1 / (2 d).
"""

from __future__ import annotations

import math
from functools import lru_cache

import torch
from torch import Tensor

from pinnfuse.grid import Grid, OneSided, axis_stencil
from pinnfuse.grid.dispatch import choose
from pinnfuse.grid.grid import check_grid
from pinnfuse.grid.linear import LinearOperator, Term
from pinnfuse.grid.stencils import check_points
from pinnfuse.parameters import number
from pinnfuse.simulation.steps import Advance, fits

LONGEST = 32
"""Points of an axis with walls whose eigenvalues are computed: those at walls do not change beyond."""


@lru_cache(maxsize=256)
def largest_stable_step(grid: Grid, shape: tuple[int, ...]) -> float:
    """Largest stable alpha dt of explicit Euler, units of length^2."""
    total = torch.zeros((), dtype=torch.complex128)
    for axis, n in zip(grid.axes, shape, strict=True):
        stencil = axis_stencil(grid, axis, 2)
        if grid.periodic[axis]:
            values = stencil.symbol(2 * torch.pi * torch.arange(n, dtype=torch.float64) / n)
        else:
            values = torch.linalg.eigvals(stencil.matrix(min(n, LONGEST))[0])
            if any(isinstance(side, OneSided) for side in grid.sides[axis]):  # polynomials, whose eigenvalue is 0 to a
                values[values.abs() < 1e-3 * values.abs().max()] = 0.0  # root of the rounding: they form no basis
            top = stencil.symbol(torch.tensor([torch.pi], dtype=torch.float64))  # what more points tend to
            values = torch.cat([values, top]) if n > LONGEST else values
        total = (total.unsqueeze(-1) + values).flatten()
        total = total[total.abs() > 1e-9 / min(grid.spacing) ** 2] if total.numel() > 4096 else total
        total = _extreme(total)
    total = total[total.abs() > 1e-12 * float(total.abs().max())]
    return float((-2 * total.real / total.abs() ** 2).min()) if total.numel() else math.inf


def _extreme(values: Tensor) -> Tensor:
    """The values that can bound the step: all complex ones, and the most negative real ones."""
    real = values[values.imag.abs() <= 1e-9 * values.abs().max()]
    curved = values[values.imag.abs() > 1e-9 * values.abs().max()]
    return torch.cat([real[real.real.argmin()].reshape(1), curved]) if real.numel() else curved


LARGE = 2**23
"""Points from which on memory decides and not the host: several steps a launch compute halos again. H200, microseconds
a step as called, one and several a launch: 1024^2 29 and 4.7, 4096^2 38 and 61."""


def heat(
    u0: Tensor, grid: Grid, *, diffusivity: float, dt: float | None = None, steps: int = 1, backend: str = "auto"
) -> Tensor:
    r"""`steps` explicit steps of $u_t = \alpha \nabla^2 u$.

    Args:
        u0: `[..., *space]`.
        diffusivity: alpha > 0, length^2 / time.
        dt: of a step; 0.9 of the largest stable one by default.
        backend: "auto", "torch" or "triton". On a card, at order 2 with one or two axes that are periodic or have
            Dirichlet or Neumann walls, several steps are one launch (`pinnfuse.kernels.grid.heat`); half precision is
            then rounded once a launch. Otherwise, and by "auto" from LARGE points on, a step is one.

    Raises:
        ValueError: a step that would be unstable, with the largest stable one; bad shapes or numbers.
    """
    space = check_grid(grid, "heat").check(u0, "heat", "u0")
    for axis, n in zip(grid.axes, space, strict=True):
        check_points(axis_stencil(grid, axis, 2), n, axis, "heat", "u0")
    if grid.order > 2 and any(isinstance(side, OneSided) for sides in grid.sides.values() for side in sides):
        raise ValueError(
            f"heat: one-sided ends of order {grid.order} let the field grow as a power of time, whatever the step. Use "
            "order 2, or walls that are Dirichlet or Neumann."
        )
    diffusivity = number(diffusivity, "heat: `diffusivity`")
    if not diffusivity > 0:
        raise ValueError(f"heat: `diffusivity` must be > 0; got {diffusivity}.")
    if steps < 0 or steps != int(steps):
        raise ValueError(f"heat: `steps` must be a whole number >= 0; got {steps}.")
    largest = largest_stable_step(grid, space) / diffusivity
    dt = 0.9 * largest if dt is None else number(dt, "heat: `dt`")
    if not dt > 0:
        raise ValueError(f"heat: `dt` must be > 0; got {dt}.")
    if dt > largest * (1 + 1e-9):
        raise ValueError(
            f"heat: `dt` = {dt:.6g} would be unstable; the largest stable step is {largest:.6g}. Use a smaller one."
        )
    factor = dt * diffusivity

    def one_by_one() -> Tensor:
        step, u = _step(grid, factor), u0
        for _ in range(int(steps)):
            u = step(u, grid.axes, backend, scalar=(True, True))
        return u

    if not fits(grid, space) or (backend == "auto" and u0.numel() >= LARGE):
        return one_by_one()
    return choose(backend, "heat", u0).run(lambda: Advance.apply(u0, grid, factor, int(steps)), one_by_one)


@lru_cache(maxsize=64)
def _step(grid: Grid, factor: float) -> LinearOperator:
    """u + factor laplacian(u) in one pass."""
    second = [Term(factor, 0, ((k, axis_stencil(grid, axis, 2)),)) for k, axis in enumerate(grid.axes)]
    return LinearOperator("heat", grid.dimension, 1, ((Term(1.0, 0, ()), *second),))
