"""Positions between points, weights of the points around them, and what points get of the weight of ghost points."""

import triton
import triton.language as tl


@triton.jit
def on_circle(x, n):
    """(x, the point at or before it) in [0, n); the point is 0 and x stays where x is no number."""
    x -= tl.floor(x / n) * n
    x = tl.where((x < 0) | (x >= n), 0.0, x)  # by rounding
    return x, tl.floor(tl.where(x == x, x, 0.0)).to(tl.int32)


@triton.jit
def between_walls(x, low, high, n):
    """(x clamped, the point at or before it, whether x lay inside)."""
    inside = (x >= low) & (x <= high)
    x = tl.where(x < low, low, tl.where(x > high, high, x))
    return x, tl.minimum(tl.floor(tl.where(x == x, x, 0.0)).to(tl.int32), n - 1), inside


@triton.jit
def rounded(x):
    """(the nearest point, the weight 1); no number where x is none."""
    return tl.floor(tl.where(x == x, x, 0.0) + 0.5).to(tl.int32), x - x + 1.0


@triton.jit
def cubic(t):
    """Keys' weights of the points at -1, 0, 1, 2 for 0 <= t <= 1."""
    return (
        ((-0.5 * t + 1.0) * t - 0.5) * t,
        (1.5 * t - 2.5) * t * t + 1.0,
        ((-1.5 * t + 2.0) * t + 0.5) * t,
        (0.5 * t - 0.5) * t * t,
    )


@triton.jit
def cubic_slopes(t):
    return (
        (-1.5 * t + 2.0) * t - 0.5,
        (4.5 * t - 5.0) * t,
        (-4.5 * t + 4.0) * t + 0.5,
        (1.5 * t - 1.0) * t,
    )


@triton.jit
def share(i, p, n, table_ptr, DEPTH: tl.constexpr, COUNT: tl.constexpr):
    """What point p gets of the weight of point i: 1 if it is that point, the weight with which i is extrapolated from
    p if i lies outside."""
    outside = (i < 0) | (i >= n)
    column = tl.where(i < 0, p, n - 1 - p)
    there = outside & (column < COUNT)
    weight = tl.load(table_ptr + _row(i, n, DEPTH) * (COUNT + 1) + column, mask=there, other=0.0)
    return tl.where(outside, weight, tl.where(i == p, 1.0, 0.0))


@triton.jit
def constant(i, n, table_ptr, DEPTH: tl.constexpr, COUNT: tl.constexpr):
    """What the wall's number adds to a point outside."""
    row = table_ptr + _row(i, n, DEPTH) * (COUNT + 1) + COUNT
    return tl.load(row, mask=(i < 0) | (i >= n), other=0.0)


@triton.jit
def _row(i, n, DEPTH: tl.constexpr):
    return tl.where(i < 0, -1 - i, DEPTH + i - n)


@triton.jit
def add_fixed(sum_ptr, rest_ptr, at, value, scale, live, DOUBLE: tl.constexpr, REST: tl.constexpr):
    """Add a value as an integer, in units of 1 / scale; of a double also what that loses, in units / REST."""
    exact = value.to(tl.float64) * scale
    whole = tl.floor(exact + 0.5)
    tl.atomic_add(sum_ptr + at, whole.to(tl.int64), mask=live & (whole != 0), sem="relaxed")
    if DOUBLE:
        rest = tl.floor((exact - whole) * REST + 0.5)
        tl.atomic_add(rest_ptr + at, rest.to(tl.int64), mask=live & (rest != 0), sem="relaxed")


@triton.jit(do_not_specialize=["size"])
def finish_kernel(
    out_ptr, sum_ptr, rest_ptr, unit_ptr, size, DOUBLE: tl.constexpr, REST: tl.constexpr, BLOCK: tl.constexpr
):  # fmt: skip
    """Integers back to numbers."""
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    live = at < size
    value = tl.load(sum_ptr + at, mask=live, other=0).to(tl.float64)
    if DOUBLE:
        value += tl.load(rest_ptr + at, mask=live, other=0).to(tl.float64) / REST
    value *= tl.load(unit_ptr)
    if not DOUBLE:
        value = value.to(tl.float32)  # Triton's interpreter has no way from double to bfloat16
    tl.store(out_ptr + at, value.to(out_ptr.dtype.element_ty), mask=live)
