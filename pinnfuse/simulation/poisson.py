r"""Poisson's equation on a grid: the exact inverse of `pinnfuse.grid.laplacian`.

    sum_a D_a p + c = rhs,     p = (sum_a D_a)^+ (rhs - c)

D_a is the second difference along axis a with the grid's order, centring and walls (`axis_stencil`), c what the walls'
numbers contribute. Every axis is brought to a diagonal form (`transforms.py`); the sum is then divided by the sum of
the eigenvalues, the *discrete* symbol, so that differences of the result give `rhs` back to rounding.

Where no wall fixes the level (every axis periodic or Neumann) the sum has a null space. Then rhs - c must have mean
zero (the mean with the weights of the left null vector: 1, or 1/2 at node-centred Neumann walls), and the result is
the one with mean zero.

Adjoint: with g the gradient of p, that of rhs is (sum_a D_a^T)^+ g: another solve, nothing is saved.
"""

from __future__ import annotations

import math
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor

from pinnfuse.grid import Grid, OneSided, axis_stencil
from pinnfuse.grid.grid import check_grid
from pinnfuse.grid.stencils import check_points
from pinnfuse.simulation.transforms import Transform, axis_transform


class Solver:
    """The inverse for one grid and shape; `transposed` the inverse of the transposed matrix."""

    def __init__(self, grid: Grid, shape: tuple[int, ...], transposed: bool = False):
        self.grid, self.shape, self.transposed = grid, shape, transposed
        d = len(shape)
        self.walls: list[tuple[int, Transform]] = []
        self.periodic: list[int] = []
        eigenvalues: list[Tensor] = []
        for k, (axis, n) in enumerate(zip(grid.axes, shape, strict=True)):
            if grid.periodic[axis]:
                self.periodic.append(k - d)
                stencil = axis_stencil(grid, axis, 2)
                check_points(stencil, n, axis, "poisson_solve", "rhs")
                phase = 2 * torch.pi * torch.arange(n, dtype=torch.float64) / n
                values = stencil.symbol(phase).real
                values[0] = 0.0
            else:
                transform = axis_transform(grid, axis, n)
                self.walls.append((k - d, transform.transposed() if transposed else transform))
                values = transform.eigenvalues
            eigenvalues.append(values)
        self.complex = any(e.is_complex() for e in eigenvalues)
        if self.periodic and not self.complex:
            last = self.periodic[-1] + d
            eigenvalues[last] = eigenvalues[last][: shape[last] // 2 + 1]  # a real transform keeps half
        total = sum(e.reshape([-1 if i == k else 1 for i in range(d)]) for k, e in enumerate(eigenvalues))
        assert isinstance(total, Tensor)
        self.singular = all(float(e.abs().min()) == 0.0 for e in eigenvalues)
        self._factor = torch.where(total == 0, 0.0, 1.0 / torch.where(total == 0, 1.0, total))
        self._factors: dict[Any, Tensor] = {}

    def __call__(self, rhs: Tensor) -> Tensor:
        x = rhs
        for dim, transform in self.walls:
            x = transform.analyse(x, dim)
        key = x.dtype, x.device
        if key not in self._factors:
            self._factors[key] = self._factor.to(x)
        if self.periodic:
            size = [self.shape[dim] for dim in self.periodic]
            forward, inverse = (
                (torch.fft.fftn, torch.fft.ifftn) if self.complex else (torch.fft.rfftn, torch.fft.irfftn)
            )
            x = inverse(forward(x, dim=self.periodic) * self._factors[key], s=size, dim=self.periodic)
        else:
            x = x * self._factors[key]
        for dim, transform in self.walls:
            x = transform.synthesise(x, dim)
        return x.real if self.complex else x

    def null_weights(self) -> list[tuple[int, Tensor]]:
        """Left null vector, a factor `[n]` per axis with walls: the weights with which rhs must have mean zero."""
        found = []
        for k, (axis, n) in enumerate(zip(self.grid.axes, self.shape, strict=True)):
            if not self.grid.periodic[axis]:
                matrix, _ = axis_stencil(self.grid, axis, 2).matrix(n)
                _, _, rows = torch.linalg.svd(matrix.T)
                found.append((k - len(self.shape), rows[-1] / rows[-1].sum() * n))
        return found


@lru_cache(maxsize=64)
def solver(grid: Grid, shape: tuple[int, ...], transposed: bool = False) -> Solver:
    """Built once per grid and shape."""
    return Solver(grid, shape, transposed)


@lru_cache(maxsize=64)
def _constant(grid: Grid, shape: tuple[int, ...], dtype: torch.dtype, device: torch.device) -> Tensor | None:
    """What the walls' numbers contribute to the Laplacian, broadcastable to `shape`; None if nothing."""
    total: Tensor | None = None
    for k, (axis, n) in enumerate(zip(grid.axes, shape, strict=True)):
        _, c = axis_stencil(grid, axis, 2).matrix(n)
        if bool(c.any()):
            part = c.reshape([-1 if i == k else 1 for i in range(len(shape))])
            total = part if total is None else total + part
    return None if total is None else total.expand(shape).to(dtype=dtype, device=device)


class _Inverse(torch.autograd.Function):
    generate_vmap_rule = True

    @staticmethod
    def forward(rhs: Tensor, grid: Grid, transposed: bool) -> Tensor:
        return solver(grid, tuple(rhs.shape[-grid.dimension :]), transposed)(rhs)

    @staticmethod
    def setup_context(ctx: Any, inputs: Any, output: Tensor) -> None:
        _, ctx.grid, ctx.transposed = inputs

    @staticmethod
    def jvp(ctx: Any, tangent: Tensor, *_: Any) -> Tensor:
        return _Inverse.apply(tangent, ctx.grid, ctx.transposed)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Any:
        return _Inverse.apply(gradient, ctx.grid, not ctx.transposed), None, None


def poisson_solve(
    rhs: Tensor,
    grid: Grid,
    *,
    coefficient: Tensor | None = None,
    compatible: str = "check",
    tolerance: float | None = None,
) -> Tensor:
    r"""The field whose `pinnfuse.grid.laplacian` on `grid` is `rhs`; with a coefficient, whose `diffusion` is.

    Args:
        rhs: `[..., *space]`, units of p per length squared. Half precision is solved in float32.
        compatible: only where no wall fixes the level: "check" raises if the weighted mean of rhs (less the walls'
            part) is not zero to rounding; "project" removes it, without a look at the numbers (as torch.func needs).
        coefficient: k > 0 of div(k grad p) = rhs, `[..., *space]`; solved by iterations, differentiable once.
        tolerance: of the iterations, relative to the right-hand side; 1e-11 in float64, 3e-6 in float32 by default. It
            is that of the residual which the iterations carry along: A p itself is rounded to eps |A| |p|.

    Returns:
        `[..., *space]`; with mean zero where no wall fixes the level. Differentiable, any number of times.

    Raises:
        ValueError: a shape or dtype the grid cannot hold; a one-sided end, which leaves the field open; a right-hand
            side that no field has; numbers that are not finite, where they decide.
        RuntimeError: iterations that do not reach `tolerance`.
    """
    space = check_grid(grid, "poisson_solve").check(rhs, "poisson_solve", "rhs")
    for axis, sides in grid.sides.items():
        if any(isinstance(side, OneSided) for side in sides):
            raise ValueError(
                f"poisson_solve: the boundary along {axis!r} must be periodic, Dirichlet or Neumann at both ends; got "
                f"{sides}. An end where nothing is known leaves the field open."
            )
    if compatible not in ("check", "project"):
        raise ValueError(f"poisson_solve: `compatible` must be 'check' or 'project'; got {compatible!r}.")
    dtype = rhs.dtype
    x = rhs.float() if dtype in (torch.float16, torch.bfloat16) else rhs
    solve = solver(grid, space)
    if not x.numel():
        return x.to(dtype)
    if coefficient is not None:
        return _with_coefficient(x, coefficient, grid, space, compatible, tolerance).to(dtype)
    constant = _constant(grid, space, x.dtype, x.device)
    if constant is not None:
        x = x - constant
    if compatible == "check" and solve.singular:
        _check(x.detach(), grid, space)
    return _Inverse.apply(x, grid, False).to(dtype)


def _with_coefficient(
    x: Tensor, k: Tensor, grid: Grid, space: tuple[int, ...], compatible: str, tolerance: float | None
) -> Tensor:
    from pinnfuse.simulation.variable import solve_with_coefficient

    if grid.check(k, "poisson_solve", "coefficient") != space:
        raise ValueError(
            f"poisson_solve: `coefficient` must be [..., *space] with space {list(space)}; got {list(k.shape)}."
        )
    least, most = k.detach().aminmax()
    if not (least > 0 and most < math.inf):
        raise ValueError(
            f"poisson_solve: `coefficient` must be > 0 and finite everywhere; its least value is {float(least):g}, its "
            f"largest {float(most):g}."
        )
    if not bool(torch.isfinite(x.detach()).all()):
        raise ValueError("poisson_solve: `rhs` must be finite; got NaN or Inf. Iterations would not end.")
    if tolerance is not None and not tolerance >= 0:
        raise ValueError(f"poisson_solve: `tolerance` must be >= 0; got {tolerance}.")
    x, k = torch.broadcast_tensors(x, k.to(x.dtype))
    if solver(grid, space).singular:
        flux = any(side.number for sides in grid.sides.values() for side in sides)
        if not all(grid.periodic.values()) and (flux or grid.centring == "node" or grid.order != 2):
            raise ValueError(
                "poisson_solve: with a `coefficient` and no wall that fixes the level, walls must be cell-centred, "
                f"Neumann(0) and of order 2; got {grid.sides}, {grid.centring!r}, order {grid.order}. Fix the level by "
                "a Dirichlet wall."
            )
        if compatible == "check":
            _check(x.detach(), grid, space)
        x = x - x.mean(tuple(range(-grid.dimension, 0)), keepdim=True)
    return solve_with_coefficient(x, k, grid, tolerance)


def _check(x: Tensor, grid: Grid, space: tuple[int, ...]) -> None:
    dims = tuple(range(-grid.dimension, 0))
    weighted = x
    for dim, weights in solver(grid, space).null_weights():
        weighted = weighted * weights.to(x).reshape([-1] + [1] * (-dim - 1))
    mean = weighted.mean(dims)
    allowed = 100 * torch.finfo(x.dtype).eps * x.abs().amax(dims) + torch.finfo(x.dtype).tiny
    if not bool((mean.abs() <= allowed).all()):  # NaN is refused, too
        worst = float(mean.abs().max())
        raise ValueError(
            f"poisson_solve: with {grid.sides} no field has this Laplacian: the weighted mean of `rhs` less the walls' "
            f"fluxes must be 0 to rounding; got {worst:.3g}. Subtract it, pass compatible='project', or fix the level "
            "by a Dirichlet wall."
        )
