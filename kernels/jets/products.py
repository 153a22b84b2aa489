r"""Matrix products of jets between pointwise groups: forward, adjoint and weight gradient.

Jets are stored as pairs of halves (primitives.py) in blocks of [ROWS points, BLOCK units] with one scale each. The rule
of a product is the same for every channel, so channels and points are one dimension of `rows` here. A matrix of weights
has one scale: what is lost to the narrow exponent stays under 2^-38 of its largest entry.

    z = a W^T,   abar = zbar W,   Wbar = sum over rows of zbar^T a
"""

from __future__ import annotations

import triton
import triton.language as tl

from pinnfuse.kernels.jets.primitives import pair_dot, put


@triton.jit
def split_kernel(
    w_ptr,  # [N] weights, N a multiple of BLOCK
    largest_ptr,  # largest magnitude of them
    halves_ptr,  # [PARTS, N] out
    scale_ptr,  # out: inverse scale
    part_stride,  # N
    BLOCK: tl.constexpr,
    PARTS: tl.constexpr,
):
    i = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    put(halves_ptr + i, part_stride, scale_ptr, tl.load(w_ptr + i), tl.load(largest_ptr), PARTS)


@triton.jit(do_not_specialize=["rows"])
def product_kernel(
    i_ptr,  # [PARTS, rows, D] jets, D = IN, or OUT if TRANSPOSED
    i_scale_ptr,  # [rows / ROWS, D / BLOCK]
    w_ptr,  # [PARTS, OUT, IN]
    w_scale_ptr,  # inverse scale
    o_ptr,  # [rows, OUT] out, plain; [rows, IN] if TRANSPOSED
    rows,
    IN: tl.constexpr,
    OUT: tl.constexpr,
    ROWS: tl.constexpr,
    BLOCK: tl.constexpr,
    BM: tl.constexpr,
    BN: tl.constexpr,
    PARTS: tl.constexpr,
    TRANSPOSED: tl.constexpr,
    ADD: tl.constexpr,
):
    """o = i W^T, or i W if TRANSPOSED; added to what is there if ADD."""
    D: tl.constexpr = OUT if TRANSPOSED else IN
    N: tl.constexpr = IN if TRANSPOSED else OUT
    r = tl.program_id(0) // (N // BN) * BM + tl.arange(0, BM)
    c = tl.program_id(0) % (N // BN) * BN + tl.arange(0, BN)
    live = r < rows
    here = r.to(tl.int64)
    part = rows.to(tl.int64) * D
    weight_scale = tl.load(w_scale_ptr)
    acc = tl.zeros([BM, BN], o_ptr.dtype.element_ty)
    for kb in range(0, D // BLOCK):
        k = kb * BLOCK + tl.arange(0, BLOCK)
        pi = i_ptr + here[:, None] * D + k[None, :]
        pw = w_ptr + (k[:, None] * N + c[None, :] if TRANSPOSED else c[:, None] * D + k[None, :])
        ah = tl.load(pi, mask=live[:, None], other=0.0)
        bh = tl.load(pw)
        al = ah
        bl = bh
        if PARTS == 2:
            al = tl.load(pi + part, mask=live[:, None], other=0.0)
            bl = tl.load(pw + OUT * IN)
        if not TRANSPOSED:
            bh = tl.trans(bh)
            bl = tl.trans(bl)
        t = pair_dot(ah, al, bh, bl, PARTS)
        # a scale a block also keeps the compiler from chaining the accumulators, which truncate
        scale = tl.load(i_scale_ptr + r // ROWS * (D // BLOCK) + kb, mask=live, other=0.0) * weight_scale
        acc += t * scale[:, None]
    po = o_ptr + here[:, None] * N + c[None, :]
    if ADD:
        acc += tl.load(po, mask=live[:, None], other=0.0)
    tl.store(po, acc, mask=live[:, None])


@triton.jit(do_not_specialize=["rows", "split"])
def outer_kernel(
    a_ptr, a_scale_ptr,  # [PARTS, rows, IN] input of the layer, [rows / ROWS, IN / BLOCK]
    z_ptr, z_scale_ptr,  # [PARTS, rows, OUT] adjoint of its output, [rows / ROWS, OUT / BLOCK]
    dw_ptr,  # [split, OUT, IN] out: partial sums
    rows, split,
    IN: tl.constexpr,
    OUT: tl.constexpr,
    ROWS: tl.constexpr,
    BLOCK: tl.constexpr,
    BI: tl.constexpr,
    BO: tl.constexpr,
    PARTS: tl.constexpr,
):  # fmt: skip
    """dW = sum over rows of zbar^T a; a program (block, part) takes every `split`-th block of rows."""
    pid = tl.program_id(0)
    part = pid % split
    ri = pid // split % (IN // BI) * BI + tl.arange(0, BI)
    ro = pid // split // (IN // BI) * BO + tl.arange(0, BO)
    total = rows.to(tl.int64)
    acc = tl.zeros([BO, BI], dw_ptr.dtype.element_ty)
    for i in range(0, (rows // ROWS - part + split - 1) // split):
        j = part.to(tl.int64) + i * split
        r = j * ROWS + tl.arange(0, ROWS)
        pa = a_ptr + r[:, None] * IN + ri[None, :]
        pz = z_ptr + r[:, None] * OUT + ro[None, :]
        ah = tl.load(pa)
        zh = tl.load(pz)
        al = ah
        zl = zh
        if PARTS == 2:
            al = tl.load(pa + total * IN)
            zl = tl.load(pz + total * OUT)
        t = pair_dot(tl.trans(zh), tl.trans(zl), ah, al, PARTS)
        sa = tl.load(a_scale_ptr + j * (IN // BLOCK) + ri // BLOCK)
        sz = tl.load(z_scale_ptr + j * (OUT // BLOCK) + ro // BLOCK)
        acc += t * sz[:, None] * sa[None, :]
    tl.store(dw_ptr + (part * OUT + ro.to(tl.int64))[:, None] * IN + ri[None, :], acc)
