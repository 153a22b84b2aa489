"""Discs cut out of a box, and the circles that bound them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from pinnfuse.domains.box import Box, _scale
from pinnfuse.domains.region import Region
from pinnfuse.domains.sampling import unit_cube


@dataclass(frozen=True)
class Disc:
    """Open disc in two coordinates (a cylinder over the others): `Disc({"x": 0.2, "y": 0.2}, radius=0.05)`."""

    center: dict[str, float]
    radius: float

    def __post_init__(self) -> None:
        if len(self.center) != 2:
            raise ValueError(f"Disc: `center` must name two coordinates; got {self.center!r}.")
        if not (math.isfinite(self.radius) and self.radius > 0):
            raise ValueError(f"Disc: `radius` must be positive and finite; got {self.radius!r}.")

    def distance(self, points: Tensor, coordinates: Sequence[str]) -> Tensor:
        """[N] distance of the points to the centre."""
        squares = [(points[:, list(coordinates).index(name)] - c) ** 2 for name, c in self.center.items()]
        return (squares[0] + squares[1]).sqrt()


class Circle(Region):
    """The rim of a disc inside a box; the other coordinates are free."""

    def __init__(self, box: Box, disc: Disc) -> None:
        for name, c in disc.center.items():
            low, high = box.bounds[box.coordinates[box.axis(name)]]
            if not low <= c - disc.radius <= c + disc.radius <= high:
                raise ValueError(f"Disc: {disc!r} must lie inside {box!r}. Move it, or make it smaller.")
        self.box, self.disc, self.coordinates = box, disc, box.coordinates
        self._rest = {name: b for name, b in box.bounds.items() if name not in disc.center}

    @property
    def measure(self) -> float:
        return 2 * math.pi * self.disc.radius * math.prod(high - low for low, high in self._rest.values())

    def sample(
        self,
        n: int,
        generator: torch.Generator | None = None,
        device: torch.device | str = "cpu",
        dtype: torch.dtype = torch.float32,
        method: str = "sobol",
    ) -> Tensor:
        unit = unit_cube(n, 1 + len(self._rest), generator, device, dtype, method)
        angle = 2 * math.pi * unit[:, 0]
        (first, a), (second, b) = self.disc.center.items()
        columns = {first: a + self.disc.radius * angle.cos(), second: b + self.disc.radius * angle.sin()}
        rest = _scale(unit[:, 1:], list(self._rest.values()))
        columns.update((name, rest[:, i]) for i, name in enumerate(self._rest))
        return torch.stack([columns[name] for name in self.coordinates], dim=1)

    def contains(self, points: Tensor, tolerance: float = 1e-6) -> Tensor:
        rim = (self.disc.distance(self._checked(points), self.coordinates) - self.disc.radius).abs() <= tolerance
        return rim & self.box.contains(points, tolerance)

    def __repr__(self) -> str:
        return f"Circle({self.box!r}, {self.disc!r})"


class Perforated(Region):
    """A box minus discs. Points are drawn in the box and those in a hole are drawn again."""

    def __init__(self, box: Box, holes: Sequence[Disc]) -> None:
        self.box, self.holes, self.coordinates = box, tuple(holes), box.coordinates
        self.rims = tuple(Circle(box, hole) for hole in self.holes)
        self.bounds = box.bounds
        for i, one in enumerate(self.holes):
            for other in self.holes[:i]:
                apart = math.dist(list(one.center.values()), [other.center.get(k, math.inf) for k in one.center])
                if apart < one.radius + other.radius:
                    raise ValueError(f"Perforated: the discs {other!r} and {one!r} overlap.")

    @property
    def measure(self) -> float:
        return self.box.measure - math.fsum(rim.measure * rim.disc.radius / 2 for rim in self.rims)

    def sample(
        self,
        n: int,
        generator: torch.Generator | None = None,
        device: torch.device | str = "cpu",
        dtype: torch.dtype = torch.float32,
        method: str = "sobol",
    ) -> Tensor:
        if method == "grid":  # the grid points outside the holes: at most n
            points = self.box.sample(n, generator, device, dtype, method)
            return points[self.contains(points, 0.0)]
        kept, missing = [], n
        while missing > 0:
            tries = int(1.1 * missing * self.box.measure / self.measure) + 8
            points = self.box.sample(tries, generator, device, dtype, method)
            points = points[self.contains(points, 0.0)][:missing]
            kept.append(points)
            missing -= len(points)
        return torch.cat(kept) if kept else self.box.sample(0, generator, device, dtype, method)

    def contains(self, points: Tensor, tolerance: float = 1e-6) -> Tensor:
        inside = self.box.contains(points, tolerance)
        for hole in self.holes:
            inside &= hole.distance(points, self.coordinates) >= hole.radius - tolerance
        return inside

    def face(self, coordinate: str, side: str = "both") -> Region:
        """A face of the outer box (discs lie inside, so no face is cut)."""
        return self.box.face(coordinate, side)

    def initial(self, coordinate: str = "t") -> Region:
        """The initial slice, minus the holes."""
        return _Initial(self, coordinate)

    def boundary(self, coordinates: Sequence[str] | None = None) -> Region:
        """The faces of the outer box; the rims of the holes are in `rims`."""
        return self.box.boundary(coordinates)

    def __repr__(self) -> str:
        return f"{self.box!r}.without({', '.join(map(repr, self.holes))})"


class _Initial(Region):
    """A perforated box at the low bound of a coordinate."""

    def __init__(self, region: Perforated, coordinate: str) -> None:
        self.region, self.coordinates = region, region.coordinates
        self.axis, self.value = region.box.axis(coordinate), region.bounds[coordinate][0]
        self._length = region.bounds[coordinate][1] - self.value

    @property
    def measure(self) -> float:
        return self.region.measure / self._length

    def sample(
        self,
        n: int,
        generator: torch.Generator | None = None,
        device: torch.device | str = "cpu",
        dtype: torch.dtype = torch.float32,
        method: str = "sobol",
    ) -> Tensor:
        points = self.region.sample(n, generator, device, dtype, method).clone()
        points[:, self.axis] = self.value
        return points

    def contains(self, points: Tensor, tolerance: float = 1e-6) -> Tensor:
        on_slice = (points[:, self.axis] - self.value).abs() <= tolerance
        return on_slice & self.region.contains(points, tolerance)
