r"""Building blocks of the Hopper kernels, in Gluon, with layouts chosen by hand.

Jets go from memory to the tensor cores and back without passing through shared memory. A wgmma accumulator and a wgmma
register operand of 64 columns hold the same entries in the same thread: of a row, thread q of four has the columns
32 c + 8 j + 2 q + e (c < 2, j < 4, e < 2). Blocks of 64 units are therefore stored with that unit at position
32 c + 8 q + 2 j + e: a thread moves its numbers in 16-byte pieces, and four threads fill whole sectors.
"""

from __future__ import annotations

from triton.experimental import gluon
from triton.experimental.gluon import language as gl
from triton.experimental.gluon.language.nvidia.ampere import async_copy
from triton.experimental.gluon.language.nvidia.hopper import (
    fence_async_shared,
    warpgroup_mma,
    warpgroup_mma_init,
    warpgroup_mma_wait,
)

from pinnfuse.kernels.jets import primitives

# names that changed between Triton 3.6 and 3.9
copy_async = getattr(async_copy, "async_load", None) or async_copy.async_copy_global_to_shared
barrier = getattr(gl, "barrier", None) or gl.thread_barrier

power_of_two = gluon.jit(primitives.power_of_two.fn)
tanh = gluon.jit(primitives.tanh.fn)
sigmoid = gluon.jit(primitives.sigmoid.fn)
softplus = gluon.jit(primitives.softplus.fn)
add_to = gluon.jit(primitives.add_to.fn)


@gluon.constexpr_function
def product_layout(warps):
    """A [64, 64] accumulator: one warpgroup has all columns, or two have half of them each."""
    return gl.NVMMADistributedLayout(version=[3, 0], warps_per_cta=[4, warps // 4], instr_shape=[16, 256 // warps, 16])


@gluon.constexpr_function
def shared_layout():
    """Of a [64, 64] block of halves in shared memory, as wgmma reads it."""
    return gl.NVMMASharedLayout.get_default_for([64, 64], gl.float16)


@gluon.constexpr_function
def copy_layout(warps):
    """Pieces of 16 bytes, whole rows of a block by 8 threads."""
    return gl.BlockedLayout([1, 8], [4, 8], [warps, 1], [1, 0])


@gluon.constexpr_function
def operand_layout(warps):
    return gl.DotOperandLayout(0, product_layout(warps), 2)


@gluon.constexpr_function
def memory_layout(warps, operand):
    """The entries of an accumulator, or of a left operand, in the order of memory."""
    half = [0, 32]
    return gl.DistributedLinearLayout(
        reg_bases=[[0, 1], [0, 2], [0, 4], [8, 0]] + ([half] if operand or warps == 4 else []),
        lane_bases=[[0, 8], [0, 16], [1, 0], [2, 0], [4, 0]],
        warp_bases=[[16, 0], [32, 0]] + ([[0, 0] if operand else half] if warps == 8 else []),
        block_bases=[],
        shape=[64, 64],
    )


@gluon.jit
def positions(stride, WARPS: gl.constexpr, OPERAND: gl.constexpr):
    """Offsets of a [64, 64] block whose rows are `stride` apart, in memory_layout."""
    layout: gl.constexpr = memory_layout(WARPS, OPERAND)
    row = gl.arange(0, 64, layout=gl.SliceLayout(1, layout))
    column = gl.arange(0, 64, layout=gl.SliceLayout(0, layout))
    return row[:, None] * stride + column[None, :]


@gluon.jit
def to_memory(x, WARPS: gl.constexpr):
    x = x.reshape([64, 2, 4, 4, 2]).permute((0, 1, 3, 2, 4)).reshape([64, 64])
    return gl.convert_layout(x, memory_layout(WARPS, False), assert_trivial=True)


@gluon.jit
def from_memory(x, layout: gl.constexpr):
    x = x.reshape([64, 2, 4, 4, 2]).permute((0, 1, 3, 2, 4)).reshape([64, 64])
    return gl.convert_layout(x, layout, assert_trivial=True)


@gluon.jit
def split(x, m, PARTS: gl.constexpr):
    """Halves and inverse scale of a block whose largest magnitude is m; as primitives.put."""
    s, inverse = power_of_two(m)
    y = x * s
    if PARTS == 2:
        f = ((y.to(gl.int32, bitcast=True) + 4096) & -8192).to(gl.float32, bitcast=True)
        high = f.to(gl.float16)
        low = (y - f).to(gl.float16)
    else:
        high = y.to(gl.float16)
        low = high
    return high, low, inverse


@gluon.jit
def put(p, part_stride, scale_ptr, x, m, PARTS: gl.constexpr, WARPS: gl.constexpr):
    """Store a block as primitives.put; returns what `split` gives, as a left operand."""
    high, low, inverse = split(x, m, PARTS)
    gl.store(p, to_memory(high, WARPS))
    if PARTS == 2:
        gl.store(p + part_stride, to_memory(low, WARPS))
    gl.store(scale_ptr, inverse)
    return high, low, inverse


@gluon.jit
def put_block(p, part_stride, scale_ptr, x, PARTS: gl.constexpr, WARPS: gl.constexpr):
    """`put` with the block's own largest magnitude."""
    put(p, part_stride, scale_ptr, x, gl.max(gl.max(gl.abs(x), 1), 0), PARTS, WARPS)


@gluon.jit
def operand(x, WARPS: gl.constexpr):
    """An accumulator's numbers as a left operand: the same entries in the same threads (one warpgroup)."""
    return gl.convert_layout(x, operand_layout(WARPS), assert_trivial=True)


@gluon.jit
def load_all_weights(w_ptr, weight_stride, DEPTH: gl.constexpr, PARTS: gl.constexpr, WARPS: gl.constexpr):
    """Start the copy of the weights of all layers of 64 units to shared memory: [PARTS * DEPTH, 64, 64]."""
    shared: gl.constexpr = gl.NVMMASharedLayout.get_default_for([64, 64], gl.float16)
    blocked: gl.constexpr = gl.BlockedLayout([1, 8], [4, 8], [WARPS, 1], [1, 0])
    w = gl.allocate_shared_memory(gl.float16, [PARTS * DEPTH, 64, 64], shared)
    r = gl.arange(0, 64, layout=gl.SliceLayout(1, blocked))
    c = gl.arange(0, 64, layout=gl.SliceLayout(0, blocked))
    p = w_ptr + r[:, None] * 64 + c[None, :]
    for i in gl.static_range(PARTS * DEPTH):
        copy_async(w.index(i), p + (i // DEPTH) * weight_stride + (i % DEPTH) * 4096)
    async_copy.commit_group()
    return w


@gluon.jit
def get(p, part_stride, scale_ptr, PARTS: gl.constexpr, WARPS: gl.constexpr):
    """As primitives.get."""
    x = gl.load(p).to(gl.float32)
    if PARTS == 2:
        x += gl.load(p + part_stride).to(gl.float32)
    return from_memory(x, product_layout(WARPS)) * gl.load(scale_ptr)


@gluon.jit
def load_weights(
    w_ptr, weight_stride, nb, H: gl.constexpr, PARTS: gl.constexpr, TRANSPOSED: gl.constexpr, RING: gl.constexpr,
    WARPS: gl.constexpr,
):  # fmt: skip
    """Start the copy of one column of blocks to shared memory: [PARTS * H / 64, 64, 64], high halves first.

    RING: the summed index runs over positions, as in the ring's blocks: `w_ptr` has its columns so; rows are taken so.
    """
    KB: gl.constexpr = H // 64
    blocked: gl.constexpr = copy_layout(WARPS)
    w = gl.allocate_shared_memory(gl.float16, [PARTS * KB, 64, 64], shared_layout())
    r = gl.arange(0, 64, layout=gl.SliceLayout(1, blocked))
    c = gl.arange(0, 64, layout=gl.SliceLayout(0, blocked))
    for i in gl.static_range(PARTS * KB):
        if TRANSPOSED:  # rows are outputs, the summed index of the backward product
            p = w_ptr + ((i % KB) * 64 + (unit_at(r) if RING else r))[:, None] * H + (nb * 64 + c)[None, :]
        else:
            p = w_ptr + (nb * 64 + r)[:, None] * H + ((i % KB) * 64 + c)[None, :]
        copy_async(w.index(i), p + (i // KB) * weight_stride)
    async_copy.commit_group()
    return w


@gluon.jit
def opaque_zero(tile, i):
    """0, which the compiler takes for a number that changes: else descriptors of wgmma leave loops, and are spilled."""
    return (tile * 64 + i * 65537) >> 31


@gluon.jit
def unit_at(r):
    """The unit at position r of its block of 64."""
    return r // 32 * 32 + (r % 8) // 2 * 8 + (r % 32) // 8 * 2 + r % 2


@gluon.jit
def allocate_ring(RING: gl.constexpr, PARTS: gl.constexpr):
    """Shared memory for RING blocks that are on their way."""
    return gl.allocate_shared_memory(gl.float16, [RING * PARTS, 64, 64], shared_layout())


@gluon.jit
def pieces(stride, WARPS: gl.constexpr):
    """Offsets of a [64, 64] block whose rows are `stride` apart, in the order of copies."""
    blocked: gl.constexpr = copy_layout(WARPS)
    row = gl.arange(0, 64, layout=gl.SliceLayout(1, blocked))
    column = gl.arange(0, 64, layout=gl.SliceLayout(0, blocked))
    return row[:, None] * stride + column[None, :]


@gluon.jit
def fetch(ring, slot, p, part_stride, PARTS: gl.constexpr):
    """Start the copy of a block to a slot of the ring; `p` points to its high halves."""
    copy_async(ring.index(slot * PARTS), p)
    if PARTS == 2:
        copy_async(ring.index(slot * PARTS + 1), p + part_stride)


@gluon.jit
def arrived(RING: gl.constexpr):
    """Wait for the oldest block on its way; after it every warp has also left the block before."""
    async_copy.wait_group(RING - 2)
    fence_async_shared()
    barrier()


@gluon.jit
def step_ring(slot, RING: gl.constexpr):
    following = slot + 1
    if following == RING:
        following = 0
    return following


@gluon.jit
def start_ring_product(
    ring, slot, w, kb, KB: gl.constexpr, PARTS: gl.constexpr, TRANSPOSED: gl.constexpr, WARPS: gl.constexpr
):
    """As start_product, of a block in the ring."""
    wh = block(w, kb, TRANSPOSED)
    ah = ring.index(slot * PARTS)
    t = warpgroup_mma_init(gl.zeros([64, 64], gl.float32, layout=product_layout(WARPS)))
    if PARTS == 2:
        al = ring.index(slot * PARTS + 1)
        wl = block(w, KB + kb, TRANSPOSED)
        t = warpgroup_mma(al, wh, t, use_acc=False, is_async=True)
        t = warpgroup_mma(ah, wl, t, is_async=True)
        t = warpgroup_mma(ah, wh, t, is_async=True)
    else:
        t = warpgroup_mma(ah, wh, t, use_acc=False, is_async=True)
    return t


@gluon.jit
def finish_ring_product(t):
    return warpgroup_mma_wait(0, deps=[t])


@gluon.jit
def get_from_ring(ring, slot, scale, PARTS: gl.constexpr, WARPS: gl.constexpr):
    """As get."""
    x = ring.index(slot * PARTS).load(memory_layout(WARPS, False)).to(gl.float32)
    if PARTS == 2:
        x += ring.index(slot * PARTS + 1).load(memory_layout(WARPS, False)).to(gl.float32)
    return from_memory(x, product_layout(WARPS)) * scale


@gluon.jit
def keep(blocks, k, x, m, p, STORE: gl.constexpr, PARTS: gl.constexpr, WARPS: gl.constexpr):
    """Put a block of accumulators into shared memory as channel k, and with STORE into memory; its inverse scale."""
    high, low, inverse = split(x, m, PARTS)
    blocks.index(k * PARTS).store(high)
    if STORE:
        gl.store(p, to_memory(high, WARPS))
    if PARTS == 2:
        blocks.index(k * PARTS + 1).store(low)
        if STORE:
            gl.store(p + 4096, to_memory(low, WARPS))
    return inverse


@gluon.jit
def fetch_all(blocks, p, CHANNELS: gl.constexpr, PARTS: gl.constexpr):
    """Start the copy of all channels that `keep` stored, one after another, from `p`."""
    for i in gl.static_range(CHANNELS * PARTS):
        copy_async(blocks.index(i), p + i * 4096)
    async_copy.commit_group()


@gluon.jit
def start_outer_product(z, a, k, PARTS: gl.constexpr, WARPS: gl.constexpr):
    """Start z^T a of channel k, summed over the rows; units of `a` stand at their positions."""
    zh = z.index(k * PARTS).permute((1, 0))
    ah = a.index(k * PARTS)
    t = warpgroup_mma_init(gl.zeros([64, 64], gl.float32, layout=product_layout(WARPS)))
    if PARTS == 2:
        zl = z.index(k * PARTS + 1).permute((1, 0))
        al = a.index(k * PARTS + 1)
        t = warpgroup_mma(zl, ah, t, use_acc=False, is_async=True)
        t = warpgroup_mma(zh, al, t, is_async=True)
        t = warpgroup_mma(zh, ah, t, is_async=True)
    else:
        t = warpgroup_mma(zh, ah, t, use_acc=False, is_async=True)
    return t


@gluon.jit
def weights_ready():
    async_copy.wait_group(0)
    fence_async_shared()
    barrier()


@gluon.jit
def block(w, i, TRANSPOSED: gl.constexpr):
    if TRANSPOSED:
        return w.index(i)
    else:
        return w.index(i).permute((1, 0))


@gluon.jit
def load_operand(p, part_stride, PARTS: gl.constexpr, WARPS: gl.constexpr):
    """High and low halves of a block, in the layout of a left operand."""
    high = from_memory(gl.load(p), operand_layout(WARPS))
    low = high
    if PARTS == 2:
        low = from_memory(gl.load(p + part_stride), operand_layout(WARPS))
    return high, low


@gluon.jit
def start_product(ah, al, w, kb, KB: gl.constexpr, PARTS: gl.constexpr, TRANSPOSED: gl.constexpr, WARPS: gl.constexpr):
    """Start a block times block kb of w, from a zero accumulator, small products first."""
    wh = block(w, kb, TRANSPOSED)
    t = warpgroup_mma_init(gl.zeros([64, 64], gl.float32, layout=product_layout(WARPS)))
    if PARTS == 2:
        wl = block(w, KB + kb, TRANSPOSED)
        t = warpgroup_mma(al, wh, t, use_acc=False, is_async=True)
        t = warpgroup_mma(ah, wl, t, is_async=True)
        t = warpgroup_mma(ah, wh, t, is_async=True)
    else:
        t = warpgroup_mma(ah, wh, t, use_acc=False, is_async=True)
    return t


@gluon.jit
def finish_product(t, ah, al, PARTS: gl.constexpr):
    if PARTS == 2:
        t, ah, al = warpgroup_mma_wait(0, deps=[t, ah, al])
    else:
        t, ah = warpgroup_mma_wait(0, deps=[t, ah])
    return t
