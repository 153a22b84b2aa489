"""Points beyond the ends of a line: by the period, by rows of weights, or by a limited slope.

Rows are those of the polynomial through the numbers nearest the end (`pinnfuse.grid.stencils.ghost_rows`).
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from pinnfuse.grid.stencils import Row

Ends = tuple[tuple[Row, ...], ...]
"""Per end the rows of the points outside, the nearest first; both empty for a periodic line."""


@dataclass(frozen=True)
class Wall:
    """One end of an axis for diffusion of order 2: whether k is extrapolated to the wall (else the first point lies on
    it), and the factor of the row there, the inverse of its share of a control volume."""

    extrapolated: bool = True
    factor: float = 1.0


def extend(u: Tensor, ends: Ends, depth: int) -> Tensor:
    """The last dimension with `depth` points more at both ends."""
    low, high = ends
    if not low and not high:
        n = u.shape[-1]
        return u.index_select(-1, torch.arange(-depth, n + depth, device=u.device) % n)

    def ghost(row: Row, end: int) -> Tensor:
        value = torch.full_like(u[..., :1], row.constant)
        for i, w in zip(row.offsets_from_that_end, row.weights, strict=True):
            j = u.shape[-1] - 1 - i if end else i
            value = value + w * u[..., j : j + 1]
        return value

    return torch.cat([*(ghost(r, 0) for r in reversed(low)), u, *(ghost(r, 1) for r in high)], dim=-1)


def extend_limited(k: Tensor, walls: tuple[Wall, ...]) -> Tensor:
    """The last dimension with one point more at both ends, so that the mean with the first one is k on the wall."""

    def ghost(wall: Wall, *nearest: Tensor) -> Tensor:
        return nearest[0] - limited_slope(*nearest) if wall.extrapolated else nearest[0]

    n = k.shape[-1]
    low, high = ([k.narrow(-1, n - 1 - i if end else i, 1) for i in range(3)] for end in (0, 1))
    return torch.cat([ghost(walls[0], *low), k, ghost(walls[1], *high)], dim=-1)


def limited_slope(k0: Tensor, k1: Tensor, k2: Tensor) -> Tensor:
    """The smallest in size of k1 - k0, k2 - k1 and k0 with the sign of the first two, 0 if these differ."""
    a, b = k1 - k0, k2 - k1
    limit = torch.where(b.abs() <= k0.abs(), b, a.sign() * k0.abs())
    smallest = torch.where((a.abs() <= b.abs()) & (a.abs() <= k0.abs()), a, limit)
    return torch.where(a * b > 0, smallest, 0.0)


def table(ends: Ends, count: int, depth: int) -> list[float]:
    """Per end and point outside the weights of the `count` numbers nearest the end, and the wall's constant."""
    found: list[float] = []
    for rows in ends:
        for row in rows or (Row((), ()),) * depth:
            entries = [0.0] * count
            for i, w in zip(row.offsets_from_that_end, row.weights, strict=True):
                entries[i] = w
            found += [*entries, row.constant]
    return found
