"""Points that are given: measurements, sensors, a user's own collocation set."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from pinnfuse.domains.region import Region


class PointSet(Region):
    """A finite set of points, [N, d], kept in float64 on the host and moved once to each device that asks."""

    def __init__(self, points: Tensor, coordinates: Sequence[str]) -> None:
        points = torch.as_tensor(points).detach().to("cpu", torch.float64)
        self.coordinates = tuple(coordinates)
        if points.ndim != 2 or points.shape[1] != len(self.coordinates) or len(points) == 0:
            raise ValueError(
                f"PointSet: `points` must be [N >= 1, {len(self.coordinates)}] with columns "
                f"{', '.join(self.coordinates)}; got shape {tuple(points.shape)}."
            )
        if not bool(points.isfinite().all()):
            row = int((~points.isfinite()).any(1).nonzero()[0])
            raise ValueError(f"PointSet: `points` must be finite; row {row} is {points[row].tolist()}.")
        self.points = points
        self._moved: dict[tuple[str, torch.dtype], Tensor] = {}

    def __len__(self) -> int:
        return len(self.points)

    @property
    def measure(self) -> float:
        return float(len(self.points))

    def indices(self, n: int, generator: torch.Generator | None = None, device: torch.device | str = "cpu") -> Tensor:
        """[min(n, N)] rows without repetition: all in order when n >= N, else a random subset."""
        if n >= len(self.points):
            return torch.arange(len(self.points), device=device)
        return torch.randperm(len(self.points), generator=generator, device=device)[:n]

    def at(self, index: Tensor, dtype: torch.dtype = torch.float32) -> Tensor:
        """The rows `index`, on its device."""
        key = (str(index.device), dtype)
        if key not in self._moved:
            self._moved[key] = self.points.to(index.device, dtype)
        return self._moved[key][index]

    def sample(
        self,
        n: int,
        generator: torch.Generator | None = None,
        device: torch.device | str = "cpu",
        dtype: torch.dtype = torch.float32,
        method: str = "uniform",
    ) -> Tensor:
        """At most n of the points; `method` has no meaning here."""
        return self.at(self.indices(n, generator, device), dtype)

    def contains(self, points: Tensor, tolerance: float = 1e-6) -> Tensor:
        known = self.points.to(points.device)
        return torch.cdist(self._checked(points).double(), known, p=float("inf")).min(1).values <= tolerance

    def __repr__(self) -> str:
        return f"PointSet({len(self.points)} points in {', '.join(self.coordinates)})"
