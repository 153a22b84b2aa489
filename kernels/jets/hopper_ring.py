"""Gluon source for operands that pass through a ring of blocks in shared memory on their way to the tensor cores.

Copies run several blocks ahead, across tiles, so that products do not wait for memory, and no register holds an
operand. The weights' summed index follows the positions of the jets (see hopper_primitives). Backward, the jets of the
layer below come through the ring too where slopes follow from them.
"""

from __future__ import annotations

from pinnfuse.jets.space import ChannelSpace


def queue(count: int, transposed: bool, slopes: bool) -> str:
    """What goes through the ring of a tile: the operand's blocks, then (`slopes`) the blocks of the layer below."""
    below = """
        if kb == NB:
            p = a_ptr + k * channel + base + nb * 64"""
    return f"""
@gluon.jit
def {"fetch_backward" if transposed else "fetch_forward"}(
    ring, slot, q, tile, i_ptr, a_ptr, pieces, channel, part, tiles, nb, H: gl.constexpr, PARTS: gl.constexpr
):
    NB: gl.constexpr = H // 64
    ITEMS: gl.constexpr = {count} * {"(NB + 1)" if slopes else "NB"}
    if q >= ITEMS:
        q -= ITEMS
        tile += gl.num_programs(0) // NB
    if tile < tiles:
        base = tile.to(gl.int64) * 64 * H
        k = q % {count}
        kb = q // {count}
        p = i_ptr + k * channel + base + kb * 64{below if slopes else ""}
        fetch(ring, slot, p + pieces, part, PARTS)
    async_copy.commit_group()
"""


def fetch_next(transposed: bool, q: str) -> list[str]:
    """Block q of the ring is there, and another one on its way."""
    name = "fetch_backward" if transposed else "fetch_forward"
    return [
        "arrived(RING)",
        "old = slot - 1",
        "if old < 0:",
        "    old = RING - 1",
        f"{name}(ring, old, {q} + RING - 1, tile, i_ptr, a_ptr, to, channel, part, tiles, nb, H, PARTS)",
    ]


def products(space: ChannelSpace, name: str, transposed: bool, lean: bool) -> list[str]:
    """The sums over blocks; the following ones are on their way while the tensor cores work on this one."""
    scale = "kb * NB + nb" if transposed else "nb * NB + kb"
    count = len(space)
    lines = [f"{name}{k} = gl.zeros([64, 64], gl.float32, layout=product_layout(WARPS))" for k in range(count)]
    lines += ["for kb in range(NB):", f"    scale = gl.load(w_scale_ptr + {scale})"]
    lines += ["    none = opaque_zero(tile, kb)"] if lean else []
    slot = "slot + none" if lean else "slot"
    for k in range(count):
        lines += [
            f"    scale{k} = gl.load(i_scale_ptr + ({k} * tiles + tile) * NB + kb) * scale",
            *(f"    {line}" for line in fetch_next(transposed, f"kb * {count} + {k}")),
            f"    t = start_ring_product(ring, {slot}, wb, kb, NB, PARTS, {transposed}, WARPS)",
            "    t = finish_ring_product(t)",
            f"    {name}{k} += t * scale{k}",
            "    slot = step_ring(slot, RING)",
        ]
    return lines


PROLOGUE = """NB: gl.constexpr = H // 64
nb = gl.program_id(0) % NB
wb = load_weights(w_ptr, weight_stride, nb, H, PARTS, {transposed}, True, WARPS)
channel = tiles.to(gl.int64) * 64 * H
part = {channels} * channel
at = positions(H, WARPS, False)
to = pieces(H, WARPS)
ring = allocate_ring(RING, PARTS)
h = nb * 64 + gl.arange(0, 64, layout=gl.SliceLayout(0, product_layout(WARPS)))"""


def over_tiles(body: list[str], transposed: bool) -> list[str]:
    """The loop over the tiles of a program, the first blocks on their way before it."""
    name = "fetch_backward" if transposed else "fetch_forward"
    return [
        "tile = gl.program_id(0) // NB",
        "for ahead in gl.static_range(RING - 1):",
        f"    {name}(ring, ahead, ahead, tile, i_ptr, a_ptr, to, channel, part, tiles, nb, H, PARTS)",
        "slot = 0",
        "for tile in range(gl.program_id(0) // NB, tiles, gl.num_programs(0) // NB):",
        "    base = tile.to(gl.int64) * 64 * H",
        *(f"    {line}" for line in body),
    ]
