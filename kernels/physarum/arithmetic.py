"""Integer sine, wrapping, Philox and reading the field: the formulas of `simulation/physarum/fixed.py` in Triton."""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def after_the_kernel_before(OVERLAP: tl.constexpr):
    """Programmatic dependent launch: this kernel was launched while the one before it ran; wait for its results."""
    if OVERLAP:
        tl.extra.cuda.gdc_wait()
        tl.extra.cuda.gdc_launch_dependents()


@triton.jit
def sine(angle):
    """32768 sin(2 pi angle / 65536), integer."""
    signed = ((angle + 32768) & 65535) - 32768
    size = tl.abs(signed)
    z = tl.minimum(size, 32768 - size) << 1
    square = (z * z + 16384) >> 15
    inner = 2602 - ((square * 142 + 16384) >> 15)
    inner = 21162 - ((square * inner + 16384) >> 15)
    inner = 51470 - ((square * inner + 16384) >> 15)
    value = tl.minimum((z * inner + 16384) >> 15, 32768)
    return tl.where(signed < 0, -value, value)


@triton.jit
def along(distance, direction):
    """distance x direction / 32768, rounded."""
    return ((distance.to(tl.int64) * direction + 16384) >> 15).to(tl.int32)


@triton.jit
def wrap(value, length):
    """Onto [0, length) for values at most one length outside."""
    value = tl.where(value < 0, value + length, value)
    return tl.where(value >= length, value - length, value)


@triton.jit
def fit(value, length, TORUS: tl.constexpr):
    """Around the torus, or to the nearest place inside the walls."""
    if TORUS:
        return wrap(value, length)
    else:
        return tl.minimum(tl.maximum(value, 0), length - 1)


@triton.jit
def below(word, bound):
    """A random 32-bit word as an integer in [0, bound)."""
    return ((word.to(tl.int64) * bound) >> 32).to(tl.int32)


@triton.jit
def words(clock_ptr, identity):
    """Four random words of an agent at this step: Philox-4x32-10 with the seed as key."""
    step, seed = tl.load(clock_ptr), tl.load(clock_ptr + 1)
    zero = identity * 0
    low, high = (step & 0xFFFFFFFF).to(tl.int32), (step >> 32).to(tl.int32)
    return tl.philox(seed, identity, zero + low, zero + high, zero)


@triton.jit
def cell(column, row, height, width, first):
    """Offset in one species' field, which holds rows of the torus from `first` on."""
    row = row - first
    row = tl.where(row < 0, row + height, row)
    return row.to(tl.int64) * width + column


@triton.jit
def weighted(field_ptr, attraction_ptr, at, size, mask, SPECIES: tl.constexpr):
    """Sum over species of attraction x field, in the order of the species."""
    total = tl.load(attraction_ptr) * tl.load(field_ptr + at, mask=mask, other=0.0).to(tl.float32)
    for other in tl.static_range(1, SPECIES):
        value = tl.load(field_ptr + other * size + at, mask=mask, other=0.0).to(tl.float32)
        total += tl.load(attraction_ptr + other) * value
    return total


@triton.jit
def read(
    field_ptr, attraction_ptr, x, y, height, width, first, size, mask,
    SPECIES: tl.constexpr, TORUS: tl.constexpr, BILINEAR: tl.constexpr,
):  # fmt: skip
    """The attraction-weighted field at a position."""
    x, y = fit(x, width << 16, TORUS), fit(y, height << 16, TORUS)
    if BILINEAR:
        x, y = x - 32768, y - 32768  # cell values stand in the middle of cells
        fx, fy = (x & 65535).to(tl.float32) * 0.0000152587890625, (y & 65535).to(tl.float32) * 0.0000152587890625
        x0, x1 = fit(x >> 16, width, TORUS), fit((x >> 16) + 1, width, TORUS)
        y0, y1 = fit(y >> 16, height, TORUS), fit((y >> 16) + 1, height, TORUS)
        a = weighted(field_ptr, attraction_ptr, cell(x0, y0, height, width, first), size, mask, SPECIES)
        b = weighted(field_ptr, attraction_ptr, cell(x1, y0, height, width, first), size, mask, SPECIES)
        c = weighted(field_ptr, attraction_ptr, cell(x0, y1, height, width, first), size, mask, SPECIES)
        d = weighted(field_ptr, attraction_ptr, cell(x1, y1, height, width, first), size, mask, SPECIES)
        top, bottom = a + (b - a) * fx, c + (d - c) * fx
        return top + (bottom - top) * fy
    else:
        return weighted(field_ptr, attraction_ptr, cell(x >> 16, y >> 16, height, width, first), size, mask, SPECIES)
