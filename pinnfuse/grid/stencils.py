"""Difference formulas along one axis, with rational weights, walls included.

A formula of derivative m at position x is the m-th derivative there of the polynomial that fits K known numbers:

    sum_k w_k (t^q)^(d_k) (x_k) = (t^q)^(m) (x),   q = 0 .. K - 1,

where number k is the derivative of order d_k at position x_k (d_k = 0 for the value of a point). The interior formula
of order p takes K = p + m points (for even m, K = p + m - 1 suffice by symmetry). A row whose points would lie outside
takes the K numbers nearest the wall instead, the wall's own number among them. It is therefore exact on polynomials of
degree K - 1: of order p for odd m, of order p - 1 for even m. The same row results from filling points outside with
the fitted polynomial (`ghost_rows`) and applying the interior formula there.

Source of the interior formulas: Fornberg, Generation of finite difference formulas, Math. Comp. 51 (1988); by solving
the system above in fractions here.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache

import torch
from torch import Tensor

from pinnfuse.grid.boundary import Datum, OneSided, Periodic, Side
from pinnfuse.grid.grid import Grid
from pinnfuse.kernels.grid.hashing import hash_once


@dataclass(frozen=True)
class Row:
    """One row near an end: the weights of the points that many steps from that end, and the wall's contribution."""

    offsets_from_that_end: tuple[int, ...]
    weights: tuple[float, ...]
    constant: float = 0.0


@hash_once
@dataclass(frozen=True)
class AxisStencil:
    """A difference formula along one axis: (D u)_i = sum_k weights[k] u_{i + offsets[k]}, other rows near walls.

    Attributes:
        offsets, weights: the interior row; weights include the division by h^m.
        periodic: indices wrap around; then `low` and `high` are empty.
        low: rows 0, 1, ... where they differ from the interior one.
        high: rows n-1, n-2, ...; offsets count from the last point backwards.
        minimum: least number of points along the axis.
    """

    offsets: tuple[int, ...]
    weights: tuple[float, ...]
    periodic: bool
    low: tuple[Row, ...]
    high: tuple[Row, ...]
    minimum: int

    def rows(self, n: int) -> list[tuple[tuple[int, ...], tuple[float, ...], float]]:
        """Every row for n points: (indices, weights, constant)."""
        found = []
        for i in range(n):
            if i < len(self.low):
                row = self.low[i]
                found.append((row.offsets_from_that_end, row.weights, row.constant))
            elif n - 1 - i < len(self.high):
                row = self.high[n - 1 - i]
                found.append((tuple(n - 1 - o for o in row.offsets_from_that_end), row.weights, row.constant))
            else:
                indices = tuple(i + o for o in self.offsets)
                found.append((tuple(j % n for j in indices) if self.periodic else indices, self.weights, 0.0))
        return found

    def matrix(self, n: int) -> tuple[Tensor, Tensor]:
        """(D, c) with D u + c the derivative of n points: float64 `[n, n]` and `[n]`."""
        dense, constant = torch.zeros(n, n, dtype=torch.float64), torch.zeros(n, dtype=torch.float64)
        for i, (indices, weights, c) in enumerate(self.rows(n)):
            for j, w in zip(indices, weights, strict=True):
                dense[i, j] += w
            constant[i] = c
        return dense, constant

    def symbol(self, phase: Tensor) -> Tensor:
        """The interior row's eigenvalue on exp(i phase j), complex."""
        powers = [w * torch.exp(1j * o * phase) for o, w in zip(self.offsets, self.weights, strict=True)]
        return torch.stack(powers).sum(0)

    def linear(self) -> AxisStencil:
        """The same formula with every wall's number set to zero: what a perturbation of the field sees."""
        low, high = ((Row(r.offsets_from_that_end, r.weights) for r in rows) for rows in (self.low, self.high))
        return AxisStencil(self.offsets, self.weights, self.periodic, tuple(low), tuple(high), self.minimum)


@lru_cache(maxsize=4096)
def fit(data: tuple[Datum, ...], derivative: int, at: Fraction) -> tuple[Fraction, ...]:
    """Weights of `data` in the derivative, at a position, of the polynomial that fits them; in index units."""
    size = len(data)
    system = [
        [_monomial(q, order, Fraction(position)) for position, order in data] + [_monomial(q, derivative, Fraction(at))]
        for q in range(size)
    ]
    for column in range(size):
        pivot = next(r for r in range(column, size) if system[r][column] != 0)
        system[column], system[pivot] = system[pivot], system[column]
        system[column] = [entry / system[column][column] for entry in system[column]]
        for r in range(size):
            if r != column and system[r][column] != 0:
                factor = system[r][column]
                system[r] = [a - factor * b for a, b in zip(system[r], system[column], strict=True)]
    return tuple(row[-1] for row in system)


def _monomial(q: int, derivative: int, at: Fraction) -> Fraction:
    """The derivative of t^q."""
    if derivative > q:
        return Fraction(0)
    return Fraction(math.perm(q, derivative)) * at ** (q - derivative)


def known(side: Side, centring: str, count: int) -> tuple[tuple[Datum, ...], int]:
    """The `count` numbers nearest an end, the wall's own first if there is one; and how many of them are the wall's."""
    wall = side.wall(centring)
    walls = () if wall is None else (wall,)
    return walls + tuple((Fraction(i), 0) for i in range(count - len(walls))), len(walls)


def interior_offsets(derivative: int, order: int, bias: int) -> tuple[int, ...]:
    """Points of the interior formula: centred for an even order; one more upstream (bias -1) or downstream (bias 1)."""
    if bias == 0:
        reach = (derivative + 1) // 2 + order // 2 - 1
        return tuple(range(-reach, reach + 1))
    count = derivative + order
    first = -(count // 2) if bias < 0 else 1 - count // 2
    return tuple(range(first, first + count))


def axis_stencil(grid: Grid, axis: str, derivative: int, order: int | None = None, bias: int = 0) -> AxisStencil:
    """The formula of a derivative along an axis of a grid.

    Args:
        derivative: 1, 2, ...
        order: order of accuracy, even; the grid's own by default. Odd with a bias.
        bias: 0 for centred differences, -1 for one point more on the low side (upwind of a positive velocity), 1 for
            one more on the high side.
    """
    order = grid.order if order is None else order
    if derivative < 1 or bias not in (-1, 0, 1) or order < 1 or order % 2 == (bias == 0):
        raise ValueError(
            "axis_stencil: needs `derivative` >= 1, and an even `order` with bias 0 or an odd one with bias -1 or 1; "
            f"got derivative={derivative}, order={order}, bias={bias}."
        )
    k = grid.index(axis)
    return _axis_stencil(grid.sides[axis], grid.centring, grid.spacing[k], derivative, order, bias)


@lru_cache(maxsize=1024)
def _axis_stencil(
    sides: tuple[Side, Side], centring: str, h: float, derivative: int, order: int, bias: int
) -> AxisStencil:
    offsets = interior_offsets(derivative, order, bias)
    weights = fit(tuple((Fraction(o), 0) for o in offsets), derivative, Fraction(0))
    kept = [(o, _scaled(w, h, derivative)) for o, w in zip(offsets, weights, strict=True) if w]
    periodic = isinstance(sides[0], Periodic)
    rows: list[tuple[Row, ...]] = [(), ()]
    if not periodic:
        for end, (side, reach) in enumerate(zip(sides, (-offsets[0], offsets[-1]), strict=True)):
            rows[end] = tuple(
                _wall_row(side, centring, end, len(offsets), derivative, Fraction(i), h) for i in range(reach)
            )
    return AxisStencil(
        tuple(o for o, _ in kept), tuple(w for _, w in kept), periodic, rows[0], rows[1], minimum=len(offsets)
    )


def _wall_row(side: Side, centring: str, end: int, count: int, derivative: int, at: Fraction, h: float) -> Row:
    """The row at a position from an end (0 low, 1 high). Seen from the high end the axis is reversed: odd derivatives
    change sign, that of the result and that of the wall's number."""
    data, walls = known(side, centring, count)
    sign = -1 if end and derivative % 2 else 1
    weights = fit(data, derivative, at)
    kept = [(i, _scaled(sign * w, h, derivative)) for i, w in enumerate(weights[walls:]) if w]
    constant = 0.0
    if walls:
        order = data[0][1]
        number = side.number * (-1 if end and order % 2 else 1)
        constant = _scaled(sign * weights[0], h, derivative - order) * number
    return Row(tuple(i for i, _ in kept), tuple(w for _, w in kept), constant)


def ghost_rows(
    grid: Grid, axis: str, count: int, depth: int, known_outside: bool = True
) -> tuple[tuple[Row, ...], ...]:
    """Values of the points outside the two ends, 1 .. depth steps away, from the `count` numbers nearest each end.

    With `known_outside=False` the wall's number is not used, as for a coefficient that the boundary says nothing about.
    Empty for a periodic axis.
    """
    if grid.periodic[axis]:
        return ((), ())
    h = grid.spacing[grid.index(axis)]
    return tuple(
        tuple(
            _wall_row(side if known_outside else OneSided(), grid.centring, end, count, 0, Fraction(-g), h)
            for g in range(1, depth + 1)
        )
        for end, side in enumerate(grid.sides[axis])
    )


def _scaled(weight: Fraction, h: float, power: int) -> float:
    """weight / h^power, rounded once in the weight."""
    return float(weight) / h**power if power >= 0 else float(weight) * h**-power


def check_points(stencil: AxisStencil, n: int, axis: str, caller: str, name: str = "u") -> None:
    if n < stencil.minimum:
        raise ValueError(
            f"{caller}: `{name}` must have at least {stencil.minimum} points along {axis!r} for this formula; got {n}. "
            "Refine the grid or lower its order."
        )


def apply(stencil: AxisStencil, u: Tensor, dim: int) -> Tensor:
    """D u + c along one dimension of a tensor of any strides; float32 sums for half precision. Plain torch."""
    n = u.shape[dim]
    check_points(stencil, n, f"dimension {dim}", "apply")
    dtype = u.dtype
    u = u.float() if dtype in (torch.float16, torch.bfloat16) else u
    u = u.movedim(dim, -1)
    if stencil.periodic:
        reach = max(map(abs, stencil.offsets))
        index = torch.arange(-reach, n + reach, device=u.device) % n
        found = _interior(stencil, u.index_select(-1, index), reach, n)
    else:
        low, high = len(stencil.low), len(stencil.high)
        parts = [_row(row, u) for row in stencil.low]
        if n > low + high:
            parts.append(_interior(stencil, u, low, n - low - high))
        parts += [_row(row, u.flip(-1)) for row in reversed(stencil.high)]
        found = torch.cat(parts, dim=-1)
    return found.to(dtype).movedim(-1, dim)


def _interior(stencil: AxisStencil, u: Tensor, first: int, count: int) -> Tensor:
    terms = [w * u.narrow(-1, first + o, count) for o, w in zip(stencil.offsets, stencil.weights, strict=True)]
    return sum(terms[1:], terms[0])


def _row(row: Row, u: Tensor) -> Tensor:
    total = torch.full_like(u[..., :1], row.constant)
    for i, w in zip(row.offsets_from_that_end, row.weights, strict=True):
        total = total + w * u[..., i : i + 1]
    return total
