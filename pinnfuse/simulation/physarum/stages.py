"""The four stages of a step in plain torch: the reference, on any device.

Each takes a `Colony` and works in place; `kernels/physarum` holds the same functions in Triton. Sums and products of
the field are written in a fixed order, one rounding each, so that both give the same bits.
"""

from __future__ import annotations

import torch
from torch import Tensor

from pinnfuse.simulation.physarum.colony import Colony
from pinnfuse.simulation.physarum.fixed import CELL, MOTION, TURN, along, below, cosine, philox, sine, wrap
from pinnfuse.simulation.physarum.parameters import INTEGERS, REALS

HALF = 65504.0
"""Largest float16: a field of that type saturates."""


def sense(c: Colony) -> Tensor:
    """What each agent reads to its left, ahead and to its right, [3, A]: sum over species of attraction x field."""
    angle, distance = _integer(c, "sensor_angle"), _integer(c, "sensor_distance")
    found = []
    for side in (-1, 0, 1):
        direction = c.heading + side * angle
        x, y = c.x + along(distance, cosine(direction)), c.y + along(distance, sine(direction))
        found.append(_read(c, x, y))
    return torch.stack(found)


def steer_and_move(c: Colony, sensed: Tensor) -> None:
    """New headings, then new positions. An agent whose way is blocked stays and turns to a random heading."""
    left, ahead, right = sensed
    side, shake, other, _ = philox(c.clock[1], c.identity.long(), c.clock[0], MOTION)
    turn = torch.where(_integer(c, "steering") == 0, _jones(left, ahead, right, side), _argmax(c, sensed, side))
    jitter = _integer(c, "jitter").long()
    heading = c.heading + turn * _integer(c, "turn_angle") + (below(shake, 2 * jitter + 1) - jitter).int()
    heading = heading & (TURN - 1)
    speed, (height, width) = _integer(c, "speed"), (n * CELL for n in c.shape)
    x, y = c.x + along(speed, cosine(heading)), c.y + along(speed, sine(heading))
    blocked = torch.zeros_like(x, dtype=torch.bool)
    if c.torus:
        x, y = wrap(x, width), wrap(y, height)
    else:
        blocked = (x < 0) | (x >= width) | (y < 0) | (y >= height)
    if c.obstacles is not None:
        there = _cell(c, torch.where(blocked, c.x, x) >> 16, torch.where(blocked, c.y, y) >> 16)
        blocked = blocked | (c.obstacles.view(-1)[there] != 0)
    c.heading.copy_(torch.where(blocked, (other & (TURN - 1)).int(), heading))
    c.x.copy_(torch.where(blocked, c.x, x))
    c.y.copy_(torch.where(blocked, c.y, y))


def deposit(c: Colony) -> None:
    """Each agent adds itself (or, as "float", its deposit) to the trail of its species where it stands."""
    trail = c.trails[c.now]
    cell = _cell(c, c.x >> 16, c.y >> 16) + c.kind.long() * (c.rows * c.shape[1])
    amount = torch.ones_like(c.x) if trail.dtype == torch.int32 else _real(c, "deposit").to(trail.dtype)[c.kind]
    if c.slots:
        amount = amount * (c.identity >= 0)
    trail.view(-1).index_add_(0, cell, amount)


def diffuse_and_decay(c: Colony) -> None:
    """The field after a step, from the field, the deposits and the food; clears the other trail; the clock ticks."""
    dtype = c.accumulate
    f, trail = c.fields[c.now].to(dtype), c.trails[c.now]
    deposited = trail.to(dtype)
    if trail.dtype == torch.int32:
        deposited = deposited * _real(c, "deposit")[:, None, None]
    f = f + deposited
    if c.food is not None:
        f = f + c.food.to(dtype) * _real(c, "food")[:, None, None]
    west, east = _neighbours(f, 2, c.torus)
    line = (west + f) + east
    north, south = _neighbours(line, 1, c.torus)
    mean = ((north + line) + south) * (1 / 9)
    f = _real(c, "keep")[:, None, None] * (f + _real(c, "diffusion")[:, None, None] * (mean - f))
    if c.obstacles is not None:
        f = torch.where(c.obstacles != 0, 0.0, f)
    if c.fields[0].dtype == torch.float16:
        f = f.clamp(-HALF, HALF)
    c.fields[1 - c.now].copy_(f)
    c.trails[1 - c.now].zero_()
    c.clock[:1] += 1


def _integer(c: Colony, name: str) -> Tensor:
    """A parameter of each agent: [A], or [1] for one species."""
    column = c.integers[:, INTEGERS.index(name)]
    return column if c.species == 1 else column[c.kind]


def _real(c: Colony, name: str) -> Tensor:
    return c.reals[:, REALS.index(name)]


def _cell(c: Colony, column: Tensor, row: Tensor) -> Tensor:
    """Offset in one species' field; the field holds `rows` rows of the torus from `first` on."""
    row = row - c.first
    row = torch.where(row < 0, row + c.shape[0], row)
    return row.long() * c.shape[1] + column


def _read(c: Colony, x: Tensor, y: Tensor) -> Tensor:
    """The attraction-weighted field at positions up to one side outside: around the torus, or of the nearest cell."""
    height, width = c.shape
    fit = wrap if c.torus else (lambda value, length: value.clamp(0, length - 1))
    x, y = fit(x, width * CELL), fit(y, height * CELL)
    if not c.bilinear:
        return _weighted(c, _cell(c, x >> 16, y >> 16))
    x, y = x - CELL // 2, y - CELL // 2  # cell values stand in the middle of cells
    fx, fy = ((v & (CELL - 1)).to(c.accumulate) * (1 / CELL) for v in (x, y))
    columns = [fit((x >> 16) + k, width) for k in (0, 1)]
    rows = [fit((y >> 16) + k, height) for k in (0, 1)]
    upper, lower = ([_weighted(c, _cell(c, column, row)) for column in columns] for row in rows)
    top, bottom = (a + (b - a) * fx for a, b in (upper, lower))
    return top + (bottom - top) * fy


def _weighted(c: Colony, cell: Tensor) -> Tensor:
    field = c.fields[c.now].view(c.species, -1)
    total = None
    for other in range(c.species):
        weight = c.reals[:, len(REALS) + other]
        term = (weight if c.species == 1 else weight[c.kind]) * field[other][cell].to(c.accumulate)
        total = term if total is None else total + term
    assert total is not None
    return total


def _jones(left: Tensor, ahead: Tensor, right: Tensor, word: Tensor) -> Tensor:
    """-1, 0 or 1: straight at a maximum, a random side at a minimum, else the higher side; straight for equals."""
    coin = ((word >> 31) << 1).int() - 1
    side = (right > left).int() - (left > right).int()
    side = torch.where((ahead < left) & (ahead < right), coin, side)
    return torch.where((ahead > left) & (ahead > right), 0, side)


def _argmax(c: Colony, sensed: Tensor, word: Tensor) -> Tensor:
    """-1, 0 or 1: the highest of the three; the k-th of those that tie, or straight if it is one of them."""
    best = sensed.amax(dim=0)
    left, ahead, right = (sensed == best).int()
    pick = below(word, (left + ahead + right).long()).int()
    side = torch.where(pick < left, -1, torch.where(pick < left + ahead, 0, 1))
    return torch.where((_integer(c, "ties") == 0) & (ahead == 1), 0, side)


def _neighbours(f: Tensor, dim: int, torus: bool) -> tuple[Tensor, Tensor]:
    """f at i - 1 and i + 1 along `dim`; behind a wall stands the mirror image."""
    if torus:
        return f.roll(1, dim), f.roll(-1, dim)
    n = f.shape[dim]
    first, last = f.narrow(dim, 0, 1), f.narrow(dim, n - 1, 1)
    return torch.cat([first, f.narrow(dim, 0, n - 1)], dim), torch.cat([f.narrow(dim, 1, n - 1), last], dim)
