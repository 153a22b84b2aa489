"""Several explicit steps of the heat equation in one launch.

    u <- u + l_x u(x - 1) + m_x u + h_x u(x + 1) + c_x + the same along y

with rows (l, m, h, c) per axis, alpha dt included; rows at walls are its first and last ones. A program keeps a tile
in registers, with a halo of as many points as there are steps: each step spoils one more point at the tile's edge, and
what is stored after `steps` of them is right. Neighbours come from `tl.gather` within the tile. An axis that fits into
the tile has no halo; where all axes do, any number of steps is one launch.

The sum of the row times u is linear: the adjoint of the steps is the same kernel with transposed rows and c = 0.

Source: overlapped temporal blocking, e.g. Holewinski et al., High-performance code generation for stencil computations
on GPU architectures, ICS 2012.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import torch
import triton
import triton.language as tl
from torch import Tensor

from pinnfuse.kernels.launching import Prepared


@dataclass(frozen=True)
class Tile:
    """Points of a program, halos included; warps; steps a launch where an axis does not fit."""

    x: int
    y: int
    warps: int
    steps: int


LARGE = Tile(64, 64, 8, 8)
LARGE_DOUBLE = Tile(64, 32, 8, 4)
LINE = Tile(256, 1, 1, 32)
"""None spills. H200, 1024^2: 4.6 microseconds a step (32 x 32 5.1, 128 x 64 4.8, 16 steps 7.3); 4096^2: 61."""
WHOLE = 64 * 64
"""Points of a field whose tile is all of it, half as many in float64; twice as many spill."""
SHIPPED = (
    (LARGE, False, False), (LARGE_DOUBLE, False, True), (LINE, False, False), (LINE, False, True),
    (Tile(64, 64, 16, 1), True, False), (Tile(64, 32, 16, 1), True, True), (Tile(32, 32, 4, 1), True, False),
    (Tile(512, 1, 1, 1), True, False), (Tile(256, 1, 1, 1), True, True),
)  # fmt: skip
"""(tile, whole, float64) of everything that `plan` takes at its largest."""


@triton.jit(do_not_specialize=["count", "nx", "ny", "tiles_x", "tiles_y", "ob", "oy", "ox", "ib", "iy", "ix"])
def steps_kernel(
    out_ptr,  # [batch, ny, nx] in any strides
    in_ptr,  # [batch, ny, nx] in any strides
    rows_ptr,  # [4, nx] then [4, ny]: l, m, h, c
    count, nx, ny, tiles_x, tiles_y, ob, oy, ox, ib, iy, ix,
    BX: tl.constexpr, BY: tl.constexpr, HX: tl.constexpr, HY: tl.constexpr,
    PX: tl.constexpr, PY: tl.constexpr, UNIT: tl.constexpr, ACC: tl.constexpr,
):  # fmt: skip
    ix = 1 if UNIT else ix
    ox = 1 if UNIT else ox
    program = tl.program_id(0)
    b = (program // (tiles_x * tiles_y)).to(tl.int64)
    i, j = tl.arange(0, BX), tl.arange(0, BY)
    x = program % tiles_x * (BX - 2 * HX) - HX + i
    y = program // tiles_x % tiles_y * (BY - 2 * HY) - HY + j
    # where the point lies in the field, and whether it does
    at_x = (x % nx + nx) % nx if PX else x
    at_y = (y % ny + ny) % ny if PY else y
    in_x = (x < nx) & (x >= 0) if (HX == 0 or not PX) else x < nx + HX
    in_y = (y < ny) & (y >= 0) if (HY == 0 or not PY) else y < ny + HY
    # neighbours in the tile; without a halo a periodic axis closes in it
    low_x = tl.where(i == 0, nx - 1, i - 1) if (PX and HX == 0) else tl.maximum(i - 1, 0)
    high_x = tl.where(i == nx - 1, 0, i + 1) if (PX and HX == 0) else i + 1
    low_y = tl.where(j == 0, ny - 1, j - 1) if (PY and HY == 0) else tl.maximum(j - 1, 0)
    high_y = tl.where(j == ny - 1, 0, j + 1) if (PY and HY == 0) else j + 1
    zero = tl.zeros([BY, BX], tl.int32)
    low_x, high_x = low_x[None, :] + zero, tl.minimum(high_x, BX - 1)[None, :] + zero
    low_y, high_y = low_y[:, None] + zero, tl.minimum(high_y, BY - 1)[:, None] + zero

    lx = tl.load(rows_ptr + at_x, mask=in_x, other=0.0)[None, :]
    mx = tl.load(rows_ptr + nx + at_x, mask=in_x, other=0.0)[None, :]
    hx = tl.load(rows_ptr + 2 * nx + at_x, mask=in_x, other=0.0)[None, :]
    cx = tl.load(rows_ptr + 3 * nx + at_x, mask=in_x, other=0.0)[None, :]
    rows_ptr += 4 * nx
    ly = tl.load(rows_ptr + at_y, mask=in_y, other=0.0)[:, None]
    my = tl.load(rows_ptr + ny + at_y, mask=in_y, other=0.0)[:, None]
    hy = tl.load(rows_ptr + 2 * ny + at_y, mask=in_y, other=0.0)[:, None]
    cy = tl.load(rows_ptr + 3 * ny + at_y, mask=in_y, other=0.0)[:, None]

    inside = in_y[:, None] & in_x[None, :]
    u = tl.load(
        in_ptr + b * ib + at_y.to(tl.int64)[:, None] * iy + at_x.to(tl.int64)[None, :] * ix, mask=inside, other=0.0
    ).to(ACC)
    for _ in range(count):
        change = lx * tl.gather(u, low_x, 1) + hx * tl.gather(u, high_x, 1)
        change += ly * tl.gather(u, low_y, 0) + hy * tl.gather(u, high_y, 0)
        u += change + ((mx + my) * u + (cx + cy))
    keep_x = (i >= HX) & (i < BX - HX) & (x < nx)
    keep_y = (j >= HY) & (j < BY - HY) & (y < ny)
    tl.store(
        out_ptr + b * ob + y.to(tl.int64)[:, None] * oy + x.to(tl.int64)[None, :] * ox,
        u,
        mask=keep_y[:, None] & keep_x[None, :],
    )


@dataclass(frozen=True)
class Plan:
    """Tile, halos and steps of one launch."""

    tile: Tile
    halo: tuple[int, int]
    per_launch: int


def plan(shape: Sequence[int], steps: int, double: bool, lines: bool, large: Tile | None = None) -> Plan:
    """For fields `[batch, ny, nx]` (lines: ny is a batch). `large` forces a tile with halos."""
    _, ny, nx = shape
    x, y = max(16, triton.next_power_of_2(nx)), max(1 if lines else 16, triton.next_power_of_2(ny))
    most = WHOLE // 2 if double else WHOLE
    if lines:
        if x <= LINE.x and large is None:
            return Plan(Tile(x, max(1, min(y, 512 // x)), 1, steps), (0, 0), steps)
        tile = large or LINE
        return Plan(tile, (tile.steps, 0), tile.steps)
    if x * y <= most and large is None:
        return Plan(Tile(x, y, 16 if x * y > most // 4 else 4, steps), (0, 0), steps)
    tile = large or (LARGE_DOUBLE if double else LARGE)
    halo = (0 if nx <= tile.x else tile.steps, 0 if ny <= tile.y else tile.steps)
    return Plan(tile, halo, tile.steps)


def advance(
    u: Tensor, rows: Tensor, steps: int, periodic: tuple[bool, bool], lines: bool, large: Tile | None = None
) -> Tensor:
    """`steps` steps of u `[batch, ny, nx]`, any strides, in u's dtype; sums and the steps of one launch in float32 or
    float64.

    Args:
        rows: `[4 nx + 4 ny]`, float64 for float64 fields, else float32.
        periodic: along x (the last axis) and y.
        lines: every row is a field of its own; its rows along y are zero.
    """
    if not u.numel() or not steps:
        return u.clone()
    shape, double = tuple(u.shape), u.dtype == torch.float64
    found = plan(shape, steps, double, lines, large)
    buffers = [torch.empty(shape, dtype=u.dtype, device=u.device) for _ in range(2 if steps > found.per_launch else 1)]
    source = u
    with torch.cuda.device_of(u):
        for k, done in enumerate(range(0, steps, found.per_launch)):
            target = buffers[k % len(buffers)]
            count = min(found.per_launch, steps - done)
            run = _prepared(found, shape, target.stride(), source.stride(), count, periodic, lines, u.dtype, u.device)
            run((target, source, rows))
            source = target
    return source


@lru_cache(maxsize=256)
def _prepared(
    found: Plan,
    shape: tuple[int, ...],
    out: tuple[int, ...],
    into: tuple[int, ...],
    count: int,
    periodic: tuple[bool, bool],
    lines: bool,
    dtype: torch.dtype,
    device: torch.device,
) -> Prepared:
    """One launch of `count` steps between arrays of these strides."""
    tile, (halo_x, halo_y) = found.tile, found.halo
    batch, ny, nx = shape
    tiles_x, tiles_y = -(-nx // (tile.x - 2 * halo_x)), -(-ny // (tile.y - 2 * halo_y))
    constants = {
        "BX": tile.x, "BY": tile.y, "HX": halo_x, "HY": halo_y, "PX": periodic[0], "PY": periodic[1] and not lines,
        "UNIT": out[2] == into[2] == 1, "ACC": tl.float64 if dtype == torch.float64 else tl.float32,
    }  # fmt: skip
    grid = (batch * tiles_x * tiles_y,)
    return Prepared(steps_kernel, grid, (count, nx, ny, tiles_x, tiles_y, *out, *into), constants, num_warps=tile.warps)
