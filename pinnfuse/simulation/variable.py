r"""Poisson's equation with a coefficient: div(k grad p) = rhs, the inverse of `pinnfuse.grid.diffusion`.

    A(k) p + c(k) = rhs

A is the flux form of the grid's order with its walls, which is not symmetric there, so the stabilised bi-conjugate
gradients of van der Vorst solve it, preconditioned by the exact inverse of the Laplacian of the same grid. The number
of iterations then depends on the contrast of k (as its square root), not on the grid.

Adjoint: with g the gradient of p, s = A^-T g (another solve) is that of rhs, and that of k is -s^T d(A p + c)/dk at
fixed p. Two fields are saved.

Source: van der Vorst, SIAM J. Sci. Stat. Comput. 13 (1992).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor

from pinnfuse.first_order import first_order_only
from pinnfuse.grid import Grid
from pinnfuse.grid.boundary import Dirichlet, Neumann
from pinnfuse.grid.transport import diffusion
from pinnfuse.simulation.poisson import solver

Linear = Callable[[Tensor], Tensor]
MOST = 400
"""Iterations, before the solver gives up."""


@lru_cache(maxsize=64)
def homogeneous(grid: Grid) -> Grid:
    """The same grid with every wall's number zero."""
    sides = {
        axis: tuple(replace(s, value=0.0) if isinstance(s, Dirichlet | Neumann) else s for s in pair)
        for axis, pair in grid.sides.items()
    }
    return Grid(grid.axes, grid.spacing, boundary=sides, order=grid.order, centring=grid.centring, origin=grid.origin)


class _Problem:
    """A(k) of one right-hand side, its transpose, and their preconditioners."""

    def __init__(self, k: Tensor, grid: Grid, space: tuple[int, ...]):
        self.k, self.grid = k, homogeneous(grid)
        self.singular = solver(self.grid, space).singular
        self.scale = k.mean(tuple(range(-len(space), 0)), keepdim=True)
        self.inverses = [solver(self.grid, space, transposed) for transposed in (False, True)]

    def forward(self, p: Tensor) -> Tensor:
        return diffusion(p, self.k, self.grid)

    def transposed(self, s: Tensor) -> Tensor:
        with torch.enable_grad():
            p = torch.zeros_like(s, requires_grad=True)
            (found,) = torch.autograd.grad(diffusion(p, self.k, self.grid), p, s)
        return found

    def precondition(self, r: Tensor, transposed: bool) -> Tensor:
        return self.inverses[transposed](r) / self.scale

    def solve(self, rhs: Tensor, tolerance: float, transposed: bool = False) -> Tensor:
        apply = self.transposed if transposed else self.forward
        dims = tuple(range(-self.grid.dimension, 0))
        p = bicgstab(apply, lambda r: self.precondition(r, transposed), rhs, dims, tolerance)
        return p - p.mean(dims, keepdim=True) if self.singular and not transposed else p


def bicgstab(apply: Linear, precondition: Linear, rhs: Tensor, dims: tuple[int, ...], tolerance: float) -> Tensor:
    """x with |apply(x) - rhs| <= tolerance |rhs|, for every member of a batch by itself.

    Raises:
        RuntimeError: not reached, with the residual that was.
    """

    def dot(a: Tensor, b: Tensor) -> Tensor:
        return (a * b).sum(dims, keepdim=True)

    def share(a: Tensor, b: Tensor) -> Tensor:
        return torch.where(b == 0, 0.0, a / torch.where(b == 0, 1.0, b))

    x, r = torch.zeros_like(rhs), rhs.clone()
    goal = tolerance * dot(rhs, rhs).sqrt()
    best, best_norm = x, dot(r, r).sqrt()
    shadow, rho, alpha, omega = r.clone(), torch.ones_like(goal), torch.ones_like(goal), torch.ones_like(goal)
    v = d = torch.zeros_like(rhs)
    for _ in range(MOST):
        if bool((best_norm <= goal).all()):
            return best
        new = dot(shadow, r)
        stuck = new.abs() < 1e-14 * dot(shadow, shadow).sqrt() * dot(r, r).sqrt()  # start anew from here
        shadow, new = torch.where(stuck, r, shadow), torch.where(stuck, dot(r, r), new)
        beta = torch.where(stuck, 0.0, share(new, rho) * share(alpha, omega))
        rho = new
        d = r + beta * (d - omega * v)
        d_hat = precondition(d)
        v = apply(d_hat)
        alpha = share(rho, dot(shadow, v))
        s = r - alpha * v
        s_hat = precondition(s)
        t = apply(s_hat)
        omega = share(dot(t, s), dot(t, t))
        x = x + alpha * d_hat + omega * s_hat
        r = s - omega * t
        norm = dot(r, r).sqrt()
        better = norm < best_norm
        best, best_norm = torch.where(better, x, best), torch.where(better, norm, best_norm)
    if bool((best_norm <= goal).all()):
        return best
    worst = float((best_norm / goal).max()) * tolerance
    raise RuntimeError(
        f"poisson_solve: after {MOST} iterations the residual is {worst:.2g} of the right-hand side, asked was "
        f"{tolerance:.2g}. Use float64, a larger `tolerance`, or a coefficient of less contrast."
    )


class _Solve(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, rhs: Tensor, k: Tensor, grid: Grid, tolerance: float) -> Tensor:
        space = tuple(rhs.shape[-grid.dimension :])
        constant = diffusion(torch.zeros_like(rhs), k, grid)  # what the walls' numbers contribute
        p = _Problem(k, grid, space).solve(rhs - constant, tolerance)
        ctx.save_for_backward(p, k)
        ctx.grid, ctx.tolerance, ctx.space = grid, tolerance, space
        return p

    @staticmethod
    @first_order_only("poisson_solve with a `coefficient`", "Differentiate once.")
    def backward(ctx: Any, g: Tensor) -> Any:
        p, k = ctx.saved_tensors
        problem = _Problem(k, ctx.grid, ctx.space)
        if problem.singular:
            g = g - g.mean(tuple(range(-len(ctx.space), 0)), keepdim=True)
        s = problem.solve(g.contiguous(), ctx.tolerance, transposed=True)
        grad_k = None
        if ctx.needs_input_grad[1]:
            with torch.enable_grad():
                free = k.detach().requires_grad_()
                (grad_k,) = torch.autograd.grad(diffusion(p, free, ctx.grid), free, -s)
        return s, grad_k, None, None


def solve_with_coefficient(rhs: Tensor, k: Tensor, grid: Grid, tolerance: float | None) -> Tensor:
    """See `pinnfuse.simulation.poisson_solve`; `rhs` and `k` in float32 or float64, broadcast to each other."""
    if tolerance is None:
        tolerance = 1e-11 if rhs.dtype == torch.float64 else 3e-6
    return _Solve.apply(rhs.contiguous(), k, grid, tolerance)
