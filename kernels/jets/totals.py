"""What follows the one kernel of a step: sums over its programs, gradients in their final order, the loss."""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit(do_not_specialize=["programs", "columns", "first", "inputs", "head", "points"])
def totals_kernel(
    x_ptr,  # [programs, columns]: rows of sums as hopper_fused.py leaves them
    weights_ptr,  # [EQUATIONS]
    out_ptr,  # [columns] out: sums over the rows, in a fixed order; input weights as [64, D], units in their order
    means_ptr,  # [EQUATIONS] out: losses of the equations, divided by the number of points
    loss_ptr,  # out: their weighted sum
    programs, columns, first, inputs, head, points,  # first, inputs, head: of losses, input weights, hidden weights
    EQUATIONS: tl.constexpr, D: tl.constexpr, PERMUTED: tl.constexpr, COLUMNS: tl.constexpr, ROWS: tl.constexpr,
):  # fmt: skip
    """Every program has some columns; the last one makes the loss."""
    dtype: tl.constexpr = out_ptr.dtype.element_ty
    block = tl.program_id(0)
    if block < tl.num_programs(0) - 1:
        c = block * COLUMNS + tl.arange(0, COLUMNS)
        acc = _sums(x_ptr, c, c < columns, programs, columns, dtype, COLUMNS, ROWS)
        i = c - inputs
        at = tl.where((i >= 0) & (i < 64 * D), inputs + i % 64 * D + i // 64, c)
        if PERMUTED:  # each factor of the product had its units at their positions
            i = c - head
            at = tl.where(i >= 0, head + i // 64 * 64 + _unit_at(_unit_at(i % 64)), at)
        tl.store(out_ptr + at, acc, mask=c < columns)
    else:
        e = tl.arange(0, COLUMNS)
        some = e < EQUATIONS
        means = _sums(x_ptr, first + e, some, programs, columns, dtype, COLUMNS, ROWS) / points.to(dtype)
        tl.store(means_ptr + e, means, mask=some)
        tl.store(loss_ptr, tl.sum(means * tl.load(weights_ptr + e, mask=some, other=0.0), 0))


@triton.jit
def _sums(x_ptr, c, known, programs, columns, dtype: tl.constexpr, COLUMNS: tl.constexpr, ROWS: tl.constexpr):
    acc = tl.zeros([COLUMNS], dtype)
    for first in range(0, programs, ROWS):
        r = first + tl.arange(0, ROWS)
        mask = (r < programs)[:, None] & known[None, :]
        acc += tl.sum(tl.load(x_ptr + r[:, None].to(tl.int64) * columns + c[None, :], mask=mask, other=0.0), 0)
    return acc


@triton.jit
def _unit_at(p):
    """Which unit of 64 stands at position p (see hopper_primitives)."""
    return p // 32 * 32 + p % 8 // 2 * 8 + p % 32 // 8 * 2 + p % 2
