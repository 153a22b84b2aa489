"""Diffuse and decay in one pass over the field, deposits and food added on the way in.

    f*  = f + deposit x count + food rate x food,        f <- keep (f* + diffusion (mean of f* over 3 x 3 - f*))

A program takes ROWS rows of BLOCK cells and sums each row's three cells once for the three results that need it. It
also clears the other trail for the next step, and the first program advances the clock.
"""

from __future__ import annotations

import triton
import triton.language as tl

from pinnfuse.kernels.physarum.arithmetic import after_the_kernel_before, fit


@triton.jit(do_not_specialize=["rows", "width"])
def diffuse_and_decay_kernel(
    field_ptr,     # [S, rows, W]
    trail_ptr,     # [S, rows, W] int32 counts, or float32
    new_ptr,       # [S, rows, W] out
    cleared_ptr,   # [S, rows, W] out: zeros
    food_ptr,      # [rows, W] float32
    obstacle_ptr,  # [rows, W] uint8
    reals_ptr,     # [S, 4 + S]
    clock_ptr,     # [2] step, seed
    rows, width,
    SPECIES: tl.constexpr, TORUS: tl.constexpr, COUNT: tl.constexpr, FOOD: tl.constexpr, OBSTACLES: tl.constexpr,
    ALIGNED: tl.constexpr, OVERLAP: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    after_the_kernel_before(OVERLAP)
    if ALIGNED:
        width = tl.multiple_of(width, 16)
    species = tl.program_id(2)
    reals_ptr += species * (4 + SPECIES)
    deposit, keep = tl.load(reals_ptr), tl.load(reals_ptr + 1)
    diffusion, rate = tl.load(reals_ptr + 2), tl.load(reals_ptr + 3)
    base = species * (rows.to(tl.int64) * width)
    x = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    y = tl.program_id(1) * ROWS
    inside = x < width
    west, east = fit(x - 1, width, TORUS), fit(x + 1, width, TORUS)
    upper, middle, own = x * 0.0, x * 0.0, x * 0.0
    for k in tl.static_range(ROWS + 2):
        row = tl.minimum(fit(y + k - 1, rows, TORUS), rows - 1)  # beyond the last row nothing is stored
        start = base + row.to(tl.int64) * width
        flat = row.to(tl.int64) * width
        a = _starred(field_ptr + start, trail_ptr + start, food_ptr + flat, west, inside, deposit, rate, COUNT, FOOD)
        b = _starred(field_ptr + start, trail_ptr + start, food_ptr + flat, x, inside, deposit, rate, COUNT, FOOD)
        c = _starred(field_ptr + start, trail_ptr + start, food_ptr + flat, east, inside, deposit, rate, COUNT, FOOD)
        line = (a + b) + c
        if k >= 2:
            mean = ((upper + middle) + line) * 0.1111111111111111
            value = keep * (own + diffusion * (mean - own))
            row = y + k - 2
            stored = x < tl.where(row < rows, width, 0)
            flat = row.to(tl.int64) * width
            if OBSTACLES:
                value = tl.where(tl.load(obstacle_ptr + flat + x, mask=stored, other=0) != 0, 0.0, value)
            if new_ptr.dtype.element_ty == tl.float16:
                value = tl.minimum(tl.maximum(value, -65504.0), 65504.0)  # infinity would spread as NaN
            tl.store(new_ptr + base + flat + x, value.to(new_ptr.dtype.element_ty), mask=stored)
            tl.store(cleared_ptr + base + flat + x, tl.zeros_like(x).to(cleared_ptr.dtype.element_ty), mask=stored)
        upper, middle, own = middle, line, b
    if (tl.program_id(0) == 0) & (tl.program_id(1) == 0) & (species == 0):
        tl.store(clock_ptr, tl.load(clock_ptr) + 1)


@triton.jit
def _starred(field_ptr, trail_ptr, food_ptr, x, mask, deposit, rate, COUNT: tl.constexpr, FOOD: tl.constexpr):
    """Field with deposits and food at columns x of a row."""
    value = tl.load(field_ptr + x, mask=mask, other=0.0).to(tl.float32)
    trail = tl.load(trail_ptr + x, mask=mask, other=0).to(tl.float32)
    if COUNT:
        trail = trail * deposit
    value += trail
    if FOOD:
        value += tl.load(food_ptr + x, mask=mask, other=0.0) * rate
    return value
