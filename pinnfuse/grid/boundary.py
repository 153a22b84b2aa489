"""What is known at the ends of an axis.

    Periodic       the axis closes on itself; both sides at once
    Dirichlet(g)   the field is g on the wall
    Neumann(g)     the derivative along the axis (not the outward normal) is g on the wall: du/dx = g at either end
    OneSided       nothing is known outside: derivatives at the end use the points inside

Where the wall lies, in index units from the first point (mirrored at the other end):

                   cell-centred   node-centred
    Dirichlet      -1/2           -1   (the field holds the unknowns between the walls)
    Neumann        -1/2            0   (the first point lies on the wall)
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from typing import Any

from pinnfuse.errors import nearest

Datum = tuple[Fraction, int]
"""A known number: the derivative of this order at this position, in index units from the first point."""


@dataclass(frozen=True)
class Side:
    """One end of an axis."""

    def wall(self, centring: str) -> Datum | None:
        """What the wall adds to the values of the points; None if nothing."""
        return None

    @property
    def number(self) -> float:
        """The number known on the wall, 0 where there is none."""
        return 0.0


@dataclass(frozen=True)
class Periodic(Side):
    """The axis closes on itself: point n is point 0, which is stored once."""


@dataclass(frozen=True)
class OneSided(Side):
    """Nothing is known outside."""


@dataclass(frozen=True)
class _Wall(Side):
    value: float = 0.0

    def __post_init__(self) -> None:
        if isinstance(self.value, bool) or not isinstance(self.value, int | float) or not math.isfinite(self.value):
            raise ValueError(
                f"{type(self).__name__}: `value` must be a finite number, the same along the wall; got {self.value!r}. "
                "A value that varies along the wall belongs into a OneSided axis and a loss term of its own."
            )
        object.__setattr__(self, "value", float(self.value))

    @property
    def number(self) -> float:
        return self.value


@dataclass(frozen=True)
class Dirichlet(_Wall):
    """The field is `value` on the wall."""

    def wall(self, centring: str) -> Datum:
        return (Fraction(-1, 2) if centring == "cell" else Fraction(-1)), 0


@dataclass(frozen=True)
class Neumann(_Wall):
    """The derivative of the field along the axis is `value` on the wall (at the low end the outward normal is -x)."""

    def wall(self, centring: str) -> Datum:
        return (Fraction(-1, 2) if centring == "cell" else Fraction(0)), 1


NAMES: dict[str, Side] = {
    "periodic": Periodic(),
    "dirichlet": Dirichlet(),
    "neumann": Neumann(),
    "one-sided": OneSided(),
}


def side(given: Any, where: str) -> Side:
    """A side from an object or a name."""
    if isinstance(given, Side):
        return given
    if isinstance(given, str):
        if given in NAMES:
            return NAMES[given]
        raise ValueError(f"Grid: unknown `boundary`{where}; got {given!r}. {nearest(given, NAMES)}")
    raise ValueError(
        f"Grid: `boundary`{where} must be Periodic(), Dirichlet(value), Neumann(value), OneSided() or one of their "
        f"names {', '.join(map(repr, NAMES))}; got {given!r}."
    )


def pair(given: Any, axis: str) -> tuple[Side, Side]:
    """Both sides of an axis from one entry or a (low, high) pair."""
    where = f" of axis {axis!r}"
    if isinstance(given, tuple | list):
        if len(given) != 2:
            raise ValueError(
                f"Grid: `boundary`{where} must be one entry or a pair (low, high); got {len(given)} entries."
            )
        low, high = (side(entry, where) for entry in given)
    else:
        low = high = side(given, where)
    if isinstance(low, Periodic) != isinstance(high, Periodic):
        raise ValueError(
            f"Grid: `boundary`{where} must be periodic at both ends or at none; got ({low}, {high}). "
            'Write "periodic" for the axis, or replace it by a wall.'
        )
    return low, high
