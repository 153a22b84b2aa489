"""Jets: the value of a field or one of its partial derivatives, named by a multi-index.

Jet("u", (1, 2), ("t", "x"))  =  d^3 u / (dt dx^2),   written  u_txx
"""

from __future__ import annotations

import dataclasses
import difflib
import functools
from collections.abc import Sequence
from dataclasses import dataclass

from pinnfuse.errors import nearest

__all__ = ["MAX_ORDER", "Jet", "parse_jet"]

MAX_ORDER = 8  # highest total order of a derivative; beyond it the chain rule grows past any use


@dataclass(frozen=True, order=True)
class Jet:
    """The derivative of `field` taken `index[i]` times along coordinate i; all zeros is the value itself.

    Args:
        field: name of the field, e.g. "u".
        index: one count per coordinate, in the order of the coordinates.
        coordinates: their names, for printing; two jets are equal whatever these are.

    Raises:
        ValueError: a negative or fractional count, or another number of names than of counts.
    """

    field: str
    index: tuple[int, ...]
    coordinates: tuple[str, ...] = dataclasses.field(default=(), compare=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "index", tuple(self.index))
        object.__setattr__(self, "coordinates", tuple(self.coordinates))
        if any(isinstance(n, bool) or not isinstance(n, int) or n < 0 for n in self.index):
            raise ValueError(f"Jet: `index` must hold counts >= 0, one per coordinate; got {self.index!r}.")
        if self.coordinates and len(self.coordinates) != len(self.index):
            raise ValueError(
                f"Jet: `index` must have one count for each of the coordinates {', '.join(self.coordinates)}; "
                f"got {self.index!r}."
            )

    @property
    def order(self) -> int:
        """Total order of the derivative, 0 for the value."""
        return sum(self.index)

    def shifted(self, axis: int, count: int = 1) -> Jet:
        """The jet differentiated `count` more times along coordinate number `axis`."""
        index = tuple(n + count if i == axis else n for i, n in enumerate(self.index))
        return Jet(self.field, index, self.coordinates)

    def __str__(self) -> str:
        if self.order == 0:
            return self.field
        if not self.coordinates:
            return f"{self.field}{self.index}"
        suffix = "".join(name * n for name, n in zip(self.coordinates, self.index, strict=True))
        if len(_readings(suffix, self.coordinates)) == 1:
            return f"{self.field}_{suffix}"
        return _spelled(self)


@functools.lru_cache(maxsize=4096)
def _readings(suffix: str, coordinates: tuple[str, ...]) -> tuple[tuple[int, ...], ...]:
    """All multi-indices whose coordinate names, in any order, spell `suffix` completely."""
    reached: list[set[tuple[int, ...]]] = [set() for _ in range(len(suffix) + 1)]
    reached[0].add((0,) * len(coordinates))
    for start, indices in enumerate(reached):
        for axis, name in enumerate(coordinates) if indices else ():
            if suffix.startswith(name, start):
                grown = (i[:axis] + (i[axis] + 1,) + i[axis + 1 :] for i in indices if sum(i) < MAX_ORDER)
                reached[start + len(name)].update(grown)
    return tuple(sorted(reached[-1]))


def find_jet(text: str, fields: Sequence[str], coordinates: Sequence[str]) -> Jet | None:
    """The jet that `text` names, or None where it names none.

    Raises:
        ValueError: several jets are written the same way.
    """
    names = tuple(coordinates)
    found = [Jet(text, (0,) * len(names), names)] if text in fields else []
    for name in fields:
        if text.startswith(f"{name}_"):
            found += [Jet(name, index, names) for index in _readings(text[len(name) + 1 :], names) if any(index)]
    if len(found) > 1:
        raise ValueError(
            f"{text!r} is ambiguous: it can be read as {' or '.join(_spelled(jet) for jet in found)}. "
            "Write it in that form, or rename a coordinate or field."
        )
    return found[0] if found else None


def _spelled(jet: Jet) -> str:
    """As an operator: "D(u, t, x, 2)"."""
    counted = [
        f", {name}, {n}" if n > 1 else f", {name}" for name, n in zip(jet.coordinates, jet.index, strict=True) if n
    ]
    return f"D({jet.field}{''.join(counted)})" if counted else jet.field


def why_no_jet(text: str, fields: Sequence[str], coordinates: Sequence[str]) -> str:
    """One sentence on why a name such as `u_z` is no derivative; "" if it does not look like one."""
    for name in sorted(fields, key=len, reverse=True):
        if text.startswith(f"{name}_"):
            suffix = text[len(name) + 1 :]
            return (
                f"{name!r} is a field, but {suffix!r} is not spelled by up to {MAX_ORDER} of the coordinates "
                f"{', '.join(coordinates)}. {_closest(text, fields, coordinates)}"
            )
    return _closest(text, fields, coordinates) if "_" in text else ""


def _closest(text: str, fields: Sequence[str], coordinates: Sequence[str]) -> str:
    """The low derivative that looks most like `text`."""
    names = [f"{field}_{x * n}" for field in fields for x in coordinates for n in (1, 2)][:1000]
    same = [name for name in names if name.lower() == text.lower()]
    close = same or difflib.get_close_matches(text, names, n=1)
    return f"Did you mean {close[0]!r}? " if close else ""


def parse_jet(
    text: str, fields: Sequence[str] | str, coordinates: Sequence[str] | str, what: str = "parse_jet: `text`"
) -> Jet:
    """Read "u", "u_x", "u_txx" as a `Jet`. Coordinates may have long names ("u_thetatheta").

    A name is split into coordinates in every possible way; where two ways give different derivatives (coordinates
    "x" and "xx", name "u_xx") it is refused. The order of the letters does not matter: u_yx is u_xy.

    Args:
        text: the name.
        fields, coordinates: known names, a sequence or one string of names separated by spaces or commas.
        what: the text's place, for the message.

    Raises:
        ValueError: not a field or a derivative of one, or ambiguous.
    """
    fields, coordinates = split_names(fields), split_names(coordinates)
    jet = find_jet(text, fields, coordinates) if isinstance(text, str) else None
    if jet is None:
        example = f"{fields[0] if fields else 'u'}_{coordinates[0] if coordinates else 'x'}"
        reason = why_no_jet(str(text), fields, coordinates) or nearest(str(text), fields)
        raise ValueError(
            f"{what} must be a field ({', '.join(fields)}) or a derivative like {example}; got {text!r}. "
            f"{reason}".rstrip()
        )
    return jet


def split_names(names: Sequence[str] | str) -> tuple[str, ...]:
    """("t", "x") from "t x", "t, x" or ["t", "x"]."""
    return tuple(names.replace(",", " ").split()) if isinstance(names, str) else tuple(names)
