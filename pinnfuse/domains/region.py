"""What every set of points offers: coordinates, size, sampling, membership, union."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod

import torch
from torch import Tensor


class Region(ABC):
    """A set of points in named coordinates. Columns of every sample follow the order of `coordinates`."""

    coordinates: tuple[str, ...]

    @property
    @abstractmethod
    def measure(self) -> float:
        """Length, area or volume over the free coordinates (1 for a single point); shares of a union follow it."""

    @abstractmethod
    def sample(
        self,
        n: int,
        generator: torch.Generator | None = None,
        device: torch.device | str = "cpu",
        dtype: torch.dtype = torch.float32,
        method: str = "sobol",
    ) -> Tensor:
        """[n, d] points; see `pinnfuse.domains.unit_cube` for the methods and the errors."""

    @abstractmethod
    def contains(self, points: Tensor, tolerance: float = 1e-6) -> Tensor:
        """[N] bool: which of the [N, d] points lie in the closed region, give or take `tolerance` (absolute)."""

    def __or__(self, other: Region) -> Union:
        return Union(self, other)

    def _checked(self, points: Tensor) -> Tensor:
        if points.ndim != 2 or points.shape[1] != len(self.coordinates):
            raise ValueError(
                f"{type(self).__name__}.contains: `points` must be [N, {len(self.coordinates)}] with columns "
                f"{', '.join(self.coordinates)}; got shape {tuple(points.shape)}."
            )
        return points


def shares(n: int, measures: list[float]) -> list[int]:
    """Split n in proportion to the measures, by largest remainder; the parts add up to n.

    >>> shares(10, [1.0, 1.0, 2.0])
    [3, 2, 5]
    """
    total = math.fsum(measures)
    exact = [n * m / total for m in measures]
    parts = [int(e) for e in exact]
    by_remainder = sorted(range(len(parts)), key=lambda i: (parts[i] - exact[i], i))
    for i in by_remainder[: n - sum(parts)]:
        parts[i] += 1
    return parts


class Union(Region):
    """Several regions of the same coordinates; points are shared out in proportion to their measures.

    The parts are expected not to overlap (faces of a box share only edges).
    """

    def __init__(self, *regions: Region) -> None:
        flat: list[Region] = []
        for region in regions:
            flat.extend(region.regions if isinstance(region, Union) else [region])
        if not flat:
            raise ValueError("Union: give at least one region.")
        names = {region.coordinates for region in flat}
        if len(names) > 1:
            raise ValueError(f"Union: all regions must have the same coordinates in the same order; got {names}.")
        self.regions: tuple[Region, ...] = tuple(flat)
        self.coordinates = flat[0].coordinates

    @property
    def measure(self) -> float:
        return math.fsum(region.measure for region in self.regions)

    def sample(
        self,
        n: int,
        generator: torch.Generator | None = None,
        device: torch.device | str = "cpu",
        dtype: torch.dtype = torch.float32,
        method: str = "sobol",
    ) -> Tensor:
        parts = shares(n, [region.measure for region in self.regions])
        drawn = [
            region.sample(m, generator, device, dtype, method) for region, m in zip(self.regions, parts, strict=True)
        ]
        return torch.cat(drawn)

    def contains(self, points: Tensor, tolerance: float = 1e-6) -> Tensor:
        self._checked(points)
        return torch.stack([region.contains(points, tolerance) for region in self.regions]).any(0)

    def __repr__(self) -> str:
        return " | ".join(map(repr, self.regions))
