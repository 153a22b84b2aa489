r"""Building blocks of the generated jet kernels: numbers as pairs of halves, products of such pairs, sums, weights.

A float32 block x is carried as two float16 blocks, `x s = high + low` up to 2^-22 relative, with one power of two s per
block that brings its largest entry to [2^13, 2^14): no overflow, and what is lost to the narrow exponent stays under
2^-38 of that entry. A product takes three tensor-core products, `low high + high low + high high`, at the rate of half
precision, twice that of tf32. Each K block starts from a zero accumulator and is added in float32: the tensor cores
truncate when they accumulate, and a long chain loses a digit.

`PARTS` is 2 for that, 1 for the high half alone (11 bits, what tf32 keeps), 0 for plain float64.
"""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def power_of_two(m):
    """(s, 1/s) with m s in [2^13, 2^14) for m >= 0; zero and denormals count as the smallest normal numbers."""
    e = (m.to(tl.int32, bitcast=True) >> 23) & 0xFF
    e = tl.minimum(tl.maximum(e, 14), 254)
    return ((267 - e) << 23).to(tl.float32, bitcast=True), ((e - 13) << 23).to(tl.float32, bitcast=True)


@triton.jit
def put(p, part_stride, scale_ptr, x, m, PARTS: tl.constexpr):
    """Store a block whose largest magnitude is m: its halves at p and p + part_stride, its inverse scale."""
    s, inverse = power_of_two(m)
    y = x * s
    if PARTS == 2:
        # rounded to 11 bits by integer arithmetic: exact to subtract, without a conversion back from half
        f = ((y.to(tl.int32, bitcast=True) + 4096) & -8192).to(tl.float32, bitcast=True)
        tl.store(p, f.to(tl.float16))
        tl.store(p + part_stride, (y - f).to(tl.float16))
    else:
        tl.store(p, y.to(tl.float16))
    tl.store(scale_ptr, inverse)


@triton.jit
def get(p, part_stride, scale_ptr, PARTS: tl.constexpr):
    """Load a block stored by `put`, as float32."""
    if PARTS == 0:
        return tl.load(p)
    else:
        x = tl.load(p).to(tl.float32)
        if PARTS == 2:
            x += tl.load(p + part_stride).to(tl.float32)
        return x * tl.load(scale_ptr)


@triton.jit
def pair_dot(ah, al, bh, bl, PARTS: tl.constexpr):
    """a b of one K block from a zero accumulator, small products first."""
    if PARTS == 2:
        t = tl.dot(al, bh)
        t = tl.dot(ah, bl, t)
        t = tl.dot(ah, bh, t)
    elif PARTS == 1:
        t = tl.dot(ah, bh)
    else:
        t = tl.dot(ah, bh, input_precision="ieee", out_dtype=ah.dtype)
    return t


@triton.jit
def accumulate(acc, p, part_stride, scale_ptr, weight_scale, bh, bl, PARTS: tl.constexpr):
    """acc + (block at p) b."""
    ah = tl.load(p)
    al = ah
    if PARTS == 2:
        al = tl.load(p + part_stride)
    t = pair_dot(ah, al, bh, bl, PARTS)
    if PARTS > 0:
        t *= tl.load(scale_ptr) * weight_scale  # also keeps the compiler from chaining the accumulators
    return acc + t


@triton.jit
def product(
    i_ptr, i_scale_ptr, part_stride, w_ptr, w_scale_ptr, weight_stride, row, nb,
    H: tl.constexpr, ROWS: tl.constexpr, BLOCK: tl.constexpr, STEP: tl.constexpr, PARTS: tl.constexpr,
    TRANSPOSED: tl.constexpr,
):  # fmt: skip
    """Block nb of one channel times the weights (or their transpose); `i_scale_ptr` is at the channel and tile."""
    NB: tl.constexpr = H // BLOCK
    h = nb * BLOCK + tl.arange(0, BLOCK)
    acc = tl.zeros([ROWS, BLOCK], tl.float32 if PARTS > 0 else tl.float64)
    for kk in range(0, H, STEP):
        k = kk + tl.arange(0, STEP)
        kb = kk // BLOCK
        pw = w_ptr + k[:, None] * (H if TRANSPOSED else 1) + h[None, :] * (1 if TRANSPOSED else H)
        wh = tl.load(pw)
        wl = wh
        if PARTS == 2:
            wl = tl.load(pw + weight_stride)
        scale = 1.0
        if PARTS > 0:
            scale = tl.load(w_scale_ptr + (kb * NB + nb if TRANSPOSED else nb * NB + kb))
        pi = i_ptr + row[:, None].to(tl.int64) * H + k[None, :]
        acc = accumulate(acc, pi, part_stride, i_scale_ptr + kb, scale, wh, wl, PARTS)
    return acc


@triton.jit
def put_block(p, part_stride, scale_ptr, x, PARTS: tl.constexpr):
    """`put` with the block's own largest magnitude; plain float64 without halves."""
    if PARTS > 0:
        put(p, part_stride, scale_ptr, x, tl.max(tl.max(tl.abs(x), 1), 0), PARTS)
    else:
        tl.store(p, x)


@triton.jit
def units(first, BLOCK: tl.constexpr, PERMUTED: tl.constexpr):
    """Which units lie at the positions `first` .. `first + BLOCK` of the jets (see hopper_primitives)."""
    r = tl.arange(0, BLOCK)
    if PERMUTED:
        return first + r // 32 * 32 + (r % 8) // 2 * 8 + (r % 32) // 8 * 2 + r % 2
    else:
        return first + r


@triton.jit
def add_to(p, x, again):
    """Store a partial sum, or add to it in a later chunk of points (`again` != 0)."""
    if again != 0:
        x += tl.load(p)
    tl.store(p, x)


@triton.jit
def tanh(x):
    e = tl.exp(-2.0 * tl.abs(x))
    t = (1.0 - e) / (1.0 + e)
    t = tl.where(x >= 0, t, -t)
    q = x * x
    # near zero the quotient cancels; the odd series up to x^9 is exact to rounding below these bounds
    series = x + x * q * (-1.0 / 3.0 + q * (2.0 / 15.0 + q * (-17.0 / 315.0 + q * (62.0 / 2835.0))))
    if x.dtype == tl.float64:
        return tl.where(q < 1e-4, series, t)
    else:
        return tl.where(q < 0.0625, series, t)


@triton.jit
def sigmoid(x):
    e = tl.exp(-tl.abs(x))
    return tl.where(x >= 0, 1.0, e) / (1.0 + e)


@triton.jit
def softplus(x):
    e = tl.exp(-tl.abs(x))
    # log(1 + e) by its series where 1 + e would round away the digits of e
    series = e * (1.0 - e * (0.5 - e * (1.0 / 3.0 - e * 0.25)))
    if x.dtype == tl.float64:
        return tl.maximum(x, 0.0) + tl.where(e < 1e-4, series, tl.log(1.0 + e))
    else:
        return tl.maximum(x, 0.0) + tl.where(e < 0.015625, series, tl.log(1.0 + e))


@triton.jit(do_not_specialize=["layers", "scale_stride"])
def split_weights_kernel(
    w_ptr,  # [L, H, H] weights, rows are outputs
    halves_ptr,  # [COPIES, PARTS, L, H, H] out; the second copy has its columns at their positions (see `units`)
    scale_ptr,  # [COPIES, L, scale_stride] out: inverse scales of a layer's [H / BLOCK, H / BLOCK] blocks
    layer_stride,  # L H H
    layers,
    scale_stride,
    H: tl.constexpr,
    BLOCK: tl.constexpr,
    PARTS: tl.constexpr,
):
    pid = tl.program_id(0)
    NB: tl.constexpr = H // BLOCK
    copy = pid // (NB * NB * layers)
    layer = pid // (NB * NB) % layers
    r = tl.arange(0, BLOCK)
    c = tl.where(copy == 1, units(0, BLOCK, True), r)
    row = layer * H * H + (((pid // NB) % NB) * BLOCK + r)[:, None] * H + (pid % NB) * BLOCK
    w = tl.load(w_ptr + row + c[None, :])
    halves_ptr += copy.to(tl.int64) * PARTS * layer_stride + row
    scale_ptr += pid // (NB * NB) * scale_stride + pid % (NB * NB)
    put(halves_ptr + r[None, :], layer_stride, scale_ptr, w, tl.max(tl.max(tl.abs(w), 1), 0), PARTS)


@triton.jit(do_not_specialize=["programs", "columns"])
def sum_rows_kernel(x_ptr, out_ptr, programs, columns, COLUMNS: tl.constexpr, ROWS: tl.constexpr):
    """out[c] = sum over rows of x [programs, columns], in a fixed order."""
    c = tl.program_id(0) * COLUMNS + tl.arange(0, COLUMNS)
    acc = tl.zeros([COLUMNS], out_ptr.dtype.element_ty)
    for first in range(0, programs, ROWS):
        r = first + tl.arange(0, ROWS)
        mask = (r < programs)[:, None] & (c < columns)[None, :]
        acc += tl.sum(tl.load(x_ptr + r[:, None].to(tl.int64) * columns + c[None, :], mask=mask, other=0.0), 0)
    tl.store(out_ptr + c, acc, mask=c < columns)


@triton.jit(do_not_specialize=["tiles", "layers", "again", "scale_stride", "split"])
def weight_gradient_kernel(
    a_ptr,  # [layers, PARTS, CHANNELS, tiles ROWS, H] inputs of the layers
    a_scale_ptr,  # [layers, CHANNELS, tiles, H / BLOCK]
    z_ptr,  # the same for the adjoints of the layers' outputs
    z_scale_ptr,
    dw_ptr,  # [split, layers, H, H] out: partial sums
    tiles,
    layers,
    again,
    layer_stride,
    scale_stride,
    split,
    H: tl.constexpr,
    ROWS: tl.constexpr,
    BLOCK: tl.constexpr,
    BO: tl.constexpr,
    BI: tl.constexpr,
    CHANNELS: tl.constexpr,
    PARTS: tl.constexpr,
    PERMUTED: tl.constexpr,
):
    """dW = sum over points and channels of zbar^T a; a program (layer, block, part) takes every `split`-th tile."""
    pid = tl.program_id(0)
    NB: tl.constexpr = H // BLOCK
    NI: tl.constexpr = H // BI
    NO: tl.constexpr = H // BO
    part = pid % split
    block = pid // split
    ib = block % NI
    ob = (block // NI) % NO
    layer = block // (NI * NO)
    ri = ib * BI + tl.arange(0, BI)
    ro = ob * BO + tl.arange(0, BO)
    rows = tl.arange(0, ROWS)
    a_ptr += layer.to(tl.int64) * layer_stride
    z_ptr += layer.to(tl.int64) * layer_stride
    a_scale_ptr += layer.to(tl.int64) * scale_stride
    z_scale_ptr += layer.to(tl.int64) * scale_stride
    part_stride = CHANNELS * tiles.to(tl.int64) * ROWS * H
    acc = tl.zeros([BO, BI], dw_ptr.dtype.element_ty)
    count = (tiles - part + split - 1) // split
    for j in range(0, count * CHANNELS):
        tile = part + (j // CHANNELS) * split
        at = (j % CHANNELS) * tiles + tile
        first = at.to(tl.int64) * ROWS * H
        pa = a_ptr + first + rows[:, None] * H + ri[None, :]
        pz = z_ptr + first + rows[:, None] * H + ro[None, :]
        ah = tl.load(pa)
        zh = tl.load(pz)
        al = ah
        zl = zh
        if PARTS == 2:
            al = tl.load(pa + part_stride)
            zl = tl.load(pz + part_stride)
        t = pair_dot(tl.trans(zh), tl.trans(zl), ah, al, PARTS)
        if PARTS == 0:
            acc += t
        elif BI == BLOCK and BO == BLOCK:
            acc += t * (tl.load(a_scale_ptr + at * NB + ib) * tl.load(z_scale_ptr + at * NB + ob))
        else:
            sz = tl.load(z_scale_ptr + at * NB + ro // BLOCK)
            sa = tl.load(a_scale_ptr + at * NB + ri // BLOCK)
            acc += t * sz[:, None] * sa[None, :]
    uo = units(ob * BO, BO, PERMUTED)
    ui = units(ib * BI, BI, PERMUTED)
    p = dw_ptr + (part.to(tl.int64) * layers + layer) * H * H + uo[:, None] * H + ui[None, :]
    add_to(p, acc, again)
