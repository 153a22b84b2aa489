"""Boxes of named coordinates, and their faces."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from pinnfuse.domains.region import Region, Union
from pinnfuse.domains.sampling import unit_cube

if TYPE_CHECKING:
    from pinnfuse.domains.disc import Disc, Perforated

_SIDES = ("low", "high", "both")


class Box(Region):
    """Product of intervals: `Box({"t": (0, 1), "x": (-1, 1)})`. Columns of points follow the order of the names."""

    def __init__(self, bounds: Mapping[str, Sequence[float]]) -> None:
        """
        Raises:
            ValueError: no coordinate, a bound that is not two finite numbers, or low >= high.
        """
        if not bounds:
            raise ValueError("Box: give at least one coordinate, e.g. Box({'x': (0, 1)}).")
        checked: dict[str, tuple[float, float]] = {}
        for name, interval in bounds.items():
            try:
                low, high = (float(b) for b in interval)
            except (TypeError, ValueError):
                raise ValueError(
                    f"Box: bounds of {name!r} must be two numbers (low, high); got {interval!r}."
                ) from None
            if not (math.isfinite(low) and math.isfinite(high) and low < high):
                raise ValueError(f"Box: bounds of {name!r} must be finite with low < high; got ({low:g}, {high:g}).")
            checked[str(name)] = (low, high)
        self.bounds = checked
        self.coordinates = tuple(checked)

    @property
    def measure(self) -> float:
        return math.prod(high - low for low, high in self.bounds.values())

    def axis(self, coordinate: str) -> int:
        """Column of a coordinate."""
        if coordinate not in self.bounds:
            raise ValueError(f"Box: no coordinate {coordinate!r}; there are {', '.join(self.coordinates)}.")
        return self.coordinates.index(coordinate)

    def sample(
        self,
        n: int,
        generator: torch.Generator | None = None,
        device: torch.device | str = "cpu",
        dtype: torch.dtype = torch.float32,
        method: str = "sobol",
    ) -> Tensor:
        return _scale(unit_cube(n, len(self.bounds), generator, device, dtype, method), list(self.bounds.values()))

    def contains(self, points: Tensor, tolerance: float = 1e-6) -> Tensor:
        return _inside(self._checked(points), list(self.bounds.values()), tolerance)

    def face(self, coordinate: str, side: str = "both") -> Region:
        """The part of the boundary where a coordinate takes its "low" or "high" bound (or the union of "both")."""
        self.axis(coordinate)
        if side not in _SIDES:
            raise ValueError(f"Box.face: `side` must be one of {', '.join(_SIDES)}; got {side!r}.")
        if side == "both":
            return Union(Face(self, coordinate, "low"), Face(self, coordinate, "high"))
        return Face(self, coordinate, side)

    def slice(self, values: Mapping[str, float]) -> Slice:
        """The part where the named coordinates have the given values: an edge, a corner, a line through the middle."""
        return Slice(self, values)

    def initial(self, coordinate: str = "t") -> Region:
        """The slice where time takes its low bound."""
        return self.face(coordinate, "low")

    def boundary(self, coordinates: Sequence[str] | None = None) -> Region:
        """All faces of the given coordinates; by default of all but `t`."""
        chosen = [c for c in self.coordinates if c != "t"] if coordinates is None else list(coordinates)
        return Union(*(self.face(c) for c in chosen))

    def without(self, *holes: Disc) -> Perforated:
        """The box minus discs."""
        from pinnfuse.domains.disc import Perforated

        return Perforated(self, holes)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Box) and list(self.bounds.items()) == list(other.bounds.items())

    def __hash__(self) -> int:
        return hash(tuple(self.bounds.items()))

    def __repr__(self) -> str:
        inside = ", ".join(f"{name!r}: ({low:g}, {high:g})" for name, (low, high) in self.bounds.items())
        return f"Box({{{inside}}})"


class Slice(Region):
    """The part of a box in which some coordinates are held at given values and the others are free."""

    def __init__(self, box: Box, values: Mapping[str, float]) -> None:
        """
        Raises:
            ValueError: an unknown coordinate, or a value outside its bounds.
        """
        for name, value in values.items():
            low, high = box.bounds[box.coordinates[box.axis(name)]]
            if not low <= value <= high:
                raise ValueError(f"Slice: {name} = {value:g} is outside [{low:g}, {high:g}].")
        self.box, self.coordinates = box, box.coordinates
        self.values = {name: float(value) for name, value in values.items()}
        self._free = {name: bounds for name, bounds in box.bounds.items() if name not in values}

    @property
    def measure(self) -> float:
        return math.prod(high - low for low, high in self._free.values())

    def sample(
        self,
        n: int,
        generator: torch.Generator | None = None,
        device: torch.device | str = "cpu",
        dtype: torch.dtype = torch.float32,
        method: str = "sobol",
    ) -> Tensor:
        free = _scale(unit_cube(n, len(self._free), generator, device, dtype, method), list(self._free.values()))
        columns = {name: free[:, i] for i, name in enumerate(self._free)}
        columns.update({name: free.new_full((len(free),), value) for name, value in self.values.items()})
        return torch.stack([columns[name] for name in self.coordinates], dim=1)

    def contains(self, points: Tensor, tolerance: float = 1e-6) -> Tensor:
        closed = self.box.bounds | {name: (value, value) for name, value in self.values.items()}
        return _inside(self._checked(points), list(closed.values()), tolerance)

    def __repr__(self) -> str:
        return f"{self.box!r}.slice({self.values!r})"


class Face(Slice):
    """One face of a box: `coordinate` held at its low or high bound, the others free."""

    def __init__(self, box: Box, coordinate: str, side: str) -> None:
        if side not in ("low", "high"):
            raise ValueError(f"Face: `side` must be 'low' or 'high'; got {side!r}.")
        super().__init__(box, {coordinate: box.bounds[coordinate][side == "high"]})
        self.coordinate, self.side = coordinate, side
        self.normal = 1.0 if side == "high" else -1.0  # outward, along `coordinate`

    def __repr__(self) -> str:
        return f"{self.box!r}.face({self.coordinate!r}, {self.side!r})"


@lru_cache(maxsize=256)
def constant(values: tuple[float, ...], dtype: torch.dtype, device: torch.device) -> Tensor:
    """The numbers as a tensor, copied to a device once: a CUDA graph cannot hold a copy from the host."""
    with torch.inference_mode(False):
        return torch.tensor(values, dtype=dtype, device=device)


def _scale(unit: Tensor, bounds: list[tuple[float, float]]) -> Tensor:
    """[n, d] of the unit cube to the box. `lerp` goes from the nearer end, so rounding never leaves the box."""
    if not bounds:
        return unit
    low, high = (constant(side, unit.dtype, unit.device) for side in zip(*bounds, strict=True))
    return torch.lerp(low, high, unit)


def _inside(points: Tensor, bounds: list[tuple[float, float]], tolerance: float) -> Tensor:
    inside = torch.ones(len(points), dtype=torch.bool, device=points.device)
    for axis, (low, high) in enumerate(bounds):
        x = points[:, axis]
        inside &= (x >= low - tolerance) & (x <= high + tolerance)
    return inside
