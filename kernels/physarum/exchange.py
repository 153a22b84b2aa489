"""What a band of a split colony sends to its neighbours and takes from them: one pass over the agents each way.

`pack_kernel` frees the slots of agents outside of the band (they are the neighbour's, who has them already) and copies
the agents near an edge into that edge's message; `unpack_kernel` puts the agents of a message into free slots, then
into new ones at the end. Slots and places in a message are given out by atomic counters, so their order differs from
run to run, which changes no bit: an agent's deeds depend on its number.
"""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit(do_not_specialize=["size", "above", "band", "upper", "lower", "drift", "upper_room", "lower_room"])
def pack_kernel(
    counters_ptr,                                       # [8] free, end, then sent, near, far of the upper, lower edge
    x_ptr, y_ptr, heading_ptr, identity_ptr, kind_ptr,  # [A] int32
    free_ptr,                                           # [A] out: free slots
    upper_ptr, lower_ptr,                               # [room, 4] out: x, y from the strip, kind and heading, number
    size, above, band, upper, lower, drift,             # slots; rows above the band, of it, of its two strips
    upper_room, lower_room,
    BLOCK: tl.constexpr,
):  # fmt: skip
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = (i < size) & (i < tl.load(counters_ptr + 1))
    identity = tl.load(identity_ptr + i, mask=mask, other=-1)
    y = tl.load(y_ptr + i, mask=mask, other=0)
    row = (y >> 16) - above
    own = mask & (identity >= 0) & (row >= 0) & (row < band)
    leaves = mask & (own == 0)
    place = _places(counters_ptr, leaves)
    tl.store(free_ptr + place, i, mask=leaves)
    tl.store(identity_ptr + i, tl.full((BLOCK,), -1, tl.int32), mask=leaves)
    up, down = own & (row < upper), own & (row >= band - lower)
    x = tl.load(x_ptr + i, mask=up | down, other=0)
    turned = (tl.load(kind_ptr + i, mask=up | down, other=0) << 16) | tl.load(heading_ptr + i, mask=up | down, other=0)
    base = above << 16
    _send(upper_ptr, counters_ptr + 2, up, upper_room, x, y - base, turned, identity)
    _send(lower_ptr, counters_ptr + 5, down, lower_room, x, y - base - ((band - lower) << 16), turned, identity)
    if upper > 0:
        _count(counters_ptr + 3, own & (row < upper + drift))
        _count(counters_ptr + 4, own & (row < drift))
    if lower > 0:
        _count(counters_ptr + 6, own & (row >= band - lower - drift))
        _count(counters_ptr + 7, own & (row >= band - drift))


@triton.jit(do_not_specialize=["room", "base"])
def unpack_kernel(
    records_ptr,                                        # [room, 4] as packed
    sent_ptr, before_ptr,                               # how many; how many free slots were filled before these
    counters_ptr, free_ptr,                             # as packed
    x_ptr, y_ptr, heading_ptr, identity_ptr, kind_ptr,  # [A] int32, out
    room, base,                                         # records; row where the strip begins
    BLOCK: tl.constexpr,
):  # fmt: skip
    j = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = j < tl.minimum(tl.load(sent_ptr), room)
    free, end = tl.load(counters_ptr), tl.load(counters_ptr + 1)
    place = tl.load(before_ptr) + j
    slot = tl.load(free_ptr + place, mask=mask & (place < free), other=0)
    slot = tl.where(place < free, slot, end + place - free)
    turned = tl.load(records_ptr + 4 * j + 2, mask=mask, other=0)
    tl.store(x_ptr + slot, tl.load(records_ptr + 4 * j, mask=mask, other=0), mask=mask)
    tl.store(y_ptr + slot, tl.load(records_ptr + 4 * j + 1, mask=mask, other=0) + (base << 16), mask=mask)
    tl.store(heading_ptr + slot, turned & 65535, mask=mask)
    tl.store(kind_ptr + slot, turned >> 16, mask=mask)
    tl.store(identity_ptr + slot, tl.load(records_ptr + 4 * j + 3, mask=mask, other=0), mask=mask)


@triton.jit
def _send(records_ptr, counter_ptr, chosen, room, x, y, turned, identity):
    place = _places(counter_ptr, chosen)
    chosen = chosen & (place < room)
    tl.store(records_ptr + 4 * place, x, mask=chosen)
    tl.store(records_ptr + 4 * place + 1, y, mask=chosen)
    tl.store(records_ptr + 4 * place + 2, turned, mask=chosen)
    tl.store(records_ptr + 4 * place + 3, identity, mask=chosen)


@triton.jit
def _places(counter_ptr, chosen):
    """Consecutive places for the chosen of this block, from a counter that all blocks share."""
    ones = chosen.to(tl.int32)
    total = tl.sum(ones, axis=0)
    start = tl.atomic_add(counter_ptr, total, mask=total > 0, sem="relaxed")
    return start + tl.cumsum(ones, axis=0) - 1


@triton.jit
def _count(counter_ptr, chosen):
    total = tl.sum(chosen.to(tl.int32), axis=0)
    tl.atomic_add(counter_ptr, total, mask=total > 0, sem="relaxed")
