"""Discrete residuals in plain torch: stencils one after the other, differentiable. In float64 the truth."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache

import torch
from torch import Tensor

from pinnfuse.grid import stencils
from pinnfuse.grid.boundary import OneSided
from pinnfuse.grid.discretise import Composite, Discretisation, Leaf, discretise
from pinnfuse.grid.grid import Grid
from pinnfuse.grid.schemes import TimeScheme
from pinnfuse.grid.stencils import AxisStencil, Row
from pinnfuse.pde import PDE
from pinnfuse.remembered import Remembered


@dataclass(frozen=True, eq=False)
class Scheme:
    """A discrete form on given grids: one per field, and times t_n = start + n step. Equal only to itself, so that
    looking up its kernels costs nothing."""

    form: Discretisation
    grids: tuple[Grid, ...]
    step: float = 0.0
    start: float = 0.0

    def __reduce__(self):
        scheme = None if self.form.time is None else self.form.scheme
        return build, (self.form.pde, self.grids, scheme, self.step, self.start)

    def __deepcopy__(self, memo: object) -> Scheme:
        return self

    @property
    def grid(self) -> Grid:
        """What all fields share: axes, spacing, centring, origin."""
        return self.grids[0]

    @cached_property
    def walls(self) -> bool:
        """Some axis is not periodic."""
        return not all(self.grid.periodic.values())

    @cached_property
    def checked(self) -> Remembered[object, tuple[int, ...]]:
        """Fields that were found to fit, by shape and dtype, with the shape of their residuals."""
        return Remembered(1024)

    @cached_property
    def first(self) -> dict[str, float]:
        """Coordinates of the first point."""
        one = self.grid.coordinates([1] * self.grid.dimension, dtype=torch.float64)
        return {axis: float(x[0]) for axis, x in one.items()}

    @cached_property
    def outside(self) -> Grid:
        """The grid of an expression, of which nothing is known at walls."""
        return one_sided(self.grid)

    def grid_of(self, part: Leaf | Composite) -> Grid:
        return self.grids[self.form.pde.fields.index(part.field)] if isinstance(part, Leaf) else self.outside

    def stencils(self, part: Leaf | Composite) -> tuple[tuple[int, AxisStencil], ...]:
        """(axis number, formula) in the order of application. The number on a wall enters with the first: along the
        wall it is constant, so what a second one differentiates is zero on its own wall."""
        grid = self.grid_of(part)
        found: list[tuple[int, AxisStencil]] = []
        for k, order in enumerate(part.index):
            if order:
                formula = stencils.axis_stencil(grid, grid.axes[k], order)
                found.append((k, formula.linear() if found else formula))
        return tuple(found)

    def describe(self) -> tuple[str, ...]:
        """One line per stencil."""
        lines = []
        for part in self.form.parts:
            what = (
                f" of {part.expression.xreplace({a.symbol: a.symbol.func(a.name) for a in part.arguments})}"
                if (isinstance(part, Composite))
                else ""
            )
            levels = f", levels {', '.join(f'{c:g} u^n+{k}' for k, c in part.levels)}" if isinstance(part, Leaf) else ""
            for k, formula in self.stencils(part):
                walls = "periodic" if formula.periodic else f"{len(formula.low)} + {len(formula.high)} rows at walls"
                points = " ".join(map(str, formula.offsets))
                lines.append(f"{part.name}{what}: points {points} along {self.grid.axes[k]}, {walls}{levels}")
        return tuple(lines)

    @cached_property
    def minimum(self) -> tuple[int, ...]:
        """Least number of points per axis."""
        least = [1] * self.grid.dimension
        for part in self.form.parts:
            for k, formula in self.stencils(part):
                rows = (*formula.low, *formula.high)
                reach = max((1 + i for row in rows for i in row.offsets_from_that_end), default=1)
                least[k] = max(least[k], formula.minimum, len(formula.low) + len(formula.high) + 1, reach)
        return tuple(least)


@lru_cache(maxsize=256)
def build(pde: PDE, grids: tuple[Grid, ...], scheme: TimeScheme | None, step: float, start: float) -> Scheme:
    """The discrete form of a PDE; `scheme` None for a steady equation. The same object for the same arguments."""
    return Scheme(discretise(pde, grids[0].axes, scheme, step), grids, step, start)


def one_sided(grid: Grid) -> Grid:
    """The same points, and nothing known at the walls."""
    return Grid(
        grid.axes,
        grid.spacing,
        boundary={a: grid.sides[a] if grid.periodic[a] else OneSided() for a in grid.axes},
        order=grid.order,
        centring=grid.centring,
        origin=grid.origin,
    )


def extend(u: Tensor, grid: Grid, k: int, count: int, linear: bool) -> Tensor:
    """`u` with count // 2 points more at both ends of axis number k: repeated, or on the polynomial through the `count`
    numbers nearest the end, which makes the interior formula there the row near the wall."""
    axis, dim, reach = grid.axes[k], k - grid.dimension, count // 2
    if grid.periodic[axis]:
        return torch.cat([u.narrow(dim, u.shape[dim] - reach, reach), u, u.narrow(dim, 0, reach)], dim)
    low, high = stencils.ghost_rows(grid, axis, count, reach)
    last = u.shape[dim] - 1

    def outside(row: Row, end: bool) -> Tensor:
        pairs = zip(row.offsets_from_that_end, row.weights, strict=True)
        terms = [w * u.narrow(dim, last - i if end else i, 1) for i, w in pairs]
        total = sum(terms[1:], terms[0]) if terms else torch.zeros_like(u.narrow(dim, 0, 1))  # the point on the wall
        return total if linear or not row.constant else total + row.constant

    return torch.cat([*(outside(row, False) for row in reversed(low)), u, *(outside(row, True) for row in high)], dim)


def apply(formula: AxisStencil, wide: Tensor, n: int, dim: int) -> Tensor:
    """The interior formula on n points, from `extend`."""
    reach = (wide.shape[dim] - n) // 2
    return weighted(
        [(w, wide.narrow(dim, reach + o, n)) for o, w in zip(formula.offsets, formula.weights, strict=True)]
    )


def weighted(terms: Sequence[tuple[float, Tensor]]) -> Tensor:
    """A sum of weights times tensors; those with weights of one size are added first."""
    groups: dict[float, Tensor] = {}
    signs: dict[float, float] = {}
    for w, u in sorted(terms, key=lambda term: -term[0]):
        size = abs(w)
        if size not in groups:
            groups[size], signs[size] = u, 1.0 if w > 0 else -1.0
        else:
            groups[size] = groups[size] + u if w * signs[size] > 0 else groups[size] - u
    total = [g if size * signs[size] == 1 else size * signs[size] * g for size, g in groups.items()]
    return sum(total[1:], total[0])


def residuals(
    scheme: Scheme,
    fields: Tensor,
    coordinates: Sequence[Tensor],
    parameters: Mapping[str, Tensor],
    data: Mapping[str, Tensor],
) -> Tensor:
    """Residuals [B, T', E, *space] of fields [B, T, C, *space].

    Args:
        coordinates: of the points, one 1-D tensor per axis.
        parameters: each 0-d or [B].
        data: each broadcasts to [B, T', *space].
    """
    form, d = scheme.form, scheme.grid.dimension
    count = fields.shape[1] - form.scheme.levels + 1
    batched = {name: p.reshape(-1, *(1,) * (d + 1)) if p.dim() else p for name, p in parameters.items()}

    extended: dict[tuple[object, ...], Tensor] = {}  # derivatives along one axis share the points outside

    def combined(leaf: Leaf) -> Tensor:
        channel = fields[:, :, form.pde.fields.index(leaf.field)]
        return weighted([(c, channel[:, level : level + count]) for level, c in leaf.levels])

    def differentiated(values: Tensor, part: Leaf | Composite) -> Tensor:
        source = (part.field, part.levels) if isinstance(part, Leaf) else (part.expression,)
        for number, (k, formula) in enumerate(scheme.stencils(part)):
            key = (*source, k, formula.minimum)
            if number or key not in extended:
                wide = extend(values, scheme.grid_of(part), k, formula.minimum, linear=number > 0)
                if not number:
                    extended[key] = wide
            else:
                wide = extended[key]
            values = apply(formula, wide, values.shape[k - d], k - d)
        return values

    leaves = {leaf.symbol: differentiated(combined(leaf), leaf) for leaf in form.leaves}
    composites = []
    for composite, function in zip(form.composites, form.composite_functions, strict=True):
        values = [leaves[leaf.symbol] for leaf in composite.arguments]
        (expression,) = function(*values)
        composites.append(differentiated(expression, composite))
    points = [x.reshape(-1, *(1,) * (d - 1 - k)) for k, x in enumerate(coordinates)]
    if form.time is not None:
        steps = torch.arange(count, dtype=torch.float64, device=fields.device)
        points.append((scheme.start + scheme.step * steps).to(fields.dtype).reshape(-1, *(1,) * d))
    columns = form.residual_function(
        *leaves.values(),
        *composites,
        *points,
        *(batched[name] for name in form.parameters),
        *(data[name] for name in form.pde.data),
    )
    shape = (fields.shape[0], count, *fields.shape[3:])
    return torch.stack([torch.as_tensor(c).to(fields).expand(shape) for c in columns], dim=2)
