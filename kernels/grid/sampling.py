"""What a kernel of `pinnfuse.grid.sample` depends on apart from the numbers: a value, without Triton."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from pinnfuse.kernels.grid.hashing import hash_once

TAPS = {"nearest": 1, "bilinear": 2, "bicubic": 4}
"""How many points along each axis."""


@dataclass(frozen=True)
class Axis:
    """One axis: whether it closes on itself; else from how many points each ghost point is extrapolated, and how many
    points (a window that holds the taps, and those by which taps outside are extrapolated) get weights."""

    periodic: bool
    count: int
    window: int


@hash_once
@dataclass(frozen=True)
class Sampling:
    """Values at points by a product of weights along the axes, in the order of the grid's.

    The numbers of a kernel are one tensor: per axis the coordinate of the first point and 1 / spacing, and with walls
    the first and last position in spacings, the last index that "nearest" takes, and the table of ghost points: 2
    `depth` rows (low end, high end) of `count` weights and the wall's constant.
    """

    mode: str
    axes: tuple[Axis, ...]

    @property
    def taps(self) -> int:
        return TAPS[self.mode]

    @property
    def first(self) -> int:
        """The first tap, from the point at or before the position."""
        return 1 - max(1, self.taps // 2)

    @property
    def depth(self) -> int:
        """Ghost points beyond each end."""
        return max(1, self.taps // 2)

    @cached_property
    def places(self) -> tuple[int, ...]:
        """Where the numbers of each axis begin."""
        found = [0]
        for axis in self.axes:
            found.append(found[-1] + (2 if axis.periodic else 5 + 2 * self.depth * (axis.count + 1)))
        return tuple(found)
