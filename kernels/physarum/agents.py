"""Agents: sense, steer, move and deposit in one kernel, any part of it alone.

    s_k   = sum_t attraction[species, t] field[t, sensor k],   k = left, ahead, right
    turn  = rule(s_left, s_ahead, s_right, random bits)
    h    <- h + turn x turn angle + jitter,   (x, y) <- (x, y) + speed (cos h, sin h)
    trail[species, cell of (x, y)] += 1 (or the deposit)

Deposits go to a buffer of their own, which the diffusion adds to the field: no agent sees those of the same step, in
whatever order the agents run.
"""

from __future__ import annotations

import triton
import triton.language as tl

from pinnfuse.kernels.physarum.arithmetic import after_the_kernel_before, along, below, cell, fit, read, sine, words

COUNT = tl.constexpr(1)
TWO_STAGE = tl.constexpr(2)
FLOAT = tl.constexpr(3)
INTEGERS = tl.constexpr(7)  # columns of the integer table
REALS = tl.constexpr(4)  # of the real table, before the attractions
ROUNDS = tl.constexpr(32)
MISSES = tl.constexpr(4)


@triton.jit(do_not_specialize=["count", "height", "width", "first", "rows"])
def agent_sense_and_update_kernel(
    field_ptr,                                          # [S, rows, W]
    x_ptr, y_ptr, heading_ptr, identity_ptr, kind_ptr,  # [A] int32; the first three in and out
    integers_ptr, reals_ptr,                            # [S, 7] int32, [S, 4 + S] parameters
    clock_ptr,                                          # [2] step, seed
    obstacle_ptr,                                       # [rows, W] uint8
    sensed_ptr,                                         # [3, A] out if only sensing, in if only moving
    trail_ptr,                                          # [S, rows, W] deposits
    count, height, width, first, rows,
    SPECIES: tl.constexpr, TORUS: tl.constexpr, BILINEAR: tl.constexpr, OBSTACLES: tl.constexpr,
    SENSE: tl.constexpr, MOVE: tl.constexpr, DEPOSIT: tl.constexpr, WIDE: tl.constexpr, SLOTS: tl.constexpr,
    OVERLAP: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    after_the_kernel_before(OVERLAP)
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = i < count
    if SLOTS:  # a negative number marks an empty slot
        mask = mask & (tl.load(identity_ptr + i, mask=mask, other=-1) >= 0)
    x, y = tl.load(x_ptr + i, mask=mask, other=0), tl.load(y_ptr + i, mask=mask, other=0)
    heading = tl.load(heading_ptr + i, mask=mask, other=0)
    kind = 0
    if SPECIES > 1:
        kind = tl.load(kind_ptr + i, mask=mask, other=0)
    integers_ptr += kind * INTEGERS
    reals_ptr += kind * (REALS + SPECIES)
    size = rows.to(tl.int64) * width
    if SENSE:
        distance, angle = tl.load(integers_ptr), tl.load(integers_ptr + 2)
        left, ahead, right = heading - angle, heading, heading + angle
        a = x + along(distance, sine(left + 16384))
        b = x + along(distance, sine(ahead + 16384))
        c = x + along(distance, sine(right + 16384))
        d = y + along(distance, sine(left))
        e = y + along(distance, sine(ahead))
        f = y + along(distance, sine(right))
        reals = reals_ptr + REALS
        left = read(field_ptr, reals, a, d, height, width, first, size, mask, SPECIES, TORUS, BILINEAR)
        ahead = read(field_ptr, reals, b, e, height, width, first, size, mask, SPECIES, TORUS, BILINEAR)
        right = read(field_ptr, reals, c, f, height, width, first, size, mask, SPECIES, TORUS, BILINEAR)
        if not MOVE:
            tl.store(sensed_ptr + i, left, mask=mask)
            tl.store(sensed_ptr + count + i, ahead, mask=mask)
            tl.store(sensed_ptr + 2 * count + i, right, mask=mask)
    else:
        left = tl.load(sensed_ptr + i, mask=mask, other=0.0)
        ahead = tl.load(sensed_ptr + count + i, mask=mask, other=0.0)
        right = tl.load(sensed_ptr + 2 * count + i, mask=mask, other=0.0)
    if MOVE:
        identity = tl.load(identity_ptr + i, mask=mask, other=0)
        side, shake, other, _ = words(clock_ptr, identity)
        steering, ties = tl.load(integers_ptr + 5), tl.load(integers_ptr + 6)
        turn = tl.where(steering == 0, _jones(left, ahead, right, side), _argmax(left, ahead, right, side, ties))
        jitter = tl.load(integers_ptr + 4)
        new = heading + turn * tl.load(integers_ptr + 3) + below(shake, 2 * jitter + 1) - jitter
        new &= 65535
        speed = tl.load(integers_ptr + 1)
        to_x, to_y = x + along(speed, sine(new + 16384)), y + along(speed, sine(new))
        w, h = width << 16, height << 16
        blocked = i < 0
        if TORUS:
            to_x, to_y = fit(to_x, w, True), fit(to_y, h, True)
        else:
            blocked = (to_x < 0) | (to_x >= w) | (to_y < 0) | (to_y >= h)
            to_x, to_y = tl.where(blocked, x, to_x), tl.where(blocked, y, to_y)
        if OBSTACLES:
            there = cell(to_x >> 16, to_y >> 16, height, width, first)
            blocked |= tl.load(obstacle_ptr + there, mask=mask, other=0) != 0
        new = tl.where(blocked, (other & 65535).to(tl.int32), new)
        x, y = tl.where(blocked, x, to_x), tl.where(blocked, y, to_y)
        tl.store(heading_ptr + i, new, mask=mask)
        tl.store(x_ptr + i, x, mask=mask)
        tl.store(y_ptr + i, y, mask=mask)
    if DEPOSIT > 0:
        at = kind * size + cell(x >> 16, y >> 16, height, width, first)
        _deposit(trail_ptr, at, tl.load(reals_ptr), mask, DEPOSIT, WIDE, BLOCK)


@triton.jit(do_not_specialize=["count", "height", "width", "first", "rows"])
def pheromone_deposit_kernel(
    trail_ptr,              # [S, rows, W] in and out
    x_ptr, y_ptr, identity_ptr, kind_ptr,  # [A]
    reals_ptr,              # [S, 4 + S]
    count, height, width, first, rows,
    SPECIES: tl.constexpr, DEPOSIT: tl.constexpr, WIDE: tl.constexpr, SLOTS: tl.constexpr, OVERLAP: tl.constexpr,
    BLOCK: tl.constexpr,
):  # fmt: skip
    """The deposits alone: whole numbers (any order, same bits), the same summed within blocks first, or floats."""
    after_the_kernel_before(OVERLAP)
    i = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    mask = i < count
    if SLOTS:
        mask = mask & (tl.load(identity_ptr + i, mask=mask, other=-1) >= 0)
    x, y = tl.load(x_ptr + i, mask=mask, other=0), tl.load(y_ptr + i, mask=mask, other=0)
    kind = 0
    if SPECIES > 1:
        kind = tl.load(kind_ptr + i, mask=mask, other=0)
    at = kind * (rows.to(tl.int64) * width) + cell(x >> 16, y >> 16, height, width, first)
    _deposit(trail_ptr, at, tl.load(reals_ptr + kind * (REALS + SPECIES)), mask, DEPOSIT, WIDE, BLOCK)


@triton.jit
def _deposit(trail_ptr, at, amount, mask, DEPOSIT: tl.constexpr, WIDE: tl.constexpr, BLOCK: tl.constexpr):
    if DEPOSIT == FLOAT:
        tl.atomic_add(trail_ptr + at, amount, mask=mask, sem="relaxed")
    else:
        if DEPOSIT == TWO_STAGE:
            mask = _crowded(trail_ptr, at, mask, WIDE, BLOCK)
        tl.atomic_add(trail_ptr + at, 1, mask=mask, sem="relaxed")


@triton.jit
def _crowded(trail_ptr, at, mask, WIDE: tl.constexpr, BLOCK: tl.constexpr):
    """One addition for all agents of this block that share a cell, for the cells that are crowded; returns the others.

    A cell is taken from an agent drawn by its place in the block, so a crowded one is found soon; four draws without a
    crowd end the search, since additions to many different cells do not wait for each other.
    """
    lane = tl.arange(0, BLOCK)
    if not WIDE:
        at = at.to(tl.int32)  # half the work
    rest = mask.to(tl.int32)
    misses, turn = 0, 0
    while (misses < MISSES) & (turn < ROUNDS):
        ticket = lane ^ ((turn * 59) & (BLOCK - 1))
        drawn = tl.min(tl.where(rest != 0, ticket, BLOCK), axis=0)
        chosen = tl.max(tl.where(ticket == drawn, at, -1), axis=0)
        same = rest * (at == chosen).to(tl.int32)
        crowd = tl.sum(same, axis=0)
        tl.atomic_add(trail_ptr + chosen, crowd, mask=crowd > 0, sem="relaxed")
        rest -= same
        misses += (crowd < 4).to(tl.int32)
        turn += 1
    return rest != 0


@triton.jit
def _jones(left, ahead, right, word):
    """-1, 0 or 1: straight at a maximum, a random side at a minimum, else the higher side; straight for equals."""
    coin = ((word >> 31).to(tl.int32) << 1) - 1
    side = (right > left).to(tl.int32) - (left > right).to(tl.int32)
    side = tl.where((ahead < left) & (ahead < right), coin, side)
    return tl.where((ahead > left) & (ahead > right), 0, side)


@triton.jit
def _argmax(left, ahead, right, word, ties):
    """-1, 0 or 1: the highest; the k-th of those that tie, or straight if it is one of them."""
    best = tl.maximum(tl.maximum(left, ahead), right)
    a, b, c = (left == best).to(tl.int32), (ahead == best).to(tl.int32), (right == best).to(tl.int32)
    pick = below(word, a + b + c)
    side = tl.where(pick < a, -1, tl.where(pick < a + b, 0, 1))
    return tl.where((ties == 0) & (b == 1), 0, side)
