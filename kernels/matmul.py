"""A matrix product with its epilogue in the same kernel.

    C = s(Z),  Z = A B + D,     A [M, K], B [K, N], D [M, N] or a row [N], s: identity, tanh or relu

Adjoint, with G the gradient of C and H = G s'(Z), s' found from C (1 - C^2 for tanh, C > 0 for relu):

    grad_A = H B^T,     grad_B = A^T H,     grad_D = H (summed over rows for a row)

Both products run through the same kernel, with strides exchanged for transposes; the result and the operands are all
that is saved. The backward is made of these functions, so it has a derivative of its own.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor

from pinnfuse.precision import matmul_precision

ACTIVATIONS = {"identity": 0, "tanh": 1, "relu": 2}
PRODUCTS = {"highest": "tf32x3", "high": "tf32", "medium": "tf32"}
"""torch.get_float32_matmul_precision() -> how float32 products are formed on tensor cores."""


@triton.jit
def matmul_kernel(
    a_ptr,  # [M, K]
    b_ptr,  # [K, N]
    d_ptr,  # [M, N], any strides, 0 too; a_ptr where there is none
    c_ptr,  # [M, N] out
    M, N, K,
    a_row, a_column, b_row, b_column, d_row, d_column, c_row, c_column,
    ADD: tl.constexpr, ACTIVATION: tl.constexpr, PRODUCT: tl.constexpr, SUM: tl.constexpr,
    BM: tl.constexpr, BN: tl.constexpr, BK: tl.constexpr, GROUP: tl.constexpr,
):  # fmt: skip
    # programs of GROUP rows of tiles walk together, so that their columns of B stay in L2
    tiles_m, tiles_n = tl.cdiv(M, BM), tl.cdiv(N, BN)
    program = tl.program_id(0)
    band = program // (GROUP * tiles_n)
    height = min(tiles_m - band * GROUP, GROUP)
    tile_m = band * GROUP + program % height
    tile_n = (program % (GROUP * tiles_n)) // height
    m = (tile_m * BM + tl.arange(0, BM)).to(tl.int64)
    n = (tile_n * BN + tl.arange(0, BN)).to(tl.int64)
    k = tl.arange(0, BK).to(tl.int64)
    a = a_ptr + m[:, None] * a_row + k[None, :] * a_column
    b = b_ptr + k[:, None] * b_row + n[None, :] * b_column
    total = tl.zeros((BM, BN), dtype=SUM)
    for start in range(0, K, BK):
        left = tl.load(a, mask=(m[:, None] < M) & (start + k[None, :] < K), other=0.0)
        right = tl.load(b, mask=(start + k[:, None] < K) & (n[None, :] < N), other=0.0)
        total = tl.dot(left, right, total, input_precision=PRODUCT, out_dtype=SUM)
        a += BK * a_column
        b += BK * b_row
    inside = (m[:, None] < M) & (n[None, :] < N)
    if ADD:
        total += tl.load(d_ptr + m[:, None] * d_row + n[None, :] * d_column, mask=inside, other=0.0).to(SUM)
    if ACTIVATION == 1:
        total = 2.0 / (1.0 + tl.exp(-2.0 * total)) - 1.0
    if ACTIVATION == 2:
        total = tl.maximum(total, 0.0)
    tl.store(c_ptr + m[:, None] * c_row + n[None, :] * c_column, total.to(c_ptr.dtype.element_ty), mask=inside)


def product(a: Tensor, b: Tensor, d: Tensor | None, activation: str) -> Tensor:
    """Launch; operands checked by the caller."""
    (m, k), n = a.shape, b.shape[1]
    c = torch.empty(m, n, dtype=a.dtype, device=a.device)
    if d is not None:
        d = d.expand(m, n)
    double = a.dtype == torch.float64
    bm, bn, bk = (32, 32, 16) if double else (128, 128, 32) if min(m, n) >= 128 else (32, 32, 32)
    grid = (triton.cdiv(m, bm) * triton.cdiv(n, bn),)
    if m and n:
        matmul_kernel[grid](
            a, b, a if d is None else d, c, m, n, k, *a.stride(), *b.stride(), *(c if d is None else d).stride(),
            *c.stride(), ADD=d is not None, ACTIVATION=ACTIVATIONS[activation],
            PRODUCT="ieee" if double else PRODUCTS[matmul_precision()],
            SUM=tl.float64 if double else tl.float32, BM=bm, BN=bn, BK=bk, GROUP=8,
            num_warps=8 if bm == 128 else 4, num_stages=3 if bm == 128 else 2,
        )  # fmt: skip
    return c


class _Matmul(torch.autograd.Function):
    @staticmethod
    def forward(ctx: Any, a: Tensor, b: Tensor, d: Tensor | None, activation: str) -> Tensor:
        c = product(a, b, d, activation)
        ctx.save_for_backward(a, b, c)
        ctx.shape, ctx.activation = None if d is None else d.shape, activation
        return c

    @staticmethod
    def backward(ctx: Any, g: Tensor) -> Any:
        a, b, c = ctx.saved_tensors
        h = g * (1 - c * c) if ctx.activation == "tanh" else g * (c > 0) if ctx.activation == "relu" else g
        need = ctx.needs_input_grad
        return (
            _Matmul.apply(h, b.T, None, "identity") if need[0] else None,
            _Matmul.apply(a.T, h, None, "identity") if need[1] else None,
            h.sum_to_size(ctx.shape) if need[2] else None,
            None,
        )


def matmul(a: Tensor, b: Tensor, d: Tensor | None = None, activation: str = "identity") -> Tensor:
    """s(A B + D) in one kernel, differentiable; operands as `pinnfuse.compat.flashpde.fused_matmul` checks them."""
    return _Matmul.apply(a, b, d, activation)
