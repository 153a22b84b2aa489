"""Several explicit steps of u_t = alpha laplacian(u) in one launch, where every row of the second differences reaches
one neighbour at most: order 2, periodic, Dirichlet or Neumann, one or two axes.

    u <- M u + c,   K times;   adjoint: g <- M^T g, K times, by the same kernel with transposed rows
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any

import torch
from torch import Tensor

from pinnfuse.grid import Grid, axis_stencil


def fits(grid: Grid, space: tuple[int, ...]) -> bool:
    """Whether the kernel can make these steps."""
    if grid.dimension > 2 or grid.order != 2 or min(space) < 3:
        return False
    formulas = [axis_stencil(grid, axis, 2) for axis in grid.axes]
    return all(max(row.offsets_from_that_end) <= k + 1 for s in formulas for end in (s.low, s.high)
               for k, row in enumerate(end))  # fmt: skip


@lru_cache(maxsize=64)
def rows(grid: Grid, space: tuple[int, ...], factor: float, affine: bool, transposed: bool) -> Tensor:
    """`[4 n + ...]` float64, the last axis first: weights of the low neighbour, the point, the high one, constant."""
    found = []
    for axis, n in zip(reversed(grid.axes), reversed(space), strict=True):
        matrix, constant = axis_stencil(grid, axis, 2).matrix(n)
        matrix = factor * (matrix.T if transposed else matrix)
        i = torch.arange(n)
        low, high = matrix[i, (i - 1) % n], matrix[i, (i + 1) % n]
        if not grid.periodic[axis]:
            low[0] = high[-1] = 0.0
        found += [low, matrix[i, i], high, factor * constant if affine else torch.zeros(n, dtype=torch.float64)]
    return torch.cat(found)


@lru_cache(maxsize=64)
def _on_device(key: tuple[Any, ...], dtype: torch.dtype, device: torch.device) -> Tensor:
    return rows(*key).to(device, torch.float64 if dtype == torch.float64 else torch.float32)


class Advance(torch.autograd.Function):
    """`apply(u, grid, factor, steps, affine, transposed)`; differentiable any number of times, nothing saved."""

    @staticmethod
    def forward(
        ctx: Any, u: Tensor, grid: Grid, factor: float, steps: int, affine: bool = True, transposed: bool = False
    ) -> Tensor:
        from pinnfuse.kernels.grid.heat import advance

        ctx.arguments = (grid, factor, steps, False, not transposed)
        space = tuple(u.shape[-grid.dimension :])
        lines = grid.dimension == 1
        flat = u.reshape(1, -1, *space) if lines else u.reshape(-1, *space)
        found = _on_device((grid, space, factor, affine, transposed), u.dtype, u.device)
        if lines:
            found = torch.cat([found, found.new_zeros(4 * flat.shape[1])])
        periodic = tuple(grid.periodic[axis] for axis in reversed(grid.axes))
        return advance(flat, found, steps, (periodic[0], periodic[-1]), lines).view(u.shape)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Any, ...]:
        return Advance.apply(gradient, *ctx.arguments), None, None, None, None, None
