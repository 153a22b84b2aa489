"""Values of a field at arbitrary points: nearest, bilinear or bicubic, and the adjoint, a scatter.

    f(x) = sum over the 1, 2^d or 4^d points around x of prod_a w_a f_i

with the weights of a cardinal function along each axis, t the distance of point and x in spacings: nearest 1 for the
nearest point; bilinear 1 - |t|; bicubic the convolution kernel with a = -1/2, exact on quadratics:

    w(t) = 1.5 |t|^3 - 2.5 |t|^2 + 1  (|t| <= 1),   -0.5 |t|^3 + 2.5 |t|^2 - 4 |t| + 2  (1 < |t| < 2).

Source: Keys, Cubic convolution interpolation for digital image processing, IEEE Trans. ASSP 29 (1981).
"""

from __future__ import annotations

import math
from functools import lru_cache
from itertools import product

import torch
from torch import Tensor

from pinnfuse.errors import nearest
from pinnfuse.first_order import USE_TORCH, first_order_only
from pinnfuse.grid.boundary import Dirichlet
from pinnfuse.grid.dispatch import choose
from pinnfuse.grid.ghosts import extend, table
from pinnfuse.grid.grid import Grid, check_grid
from pinnfuse.grid.stencils import ghost_rows
from pinnfuse.kernels.grid.sampling import TAPS, Axis, Sampling

BEYOND = 3
"""From how many numbers nearest a wall the points outside are extrapolated."""


def sample(field: Tensor, points: Tensor, grid: Grid, *, mode: str = "bilinear", backend: str = "auto") -> Tensor:
    """Values of `field` at points.

    Args:
        field: `[..., *space]`.
        points: `[..., P, d]` coordinates; the leading dimensions broadcast to those of `field`: `[P, d]` for one set,
            `[B, 1, P, d]` for one per sample of `[B, C, *space]`. Periodic coordinates wrap; beyond a wall the value is
            that of the nearest place where the field is known, the wall itself where its value is given. A coordinate
            that is no number gives none.
        mode: "nearest", "bilinear" or "bicubic".
        backend: "auto", "torch" or "triton".

    Returns:
        `[..., P]` in the dtype of `field`; positions are formed in the precision of `points`, float32 at least.
        Differentiable in `field` (its adjoint adds to the points read; in kernels as integers, the same bits every
        time) and, but for "nearest", in `points`. The kernels' backward has no derivative of its own.

    Raises:
        ValueError: unknown mode, shapes, dtypes or devices that disagree.
        BackendUnavailable: an explicit `backend` cannot run here.
    """
    if mode not in TAPS:
        raise ValueError(f"sample: unknown `mode`; got {mode!r}. {nearest(str(mode), TAPS)}")
    space, d = check_grid(grid, "sample").check(field, "sample", "field"), grid.dimension
    batch = field.shape[:-d]
    varying = _check_points(points, field, d)
    chosen = choose(backend, "sample", field, points, variant=f"{d}D {mode}")
    sets, rest = batch[:varying], batch[varying:]
    flat = points.expand(*sets, *(1,) * len(rest), *points.shape[-2:]).reshape(math.prod(sets), *points.shape[-2:])
    fields = field.reshape(math.prod(sets), math.prod(rest), *space)
    out = chosen.run(lambda f, p: _kernel(f, p, grid, mode), lambda f, p: plain(f, p, grid, mode), fields, flat)
    return out.reshape(*batch, points.shape[-2])


def _check_points(points: Tensor, field: Tensor, d: int) -> int:
    """How many of the leading dimensions of the field the points vary along; those after have the same points."""
    batch = field.shape[:-d]
    wanted = (
        f"sample: `points` must be [P, {d}], or [..., P, {d}] with leading dimensions that broadcast to {list(batch)}"
    )
    if not isinstance(points, Tensor) or not points.dtype.is_floating_point:
        got = points.dtype if isinstance(points, Tensor) else type(points).__name__
        raise ValueError(
            f"{wanted}, of floating point; got {got}. Use points.float(): they are coordinates, not indices."
        )
    lead = points.shape[:-2]
    fits = points.dim() >= 2 and points.shape[-1] == d and len(lead) <= len(batch)
    if not fits or any(n not in (1, b) for n, b in zip(lead[::-1], batch[::-1], strict=False)):
        raise ValueError(f"{wanted}; got {list(points.shape)}. Stack coordinates with torch.stack((...), dim=-1).")
    if points.device != field.device:
        raise ValueError(
            f"sample: `points` must be on the device of `field`, {field.device}; got {points.device}. Use "
            "points.to(field.device)."
        )
    padded = (1,) * (len(batch) - len(lead)) + tuple(lead)
    return max((k + 1 for k, n in enumerate(padded) if n != 1), default=0)


def plain(field: Tensor, points: Tensor, grid: Grid, mode: str) -> Tensor:
    """[N, C, *space] at [N, P, d] in plain torch, differentiable any number of times."""
    d = grid.dimension
    space, dtype = field.shape[-d:], field.dtype
    values = field.float() if dtype in (torch.float16, torch.bfloat16) else field
    depth = max(1, TAPS[mode] // 2)
    precise = points.to(torch.promote_types(points.dtype, values.dtype))
    places, weights = [], []
    for k, axis in enumerate(grid.axes):
        ends = ghost_rows(grid, axis, min(BEYOND, space[k]), depth)
        values = extend(values.movedim(k - d, -1), ends, depth).movedim(-1, k - d)
        at = (precise[..., k] - _first(grid, axis)) * (1 / grid.spacing[k])
        index, weight = _along(at, grid, axis, mode, space[k])
        places.append(index + depth)
        weights.append(weight)
    wide = values.shape[-d:]
    lines = values.flatten(2)
    total = torch.zeros((), dtype=values.dtype, device=field.device)
    for taps in product(range(TAPS[mode]), repeat=d):
        index, weight = places[0][..., taps[0]], weights[0][..., taps[0]].to(values.dtype)
        for k in range(1, d):
            index = index * wide[k] + places[k][..., taps[k]]
            weight = weight * weights[k][..., taps[k]].to(values.dtype)
        if len(lines) == 1:
            found = lines[..., index[0]]
        else:
            found = lines.gather(-1, index.unsqueeze(1).expand(-1, lines.shape[1], -1))
        total = total + weight.unsqueeze(1) * found
    return total.to(dtype)


def _first(grid: Grid, axis: str) -> float:
    """The coordinate of the first point."""
    k = grid.index(axis)
    shift = 0.5 if grid.centring == "cell" else float(isinstance(grid.sides[axis][0], Dirichlet))
    return grid.origin[k] + shift * grid.spacing[k]


def _walls(grid: Grid, axis: str, n: int) -> tuple[float, float, int]:
    """First and last position in spacings from the first point where the field is known, and the last of the points and
    walls that "nearest" takes."""
    low, high = (side.wall(grid.centring) for side in grid.sides[axis])
    last = n - 1 - float(high[0] if high else 0)
    return float(low[0] if low else 0), last, math.ceil(last - 0.5)


def _along(at: Tensor, grid: Grid, axis: str, mode: str, n: int) -> tuple[Tensor, Tensor]:
    """The points `[..., taps]` around positions, in spacings from the first point, and their weights."""
    last = n - 1
    if grid.periodic[axis]:
        at = at.remainder(n)
        at = torch.where(at >= n, 0.0, at)  # by rounding
    else:
        low, high, last = _walls(grid, axis, n)
        at = at.clamp(low, high)
    known = torch.where(at.isnan(), 0.0, at.detach())
    if mode == "nearest":
        index = (known + 0.5).floor()
        index = index if grid.periodic[axis] else index.clamp(max=last)
        return index.long().unsqueeze(-1), (at.detach() - at.detach() + 1).unsqueeze(-1)
    base = known.floor().clamp(max=n - 1)
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


@lru_cache(maxsize=256)
def _sampling(grid: Grid, space: tuple[int, ...], mode: str) -> tuple[Sampling, Tensor, float]:
    """The kernels' layout, their numbers (float64), and a bound on the size of a weight."""
    axes = []
    for axis, n in zip(grid.axes, space, strict=True):
        window = TAPS[mode] if grid.periodic[axis] else min(n, max(TAPS[mode], BEYOND))
        axes.append(Axis(grid.periodic[axis], min(BEYOND, n), window))
    sampling = Sampling(mode, tuple(axes))
    numbers, largest = [], 1.0
    for axis, h, n, laid in zip(grid.axes, grid.spacing, space, axes, strict=True):
        numbers += [_first(grid, axis), 1 / h]
        largest *= 2.0  # the sizes of bicubic weights add up to 1.25 at most
        if not laid.periodic:
            ends = ghost_rows(grid, axis, laid.count, sampling.depth)
            numbers += [*_walls(grid, axis, n), *table(ends, laid.count, sampling.depth)]
            largest *= max([1.0, *(abs(w) for rows in ends for row in rows for w in row.weights)])
    return sampling, torch.tensor(numbers, dtype=torch.float64), largest


@lru_cache(maxsize=512)
def _on_device(
    grid: Grid, space: tuple[int, ...], mode: str, dtype: torch.dtype, device: torch.device
) -> tuple[Sampling, Tensor, float]:
    sampling, numbers, largest = _sampling(grid, space, mode)
    return sampling, numbers.to(device, dtype), largest


def _kernel(field: Tensor, points: Tensor, grid: Grid, mode: str) -> Tensor:
    compute = torch.promote_types(field.dtype, torch.float32)
    points = points.to(torch.promote_types(points.dtype, compute))
    return _Sample.apply(field, points.detach() if mode == "nearest" else points, grid, mode)


class _Sample(torch.autograd.Function):
    """[N, C, *space] at [N, P, d] by the kernels."""

    @staticmethod
    def forward(ctx, field: Tensor, points: Tensor, grid: Grid, mode: str) -> Tensor:
        from pinnfuse.kernels.grid.run_sample import forward

        sampling, numbers, _ = ctx.laid_out = _on_device(
            grid, tuple(field.shape[2:]), mode, points.dtype, points.device
        )
        ctx.save_for_backward(points, *([field] if ctx.needs_input_grad[1] else []))
        ctx.shape = field.shape
        out = field.new_empty(*field.shape[:2], points.shape[1])
        if out.numel():
            forward(sampling, numbers, field, points, out)
        return out

    @staticmethod
    @first_order_only("sample", USE_TORCH)
    def backward(ctx, gradient: Tensor):
        from pinnfuse.kernels.grid.run_sample import scatter, slopes

        points, *rest = ctx.saved_tensors
        sampling, numbers, largest = ctx.laid_out
        grad_field = grad_points = None
        if ctx.needs_input_grad[0]:
            grad_field = gradient.new_zeros(ctx.shape)
            if gradient.numel():
                scatter(sampling, numbers, gradient, points, largest, grad_field)
        if ctx.needs_input_grad[1]:
            grad_points = points.new_zeros(points.shape)
            if gradient.numel():
                slopes(sampling, numbers, gradient, rest[0], points, grad_points)
        return grad_field, grad_points, None, None
