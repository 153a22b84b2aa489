"""Softmax over rows of any length: what fusion saves, in one page.

    m = max_j x_j,   s = sum_j exp(x_j - m),   y_j = exp(x_j - m) / s

In torch's operators that is five passes over the row with four temporaries. Here a program takes one row: it walks
through the row once with a running maximum and sum (s <- s exp(m_old - m_new) + sum of the block), and once more to
write; a row of up to BLOCK numbers stays in registers between the two. Adjoint, with g = d(loss)/dy:

    grad_x_j = y_j (g_j - sum_k g_k y_k)

Source: Milakov, Gimelshein, Online normalizer calculation for softmax, arXiv:1805.02867 (2018).
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from pinnfuse.first_order import first_order_only

LARGEST_BLOCK = 4096


@triton.jit(do_not_specialize=["columns"])
def _softmax_fwd_kernel(
    x_ptr,  # [R, C], stride C
    y_ptr,  # [R, C] out
    columns, DOUBLE: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    real = tl.float64 if DOUBLE else tl.float32
    start = tl.program_id(0).to(tl.int64) * columns
    lane = tl.arange(0, BLOCK)
    highest = tl.full([], float("-inf"), real)
    total = tl.full([], 0.0, real)
    for first in range(0, columns, BLOCK):
        x = tl.load(x_ptr + start + first + lane, mask=first + lane < columns, other=float("-inf")).to(real)
        new = tl.maximum(highest, tl.max(x, axis=0))
        shift = tl.where(new == float("-inf"), 0.0, new)  # a row that begins with -inf only
        total = total * tl.exp(highest - shift) + tl.sum(tl.exp(x - shift), axis=0)
        highest = new
    for first in range(0, columns, BLOCK):
        mask = first + lane < columns
        x = tl.load(x_ptr + start + first + lane, mask=mask, other=float("-inf")).to(real)
        tl.store(y_ptr + start + first + lane, (tl.exp(x - highest) / total).to(y_ptr.dtype.element_ty), mask=mask)


@triton.jit(do_not_specialize=["columns"])
def _softmax_bwd_kernel(
    y_ptr,  # [R, C] softmax
    g_ptr,  # [R, C] its gradient
    grad_x_ptr,  # [R, C] out
    columns, DOUBLE: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    real = tl.float64 if DOUBLE else tl.float32
    start = tl.program_id(0).to(tl.int64) * columns
    lane = tl.arange(0, BLOCK)
    inner = tl.full([], 0.0, real)
    for first in range(0, columns, BLOCK):
        mask = first + lane < columns
        y = tl.load(y_ptr + start + first + lane, mask=mask, other=0.0).to(real)
        inner += tl.sum(y * tl.load(g_ptr + start + first + lane, mask=mask, other=0.0).to(real), axis=0)
    for first in range(0, columns, BLOCK):
        mask = first + lane < columns
        y = tl.load(y_ptr + start + first + lane, mask=mask, other=0.0).to(real)
        g = tl.load(g_ptr + start + first + lane, mask=mask, other=0.0).to(real)
        tl.store(grad_x_ptr + start + first + lane, (y * (g - inner)).to(grad_x_ptr.dtype.element_ty), mask=mask)


def _launch(kernel: Any, *tensors: Tensor) -> None:
    rows, columns = tensors[0].shape
    block = min(LARGEST_BLOCK, triton.next_power_of_2(columns))
    warps = min(8, max(1, block // 256))
    if rows and columns:
        kernel[(rows,)](*tensors, columns, DOUBLE=tensors[0].dtype == torch.float64, BLOCK=block, num_warps=warps)


class _Softmax(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        flat = x.reshape(-1, x.shape[-1]).contiguous()
        y = torch.empty_like(flat)
        _launch(_softmax_fwd_kernel, flat, y)
        ctx.save_for_backward(y)
        return y.view(x.shape)

    @staticmethod
    @first_order_only("softmax", "For second ones use torch.softmax.")
    def backward(ctx: Any, grad: Tensor) -> Tensor:
        (y,) = ctx.saved_tensors
        flat = grad.reshape(y.shape).contiguous()
        grad_x = torch.empty_like(y)
        _launch(_softmax_bwd_kernel, y, flat, grad_x)
        return grad_x.view(grad.shape)


def softmax(x: Tensor) -> Tensor:
    """Softmax over the last axis, in one launch forward and one backward; arithmetic in float32, or float64 for that.

    Args:
        x: [..., C] of any floating type, on a CUDA card, C >= 1 of any size.

    Raises:
        ValueError: an integer tensor or an empty last axis.
    """
    if not x.is_floating_point() or x.dim() == 0 or x.shape[-1] == 0:
        raise ValueError(f"softmax: `x` must be floating point, [..., C] with C >= 1; got {x.dtype}, {list(x.shape)}.")
    return _Softmax.apply(x)
