"""Uniform grids of one to three axes: spacing, boundaries, order. A value, free of fields and devices."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any

import torch
from torch import Tensor

from pinnfuse.errors import nearest
from pinnfuse.grid import boundary as bc
from pinnfuse.grid.boundary import Dirichlet, Periodic, Side
from pinnfuse.kernels.grid.hashing import hash_once

ORDERS = (2, 4, 6)
CENTRINGS = ("node", "cell")
DTYPES = (torch.float16, torch.bfloat16, torch.float32, torch.float64)
"""Of fields."""


@hash_once
@dataclass(frozen=True, init=False)
class Grid:
    """A uniform grid.

    Args:
        axes: names of the axes, `"x y"` or `("x", "y")`, in the order of the trailing dimensions of a field.
        spacing: distance of neighbouring points, > 0: one number for all axes, one per axis, or `{axis: number}`.
        boundary: what is known at the ends: one entry for all axes or `{axis: entry}`. An entry is `Periodic()`,
            `Dirichlet(value)`, `Neumann(derivative along the axis)`, `OneSided()`, a name ("periodic", "dirichlet",
            "neumann", "one-sided", with value 0), or a pair (low, high). There is no default.
        order: order of accuracy of differences, 2, 4 or 6.
        centring: "node" or "cell"; says where the walls lie (see `pinnfuse.grid.boundary`).
        origin: coordinate of the low end: the first point of a node-centred axis (the wall, where the low side is
            Dirichlet), or the edge of the first cell.
        length: extent of the axes, optional; then a field's number of points is checked against it.
        shape: number of points per axis, optional; then a field's shape is checked against it.

    Attributes:
        sides: `{axis: (low, high)}`.
        periodic: `{axis: bool}`.

    Raises:
        ValueError: a spacing that is not positive, unknown names, a half periodic axis, a duplicated end point.
    """

    axes: tuple[str, ...]
    spacing: tuple[float, ...]
    _sides: tuple[tuple[Side, Side], ...]
    order: int
    centring: str
    origin: tuple[float, ...]
    length: tuple[float | None, ...]
    shape: tuple[int | None, ...]

    def __init__(
        self,
        axes: str | Sequence[str],
        spacing: Any,
        *,
        boundary: Any,
        order: int = 2,
        centring: str = "node",
        origin: Any = 0.0,
        length: Any = None,
        shape: Any = None,
    ):
        names = tuple(axes.replace(",", " ").split()) if isinstance(axes, str) else tuple(_several(axes) or ())
        known = all(isinstance(name, str) and name.isidentifier() for name in names)
        if not known or not 1 <= len(names) <= 3 or len(set(names)) != len(names):
            raise ValueError(f"Grid: `axes` must be one to three distinct names, e.g. 'x y'; got {axes!r}.")
        if order not in ORDERS:
            raise ValueError(f"Grid: `order` must be one of {ORDERS}; got {order!r}.")
        if centring not in CENTRINGS:
            raise ValueError(f"Grid: unknown `centring`; got {centring!r}. {nearest(str(centring), CENTRINGS)}")
        spacing = _numbers("spacing", spacing, names)
        for name, h in zip(names, spacing, strict=True):
            if not h > 0:
                raise ValueError(f"Grid: `spacing` must be > 0 along every axis; got {h:g} along {name!r}.")
        if isinstance(boundary, Mapping):
            _known("boundary", boundary, names)
            sides = tuple(bc.pair(boundary[name], name) for name in names)
        else:
            sides = tuple(bc.pair(boundary, name) for name in names)
        lengths = _numbers("length", length, names, optional=True)
        for name, extent in zip(names, lengths, strict=True):
            if extent is not None and not extent > 0:
                raise ValueError(f"Grid: `length` must be > 0 along every axis; got {extent:g} along {name!r}.")
        shapes = _numbers("shape", shape, names, optional=True)
        if any(n is not None and n != round(n) for n in shapes):
            raise ValueError(f"Grid: `shape` must be whole numbers of points; got {shape!r}.")
        for key, value in {
            "axes": names,
            "spacing": spacing,
            "_sides": sides,
            "order": int(order),
            "centring": centring,
            "origin": _numbers("origin", origin, names),
            "length": lengths,
            "shape": tuple(None if n is None else int(n) for n in shapes),
        }.items():
            object.__setattr__(self, key, value)
        for axis, n in zip(self.axes, self.shape, strict=True):
            if n is not None:
                self._check_points(axis, n, "Grid")

    @classmethod
    def from_coordinates(
        cls,
        coordinates: Mapping[str, Any],
        *,
        boundary: Any,
        period: Mapping[str, float] | None = None,
        order: int = 2,
        centring: str = "node",
    ) -> Grid:
        """The grid of uniform coordinates, `{axis: 1-D values}`; `period` of periodic axes finds a repeated end point.

        Raises:
            ValueError: coordinates that are not uniform and increasing, or whose last point repeats the first.
        """
        names, spacing, origin, shape, length = tuple(coordinates), [], [], [], []
        _known("period", period or {}, names, complete=False)
        if isinstance(boundary, Mapping):
            _known("boundary", boundary, names)
        for name in names:
            try:
                x = torch.as_tensor(coordinates[name]).double().cpu()
            except (TypeError, ValueError, RuntimeError) as error:
                raise ValueError(f"Grid.from_coordinates: {name!r} must hold numbers; got {error}.") from error
            if x.dim() != 1 or len(x) < 2:
                raise ValueError(
                    f"Grid.from_coordinates: {name!r} must be 1-D with two points or more; got {list(x.shape)}. "
                    "Take one row of a meshgrid."
                )
            steps = x.diff()
            h = float((x[-1] - x[0]) / (len(x) - 1))
            tolerance = 1e-4 * abs(h) + 4e-7 * float(x.abs().max())  # of coordinates stored in float32
            if not h > 0 or float((steps - h).abs().max()) > tolerance:
                raise ValueError(
                    f"Grid.from_coordinates: {name!r} must increase uniformly; its steps range from "
                    f"{float(steps.min()):g} to {float(steps.max()):g}. Interpolate the field to a uniform axis first."
                )
            sides = bc.pair(boundary[name] if isinstance(boundary, Mapping) else boundary, name)
            first = float(x[0])
            if centring == "cell":
                first -= h / 2
            elif isinstance(sides[0], Dirichlet):
                first -= h
            spacing.append(h)
            origin.append(first)
            shape.append(len(x))
            length.append((period or {}).get(name))
        return cls(
            names, spacing, boundary=boundary, order=order, centring=centring, origin=origin, length=length, shape=shape
        )

    @property
    def dimension(self) -> int:
        return len(self.axes)

    @cached_property
    def sides(self) -> dict[str, tuple[Side, Side]]:
        return dict(zip(self.axes, self._sides, strict=True))

    @cached_property
    def periodic(self) -> dict[str, bool]:
        return {axis: isinstance(low, Periodic) for axis, (low, _) in self.sides.items()}

    def index(self, axis: str) -> int:
        """Position of an axis among the axes; raises for an unknown one."""
        if axis not in self.axes:
            raise ValueError(f"Grid: unknown axis {axis!r}. {nearest(str(axis), self.axes)}")
        return self.axes.index(axis)

    def coordinates(
        self, shape: Sequence[int], device: torch.device | str | None = None, dtype: torch.dtype | None = None
    ) -> dict[str, Tensor]:
        """Coordinates of the points of a field whose trailing shape is `shape`, one 1-D tensor per axis."""
        if len(shape) != self.dimension:
            raise ValueError(f"Grid.coordinates: `shape` needs one number for each of {self.axes}; got {shape}.")
        found = {}
        for axis, n, h, start in zip(self.axes, shape, self.spacing, self.origin, strict=True):
            shift = 0.5 if self.centring == "cell" else float(isinstance(self.sides[axis][0], Dirichlet))
            points = start + h * (torch.arange(n, dtype=torch.float64) + shift)
            found[axis] = points.to(device=device, dtype=dtype or torch.get_default_dtype())
        return found

    def check(self, field: Tensor, caller: str, name: str = "u", leading: int = 0) -> tuple[int, ...]:
        """The spatial shape of a field `[..., *space]` with at least `leading` dimensions before the space.

        Raises:
            ValueError: too few dimensions, a dtype that is none of `DTYPES`, a tensor that is not dense, or a number of
                points that contradicts `length`/`shape`.
        """
        check_real(field, caller, name)
        return _space(self, field.shape, caller, name, leading)

    def _check_shape(self, shape: tuple[int, ...], caller: str, name: str, leading: int) -> tuple[int, ...]:
        d = self.dimension
        if len(shape) < d + leading:
            expected = ", ".join(["...", *(["components"] * leading), *self.axes])
            raise ValueError(f"{caller}: `{name}` must be [{expected}]; got {list(shape)}.")
        space = tuple(shape[-d:])
        for axis, n in zip(self.axes, space, strict=True):
            self._check_points(axis, n, caller, name)
        return space

    def _check_points(self, axis: str, n: int, caller: str, name: str = "shape") -> None:
        k = self.axes.index(axis)
        wanted, length, h = self.shape[k], self.length[k], self.spacing[k]
        if wanted is not None and n != wanted:
            raise ValueError(f"{caller}: `{name}` must have {wanted} points along {axis!r} (Grid shape); got {n}.")
        if n < 1:
            raise ValueError(f"{caller}: `{name}` must have points along {axis!r}; got {n}.")
        if length is None:
            return
        extent = n + self._missing(axis)
        if abs(extent * h - length) <= 1e-3 * h:
            return
        if self.periodic[axis] and abs((n - 1) * h - length) <= 1e-3 * h:
            raise ValueError(
                f"{caller}: `{name}` has {n} points along the periodic axis {axis!r} of length {length:g} = "
                f"{n - 1} x {h:g}: its last point repeats the first. Drop it: {name}.narrow({k - self.dimension}, 0, "
                f"{n - 1})."
            )
        raise ValueError(
            f"{caller}: `{name}` has {n} points along {axis!r}, which span {extent * h:g} at spacing {h:g}; the grid's "
            f"length is {length:g}, {round(length / h) - self._missing(axis)} points. Change spacing or length."
        )

    def _missing(self, axis: str) -> int:
        """Intervals between the walls, minus points."""
        if self.periodic[axis] or self.centring == "cell":
            return 0
        return -1 + sum(isinstance(side, Dirichlet) for side in self.sides[axis])


@lru_cache(maxsize=4096)
def _space(grid: Grid, shape: tuple[int, ...], caller: str, name: str, leading: int) -> tuple[int, ...]:
    """`Grid._check_shape`, once for each shape: every call of an operator asks."""
    return grid._check_shape(shape, caller, name, leading)


def check_grid(grid: Any, caller: str) -> Grid:
    """ValueError for anything that is no grid: a spacing, say, as other libraries take it."""
    if not isinstance(grid, Grid):
        raise ValueError(
            f"{caller}: `grid` must be a pinnfuse.Grid, which holds spacing and boundary, as Grid('x', spacing=0.1, "
            f"boundary='periodic'); got {type(grid).__name__}."
        )
    return grid


def check_order(grid: Any, order: int | None, caller: str) -> int:
    """The order of an operator, the grid's own where none is given. ValueError unless it is one of `ORDERS`."""
    own = check_grid(grid, caller).order
    order = own if order is None else order
    if order not in ORDERS:
        raise ValueError(f"{caller}: `order` must be 2, 4 or 6; got {order!r}.")
    return order


def check_real(field: Any, caller: str, name: str) -> None:
    """ValueError for what is no dense tensor of real numbers in floating point."""
    if not isinstance(field, Tensor):
        raise ValueError(f"{caller}: `{name}` must be a tensor; got {type(field).__name__}. Use torch.as_tensor.")
    if field.dtype not in DTYPES:
        remedy = f"Take {name}.real" if field.is_complex() else f"Use {name}.float()"
        raise ValueError(
            f"{caller}: `{name}` must be floating point of 16, 32 or 64 bits; got {field.dtype}. {remedy}."
        )
    if field.layout is not torch.strided:
        raise ValueError(f"{caller}: `{name}` must be a dense tensor; got {field.layout}. Use {name}.to_dense().")


def _several(given: Any) -> list[Any] | None:
    """Entries of a sequence, an array or a tensor; None for a single thing."""
    if isinstance(given, str) or not isinstance(given, Iterable) or getattr(given, "ndim", 1) == 0:
        return None
    return list(given)


def _per_axis(argument: str, given: Any, names: Sequence[str], optional: bool = False) -> list[Any]:
    if isinstance(given, Mapping):
        _known(argument, given, names, complete=not optional)
        return [given.get(name) for name in names]
    entries = _several(given)
    if entries is not None:
        if len(entries) != len(names):
            raise ValueError(
                f"Grid: `{argument}` must be one number or one for each of {tuple(names)}; got {len(entries)}."
            )
        return entries
    return [given] * len(names)


def _numbers(argument: str, given: Any, names: Sequence[str], optional: bool = False) -> tuple[Any, ...]:
    found: list[float | None] = []
    for entry in _per_axis(argument, given, names, optional):
        if entry is None and optional:
            found.append(None)
            continue
        try:
            number = float(entry)
        except (TypeError, ValueError):
            number = math.nan
        if not math.isfinite(number):
            raise ValueError(f"Grid: `{argument}` must be finite numbers; got {entry!r}.")
        found.append(number)
    return tuple(found)


def _known(argument: str, given: Mapping[str, Any], names: Sequence[str], complete: bool = True) -> None:
    for name in given:
        if name not in names:
            raise ValueError(f"Grid: unknown axis in `{argument}`; got {name!r}. {nearest(str(name), names)}")
    missing = [name for name in names if name not in given]
    if complete and missing:
        raise ValueError(f"Grid: `{argument}` must name every axis; missing {missing}.")
