"""Which rows a process holds, and how far a step reaches."""

from __future__ import annotations

import math
from dataclasses import dataclass

from torch import Tensor

from pinnfuse.simulation.physarum.fixed import CELL
from pinnfuse.simulation.physarum.parameters import INTEGERS

UPPER, LOWER = 0, 1
"""The two edges of a band: towards smaller and towards larger rows."""


@dataclass(frozen=True)
class Band:
    """Rows [start, stop) of the domain belong to process `rank`; it holds `halo` more where it has a neighbour."""

    rank: int
    ranks: int
    height: int
    torus: bool
    halo: int

    @property
    def start(self) -> int:
        return self.rank * self.height // self.ranks

    @property
    def stop(self) -> int:
        return (self.rank + 1) * self.height // self.ranks

    @property
    def size(self) -> int:
        return self.stop - self.start

    def neighbour(self, edge: int) -> int | None:
        """The rank beyond an edge; None at a wall, or where a process is alone."""
        rank = self.rank + (1 if edge == LOWER else -1)
        if self.ranks == 1 or (not self.torus and not 0 <= rank < self.ranks):
            return None
        return rank % self.ranks

    def beyond(self, edge: int) -> int:
        """Rows held beyond an edge."""
        return 0 if self.neighbour(edge) is None else self.halo

    @property
    def rows(self) -> int:
        """Rows held."""
        return self.beyond(UPPER) + self.size + self.beyond(LOWER)

    @property
    def first(self) -> int:
        """Row of the domain that the first row held stands for; negative around the torus."""
        return self.start - self.beyond(UPPER)


def reach(integers: Tensor, bilinear: bool) -> tuple[int, int]:
    """Rows by which a step's results depend on what lies further away, and rows that an agent may move in it.

    An agent reads the field up to the sensor distance away (one more between cells), moves, deposits, and the field
    diffuses by one row.
    """
    table = integers.tolist()
    distance, speed = (max(row[INTEGERS.index(name)] for row in table) for name in ("sensor_distance", "speed"))
    moved = math.ceil(speed / CELL)
    return math.ceil(distance / CELL) + bilinear + moved + 1, moved


def halo_for(reach: int, moved: int, window: int, height: int, ranks: int) -> int:
    """Rows of a halo that lasts `window` steps, or as many as the bands allow.

    Raises:
        ValueError: a single step reaches beyond the neighbours.
    """
    if ranks == 1:
        return 0
    smallest = height // ranks
    steps = min(window, smallest // (reach + moved))  # the halo, and those who can enter it, are the neighbour's
    if steps < 1:
        raise ValueError(
            f"Physarum: bands of {smallest} rows are thinner than what a step reaches, {reach + moved} rows (sensor "
            f"distance, speed, diffusion). Use at most {height // (reach + moved)} processes, or a taller field."
        )
    return steps * reach
