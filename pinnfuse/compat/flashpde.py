r"""The names of the FlashPDE article: its programs run after `from pinnfuse.compat import flashpde`.

    laplacian_2d, convection_term, poisson_solver, pde_solver, fused_matmul, fused_matmul_add, fused_operator,
    optimized_function

The article gives no boundaries and mostly no spacing: these functions take periodic boundaries and spacing 1 where it
gives none, and say so once. New code should use `pinnfuse.grid` and `pinnfuse.simulation`, where both are explicit.
Every function runs on CPU and GPU tensors and has a backward.
"""

from __future__ import annotations

import warnings
from functools import cache, lru_cache
from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import relu

from pinnfuse import __version__
from pinnfuse import grid as operators
from pinnfuse.grid import Grid
from pinnfuse.grid.dispatch import choose
from pinnfuse.grid.linear import LinearOperator, Term
from pinnfuse.grid.stencils import axis_stencil
from pinnfuse.parameters import number
from pinnfuse.simulation.heat import heat
from pinnfuse.simulation.poisson import poisson_solve

__all__ = [
    "__version__",
    "convection_term",
    "fused_matmul",
    "fused_matmul_add",
    "fused_operator",
    "laplacian_2d",
    "optimized_function",
    "pde_solver",
    "poisson_solver",
]


def laplacian_2d(u: Tensor, dx: float | None = None, dy: float | None = None, *, boundary: Any = None) -> Tensor:
    r"""$u_{xx} + u_{yy}$ of `[..., nx, ny]` by central differences of second order, x the first of both axes."""
    return operators.laplacian(u, _grid("laplacian_2d", dx, dy, boundary))


def convection_term(
    f: Tensor, u: Tensor, v: Tensor, dx: float | None = None, dy: float | None = None, *, boundary: Any = None
) -> Tensor:
    r"""$u f_x + v f_y$ of fields `[..., nx, ny]`, central differences of second order; differentiable to all three."""
    slope = operators.gradient(f, _grid("convection_term", dx, dy, boundary))
    return u * slope.select(-3, 0) + v * slope.select(-3, 1)


def poisson_solver(
    u: Tensor, v: Tensor, dt: float, dx: float | None = None, dy: float | None = None, *, boundary: Any = None
) -> Tensor:
    r"""The pressure of a projection step: p with $\nabla^2 p = (u_x + v_y) / dt$, mean 0 where no wall fixes it.

    A velocity on the points themselves, as here, stays free of divergence to second order only;
    `pinnfuse.simulation.FluidSimulator` staggers it and reaches rounding.
    """
    if not number(dt, "poisson_solver: `dt`") > 0:
        raise ValueError(f"poisson_solver: `dt` must be > 0; got {dt}.")
    if u.shape != v.shape:
        raise ValueError(f"poisson_solver: `u` and `v` must be of one shape; got {list(u.shape)} and {list(v.shape)}.")
    grid = _grid("poisson_solver", dx, dy, boundary)
    return poisson_solve(operators.divergence(torch.stack([u, v], dim=-3), grid) / dt, grid, compatible="project")


def pde_solver(u0: Tensor, alpha: float = 0.1, steps: int = 100, *, boundary: Any = None) -> Tensor:
    r"""`steps` explicit steps of $u_t = \alpha \nabla^2 u$ with dt = 1, spacing 1, of `[..., nx, ny]`."""
    return heat(u0, _grid("pde_solver", 1.0, 1.0, boundary), diffusivity=alpha, dt=1.0, steps=steps)


def fused_operator(x: Tensor, reaction: float = 1.0, *, boundary: Any = None) -> Tensor:
    r"""$\nabla^2 x + \rho x$ of `[..., nx, ny]` at spacing 1 in one pass; rho is `reaction`."""
    grid = _grid("fused_operator", 1.0, 1.0, boundary)
    grid.check(x, "fused_operator", "x")
    found = _reacting(grid, float(reaction))(x.unsqueeze(-3), grid.axes)
    return found.squeeze(-3)


def fused_matmul(a: Tensor, b: Tensor, bias: Tensor | None = None, activation: str = "identity") -> Tensor:
    """s(a b + bias) of `[M, K]` and `[K, N]`: product, addition and activation in one kernel on a card.

    Args:
        bias: `[N]`, or `[M, N]`.
        activation: "identity", "tanh" or "relu".

    float32 products follow `torch.get_float32_matmul_precision()`: float32-accurate for "highest", else TF32.
    """
    if a.dim() != 2 or b.dim() != 2 or a.shape[1] != b.shape[0]:
        raise ValueError(
            f"fused_matmul: `a` and `b` must be [M, K] and [K, N]; got {list(a.shape)} and {list(b.shape)}. Transpose "
            "one with .T, or flatten leading dimensions."
        )
    if a.dtype != b.dtype or a.device != b.device or not a.dtype.is_floating_point:
        raise ValueError(
            f"fused_matmul: `a` and `b` must share a floating dtype and a device; got {a.dtype} on {a.device} and "
            f"{b.dtype} on {b.device}."
        )
    if bias is not None and (bias.dtype != a.dtype or bias.shape not in ((b.shape[1],), (a.shape[0], b.shape[1]))):
        raise ValueError(
            f"fused_matmul: `bias` must be [{b.shape[1]}] or [{a.shape[0]}, {b.shape[1]}] in {a.dtype}; got "
            f"{list(bias.shape)} in {bias.dtype}."
        )
    plain = {"identity": lambda z: z, "tanh": torch.tanh, "relu": relu}
    if activation not in plain:
        raise ValueError(f"fused_matmul: `activation` must be one of {list(plain)}; got {activation!r}.")
    chosen = choose("auto", "fused_matmul", a)
    return chosen.run(
        lambda: _kernels().matmul(a, b, bias, activation),
        lambda: plain[activation](a @ b if bias is None else a @ b + bias),
    )


def fused_matmul_add(x: Tensor) -> Tensor:
    """x x^T + x of a square matrix, the addition in the product's kernel."""
    if x.dim() != 2 or x.shape[0] != x.shape[1]:
        raise ValueError(f"fused_matmul_add: `x` must be a square matrix; got {list(x.shape)}.")
    return fused_matmul(x, x.T, x)


class _Swish(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        ctx.save_for_backward(x)
        return x * x.sigmoid()

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Tensor:
        (x,) = ctx.saved_tensors
        s = x.sigmoid()
        return g * s * (1 + x * (1 - s))


def optimized_function(x: Tensor) -> Tensor:
    """x s with s = sigmoid(x), and a backward written by hand: (s + x s (1 - s)) g. The input is all it saves."""
    return _Swish.apply(x)


def _kernels() -> Any:
    from pinnfuse.kernels import matmul

    return matmul


def _grid(caller: str, dx: float | None, dy: float | None, boundary: Any) -> Grid:
    left_open = {}
    if dx is None or dy is None:
        left_open["dx, dy"] = "spacing 1"
    if boundary is None:
        left_open["boundary='periodic' or another"] = "periodic boundaries"
    if left_open:
        _say(caller, " and ".join(left_open.values()), " and ".join(left_open))
    spacing = tuple(1.0 if h is None else number(h, f"{caller}: `{n}`") for n, h in (("dx", dx), ("dy", dy)))
    return Grid("x y", spacing, boundary="periodic" if boundary is None else boundary)


@lru_cache(maxsize=64)
def _reacting(grid: Grid, reaction: float) -> LinearOperator:
    second = [Term(1.0, 0, ((k, axis_stencil(grid, axis, 2)),)) for k, axis in enumerate(grid.axes)]
    return LinearOperator("fused_operator", 2, 1, ((*second, Term(reaction, 0, ())),))


@cache
def _say(caller: str, taken: str, arguments: str) -> None:
    warnings.warn(
        f"flashpde.{caller}: what the call leaves open is taken as {taken}. Pass {arguments}, or use pinnfuse.grid, "
        "where all are explicit.",
        stacklevel=4,
    )
