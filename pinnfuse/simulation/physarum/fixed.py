"""Whole-number geometry and random numbers: the same bits from every backend, device and order of work.

Positions are int32 in 1/65536 of a cell and headings in 1/65536 of a turn, so moving, turning and wrapping are exact
integer arithmetic. Directions are a table in all but name: sine and cosine of each of the 65,536 angles are integers in
1/32768, computed by a polynomial in integers (at most 1.8 units, 5.4e-5, from the true sine; exact on the axes). No
floating-point rounding, contraction or library function is involved, so nothing can differ between CPU, card, torch and
Triton. `kernels/physarum/arithmetic.py` holds the same formulas.

Random numbers are Philox-4x32-10 (Salmon, Moraes, Dror, Shaw: Parallel random numbers: as easy as 1, 2, 3, SC 2011):
a function of seed, agent and step, with no state to carry.
"""

from __future__ import annotations

import torch
from torch import Tensor

CELL = 1 << 16
"""Units of position in a cell."""
TURN = 1 << 16
"""Units of heading in a full turn."""
UNIT = 1 << 15
"""Sine and cosine of 1."""
LARGEST_SIDE = 1 << 14
"""Cells a side: a position and a displacement of one side each stay below 2^31 together."""
SINE = (51470, 21162, 2602, 142)
"""sin(pi z / 2) = z (c0 - z^2 (c1 - z^2 (c2 - z^2 c3))), in 1/32768; least squares, rounded."""

MOTION, PLACE, SPREAD, PICK = range(4)
"""Streams of random numbers: every step, where agents start, jitter of the start, a pick among pixels."""

_LOW = 0xFFFFFFFF


def sine(angle: Tensor) -> Tensor:
    """32768 sin(2 pi angle / 65536), integer; angle of any sign."""
    signed = ((angle + TURN // 2) & (TURN - 1)) - TURN // 2
    size = signed.abs()
    z = torch.minimum(size, TURN // 2 - size) << 1
    square = (z * z + 16384) >> 15
    c0, c1, c2, c3 = SINE
    inner = c2 - ((square * c3 + 16384) >> 15)
    inner = c1 - ((square * inner + 16384) >> 15)
    inner = c0 - ((square * inner + 16384) >> 15)
    value = ((z * inner + 16384) >> 15).clamp(max=UNIT)
    return torch.where(signed < 0, -value, value)


def cosine(angle: Tensor) -> Tensor:
    """32768 cos(2 pi angle / 65536), integer."""
    return sine(angle + TURN // 4)


def along(distance: Tensor, direction: Tensor) -> Tensor:
    """distance x direction / 32768, rounded; what a step of `distance` adds to a coordinate."""
    return ((distance.long() * direction + 16384) >> 15).int()


def wrap(value: Tensor, length: int) -> Tensor:
    """Onto [0, length) for values at most one length outside; a comparison, since C's % keeps the sign."""
    value = torch.where(value < 0, value + length, value)
    return torch.where(value >= length, value - length, value)


def philox(seed: Tensor, counter: Tensor, step: Tensor, stream: int) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Four words of 32 random bits as int64 in [0, 2^32).

    Args:
        seed: int64 scalar tensor: the key.
        counter: int64 [A] in [0, 2^32): the agent.
        step: int64 scalar tensor.
        stream: which use.
    """
    c0, c1 = counter, (step & _LOW).expand_as(counter)
    c2, c3 = ((step >> 32) & _LOW).expand_as(counter), torch.full_like(counter, stream)
    k0, k1 = seed & _LOW, (seed >> 32) & _LOW
    for _ in range(10):
        a, b = c0 * 0xD2511F53, c2 * 0xCD9E8D57  # modulo 2^64; the shifted sign is masked off
        c0, c1 = ((b >> 32) & _LOW) ^ c1 ^ k0, b & _LOW
        c2, c3 = ((a >> 32) & _LOW) ^ c3 ^ k1, a & _LOW
        k0, k1 = (k0 + 0x9E3779B9) & _LOW, (k1 + 0xBB67AE85) & _LOW
    return c0, c1, c2, c3


def below(word: Tensor, bound: Tensor | int) -> Tensor:
    """A random word as an integer in [0, bound), bound <= 2^31."""
    return (word * bound) >> 32
