"""Values of a field at arbitrary points: nearest, bilinear or bicubic, and the adjoint, a scatter.

    f(x) = sum over the 1, 2^d or 4^d points around x of prod_a w_a f_i

with the weights of a cardinal function along each axis, t the distance of point and x in spacings: nearest 1 for the
nearest point; bilinear 1 - |t|; bicubic the convolution kernel with a = -1/2, exact on quadratics:

    w(t) = 1.5 |t|^3 - 2.5 |t|^2 + 1  (|t| <= 1),   -0.5 |t|^3 + 2.5 |t|^2 - 4 |t| + 2  (1 < |t| < 2).

Source: Keys, Cubic convolution interpolation for digital image processing, IEEE Trans. ASSP 29 (1981).
"""

from __future__ import annotations

from itertools import product

import torch
from torch import Tensor

from pinnfuse.errors import nearest
from pinnfuse.grid.boundary import Dirichlet
from pinnfuse.grid.grid import Grid
from pinnfuse.grid.stencils import ghost_rows
from pinnfuse.grid.transport import extend

MODES = {"nearest": 1, "bilinear": 2, "bicubic": 4}
"""How many points along each axis."""


def sample(field: Tensor, points: Tensor, grid: Grid, *, mode: str = "bilinear") -> Tensor:
    """Values of `field` at points.

    Args:
        field: `[..., *space]`.
        points: `[P, d]` coordinates, one set for all, or `[..., P, d]` with the leading dimensions of `field`. Periodic
            coordinates wrap; beyond a wall the value is that of the nearest place where the field is known, the wall
            itself where its value is given.
        mode: "nearest", "bilinear" or "bicubic".

    Returns:
        `[..., P]` in the dtype of `field`. Differentiable in `field` (its adjoint adds to the points read) and, but for
        "nearest", in `points`; any number of times, in plain torch on every device.

    Raises:
        ValueError: unknown mode, shapes that disagree.
    """
    if mode not in MODES:
        raise ValueError(f"sample: unknown `mode`; got {mode!r}. {nearest(str(mode), MODES)}")
    space, d = grid.check(field, "sample", "field"), grid.dimension
    batch = field.shape[:-d]
    if points.shape[-1:] != (d,) or points.dim() < 2 or points.shape[:-2] not in (torch.Size(()), batch):
        raise ValueError(
            f"sample: `points` must be [P, {d}] or {[*batch, 'P', d]}; got {list(points.shape)}. Stack coordinates "
            "with torch.stack((...), dim=-1)."
        )
    depth = max(1, MODES[mode] // 2)
    dtype, values = field.dtype, field.float() if field.dtype in (torch.float16, torch.bfloat16) else field
    flat = points.to(torch.promote_types(points.dtype, values.dtype))
    places, weights = [], []
    for k, axis in enumerate(grid.axes):
        count = min(3, space[k])
        values = extend(values.movedim(k - d, -1), ghost_rows(grid, axis, count, depth), depth).movedim(-1, k - d)
        at = (flat[..., k] - _first(grid, axis)) / grid.spacing[k]
        index, weight = _along(_inside(at, grid, axis, space[k]), mode, space[k])
        places.append(index + depth)
        weights.append(weight)
    wide = values.shape[-d:]
    total = torch.zeros((), dtype=values.dtype, device=field.device)
    strides = [1]
    for n in reversed(wide[1:]):
        strides.insert(0, strides[0] * n)
    lines = values.reshape(*batch, -1)
    for taps in product(range(MODES[mode]), repeat=d):
        index = torch.stack([places[k][..., tap] * strides[k] for k, tap in enumerate(taps)]).sum(0)
        weight = torch.ones((), dtype=values.dtype, device=field.device)
        for k, tap in enumerate(taps):
            weight = weight * weights[k][..., tap].to(values.dtype)
        found = lines[..., index] if points.dim() == 2 else lines.gather(-1, index)
        total = total + weight * found
    return total.to(dtype)


def _first(grid: Grid, axis: str) -> float:
    """The coordinate of the first point."""
    k = grid.index(axis)
    shift = 0.5 if grid.centring == "cell" else float(isinstance(grid.sides[axis][0], Dirichlet))
    return grid.origin[k] + shift * grid.spacing[k]


def _inside(at: Tensor, grid: Grid, axis: str, n: int) -> Tensor:
    """Positions in spacings from the first point, wrapped, or clamped to the walls (one-sided: the last points)."""
    if grid.periodic[axis]:
        return at.remainder(n)
    walls = [side.wall(grid.centring) for side in grid.sides[axis]]
    low, high = (0.0 if wall is None else float(wall[0]) for wall in walls)
    return at.clamp(low, n - 1 - high)


def _along(at: Tensor, mode: str, n: int) -> tuple[Tensor, Tensor]:
    """The points `[..., taps]` around positions and their weights."""
    if mode == "nearest":
        index = (at + 0.5).floor()
        return index.long().unsqueeze(-1), torch.ones_like(at).unsqueeze(-1)
    base = at.detach().floor().clamp(max=n - 1)
    t = at - base
    if mode == "bilinear":
        return torch.stack((base, base + 1), -1).long(), torch.stack((1 - t, t), -1)
    offsets = torch.arange(-1, 3, device=at.device)
    weights = (
        ((-0.5 * t + 1) * t - 0.5) * t,
        (1.5 * t - 2.5) * t * t + 1,
        ((-1.5 * t + 2) * t + 0.5) * t,
        (0.5 * t - 0.5) * t * t,
    )
    return base.long().unsqueeze(-1) + offsets, torch.stack(weights, -1)
