"""Tile sizes and warps of the kernels of a schedule, by number of channels and precision."""

from __future__ import annotations

from dataclasses import dataclass

from pinnfuse.kernels.jets.config import SHARED_KB


@dataclass(frozen=True)
class Tiles:
    """Jets lie in blocks of `rows` points and `block` units, with one scale each.

    Pointwise kernels take one block and have `warps`. Products take `product_rows` x `product_columns`, weight
    gradients `outer_block` squared; (warps, stages) of each.
    """

    rows: int = 32
    block: int = 64
    warps: int = 8
    product_rows: int = 128
    product_columns: int = 128
    product: tuple[int, int] = (8, 3)
    outer_block: int = 128
    outer: tuple[int, int] = (8, 3)


LOOPED = 6
"""Channels that a loop over tangents (looped_group.py) counts for: values, sums and one channel at a time."""


def tiles(width: int, channels: int, parts: int, capability: int) -> Tiles:
    """The tiles for hidden layers of up to `width` units.

    A pointwise kernel holds all channels of a block, of every value that it mixes, in registers: eight numbers of a
    block a thread for few channels, four or two for more. Measured on one H200: modified MLP of 256 units, 4 channels,
    7.05 ms (blocks of 64 units and 8 warps 7.74); plate, 11 channels, 8 warps 8.34 (16 warps 8.89).
    """
    if parts == 0:
        warps = 4 if channels <= 5 else 8
        return Tiles(32, 32, warps)
    if channels > 5:
        base = Tiles(block=32, warps=8 if channels <= 12 else 16)
    elif width <= 32:
        base = Tiles(rows=64, block=32)
    else:
        base = Tiles(block=32, warps=4)
    limit = SHARED_KB.get(capability, 99) * 1024 - 8192  # some is left for layout conversions
    product = (base.product_rows + base.product_columns) * base.block * 2 * parts
    outer = 2 * base.outer_block * base.rows * 2 * parts
    return Tiles(
        base.rows,
        base.block,
        base.warps,
        product=(8, max(1, min(3, limit // product))),
        outer=(8, max(1, min(4, limit // outer))),
    )
