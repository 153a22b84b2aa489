"""A user's own stencil as an operator: forward, adjoint and rows at walls, by the same kernels as the library's.

    (L u)_i = sum_k w_k u_{i + o_k}

Points outside walls are those of the polynomial through the `order + 1` numbers nearest the end, the wall's own among
them, along each axis in turn. The adjoint is the transposed operator.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache

from torch import Tensor

from pinnfuse.grid.grid import Grid
from pinnfuse.grid.linear import LinearOperator, Term
from pinnfuse.grid.stencils import AxisStencil, ghost_rows

Stencil = Mapping[int | tuple[int, ...], float]


class StencilOperator:
    """`operator(u)`, `[..., *space]` to the same shape; made by `custom`."""

    def __init__(self, operator: LinearOperator, grid: Grid, backend: str):
        self._operator, self.grid, self.backend = operator, grid, backend

    def __call__(self, u: Tensor) -> Tensor:
        self.grid.check(u, self._operator.name)
        return self._operator(u, self.grid.axes, self.backend, (True, True))


def custom(
    stencil: Stencil | Sequence[tuple[tuple[int, ...], float]],
    grid: Grid,
    *,
    name: str = "custom",
    backend: str = "auto",
) -> StencilOperator:
    """An operator from offsets and weights.

    Args:
        stencil: `{offset: weight}`, offsets as tuples with one entry per axis (plain integers on one axis); weights
            include the division by spacings.
        grid: gives axes and boundaries.
        name: for error messages and `backends(name=...)`.

    Example: the nine-point Laplacian of a square grid of spacing h,

        custom({(0, 0): -20 / (6 * h**2), **{o: 4 / (6 * h**2) for o in ((1, 0), (-1, 0), (0, 1), (0, -1))},
                **{o: 1 / (6 * h**2) for o in ((1, 1), (1, -1), (-1, 1), (-1, -1))}}, grid)

    Raises:
        ValueError: no entries, or offsets that do not fit the axes.
    """
    entries = stencil.items() if isinstance(stencil, Mapping) else stencil
    found: dict[tuple[int, ...], float] = {}
    for offset, weight in entries:
        place = (offset,) if isinstance(offset, int) else tuple(offset)
        if len(place) != grid.dimension or not all(isinstance(o, int) for o in place):
            raise ValueError(
                f"custom: offsets must be tuples of {grid.dimension} integers, one for each of {grid.axes}; got "
                f"{offset!r}."
            )
        found[place] = found.get(place, 0.0) + float(weight)
    if not found:
        raise ValueError("custom: `stencil` must hold at least one entry {offset: weight}; got none.")
    return StencilOperator(_operator(tuple(sorted(found.items())), grid, name), grid, backend)


@lru_cache(maxsize=256)
def _operator(entries: tuple[tuple[tuple[int, ...], float], ...], grid: Grid, name: str) -> LinearOperator:
    terms = []
    for offset, weight in entries:
        factors = tuple(
            (k, _shift(grid, axis, o)) for k, (axis, o) in enumerate(zip(grid.axes, offset, strict=True)) if o
        )
        terms.append(Term(weight, 0, factors))
    return LinearOperator(name, grid.dimension, 1, (tuple(terms),))


@lru_cache(maxsize=256)
def _shift(grid: Grid, axis: str, offset: int) -> AxisStencil:
    """u at another point of the axis; rows that would read outside read the ghost point."""
    count, reach = grid.order + 1, abs(offset)
    low, high = ghost_rows(grid, axis, count, reach)
    periodic = grid.periodic[axis]
    ends = (
        ((), ())
        if periodic
        else (tuple(reversed(low)) if offset < 0 else (), tuple(reversed(high)) if offset > 0 else ())
    )
    return AxisStencil((offset,), (1.0,), periodic, *ends, reach + 1 if periodic else max(count, reach + 1))
