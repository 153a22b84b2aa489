"""Where a program's tile lies, and where its points find their neighbours."""

import triton
import triton.language as tl


@triton.jit
def position(nz, tiles_x, tiles_y, BX: tl.constexpr, BY: tl.constexpr, WIDE: tl.constexpr):
    """Batch entry (int64), z, and indices y [BY, 1], x [1, BX] of this program; int64 with WIDE."""
    program = tl.program_id(0)
    plane = program // tiles_x // tiles_y
    x = program % tiles_x * BX + tl.arange(0, BX)[None, :]
    y = program // tiles_x % tiles_y * BY + tl.arange(0, BY)[:, None]
    z = plane % nz
    if WIDE:
        x, y, z = x.to(tl.int64), y.to(tl.int64), z.to(tl.int64)
    return (plane // nz).to(tl.int64), z, y, x


@triton.jit
def wrap(i, n):
    """i modulo n for -n <= i < 2 n."""
    return tl.where(i < 0, i + n, tl.where(i >= n, i - n, i))


@triton.jit
def table_row(i, n, LO: tl.constexpr, HI: tl.constexpr):
    """The row of a table of LO + 1 + HI rows that point i uses; points beyond the end get the last."""
    i = tl.minimum(i, n - 1)
    return tl.where(i < LO, i, tl.where(i >= n - HI, i - (n - HI) + LO + 1, LO))


@triton.jit
def window(i, n, LO: tl.constexpr, HI: tl.constexpr, REACH: tl.constexpr, WIDTH: tl.constexpr):
    """The first of the WIDTH points of row i."""
    return tl.where(i < LO, 0, tl.where(i >= n - HI, n - WIDTH, i - REACH))
