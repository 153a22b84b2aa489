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


@triton.jit
def wrap_lanes(i, n):
    """`wrap` of indices [1, BX]. They lie side by side but for the place where they wrap; the compiler does not see
    that through a selection, and would lay a warp over several rows."""
    return tl.max_contiguous(tl.where(i < 0, i + n, tl.where(i >= n, i - n, i)), [1, i.shape[1]])


@triton.jit
def window_lanes(i, n, LO: tl.constexpr, HI: tl.constexpr, REACH: tl.constexpr, WIDTH: tl.constexpr):
    """`window` of indices [1, BX], likewise."""
    return tl.max_contiguous(tl.where(i < LO, 0, tl.where(i >= n - HI, n - WIDTH, i - REACH)), [1, i.shape[1]])
