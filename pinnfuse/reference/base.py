"""What a reference solution offers, and the two plain kinds: a closed form and scattered data."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import sympy
from numpy.typing import ArrayLike, NDArray

from pinnfuse.pde import parse_expression

Array = NDArray[np.floating[Any]]  # float64 throughout; numpy types most results as "some float"
Complex = NDArray[np.complexfloating[Any, Any]]


class Reference(ABC):
    """The solution of a problem, in float64. Columns follow the order of `coordinates` and `fields`."""

    fields: tuple[str, ...]
    coordinates: tuple[str, ...]

    @abstractmethod
    def solution(self, points: ArrayLike) -> Array:
        """[N, d] points -> [N, m] values; NaN where the solution is unknown or masked."""

    @abstractmethod
    def grid(self) -> dict[str, Array]:
        """{coordinate: increasing values}: a tensor grid of moderate size, for plots and errors."""

    def on_grid(self) -> dict[str, Array]:
        """{field: array}, one axis per coordinate of `grid()`, in its order."""
        axes = self.grid()
        values = self.solution(tensor_points(axes))
        shape = [len(axis) for axis in axes.values()]
        return {name: values[:, i].reshape(shape) for i, name in enumerate(self.fields)}

    def evaluation(self) -> tuple[Array, Array]:
        """Points [N, d] and values [N, m] on which errors are measured: the grid, in C order."""
        values = self.on_grid()
        return tensor_points(self.grid()), np.stack([values[name].ravel() for name in self.fields], axis=1)

    def _checked(self, points: ArrayLike) -> Array:
        array = np.asarray(points, dtype=np.float64)
        if array.ndim != 2 or array.shape[1] != len(self.coordinates):
            raise ValueError(
                f"{type(self).__name__}.solution: `points` must be [N, {len(self.coordinates)}] with columns "
                f"{', '.join(self.coordinates)}; got shape {array.shape}."
            )
        return array


def tensor_points(axes: Mapping[str, Array]) -> Array:
    """[N, d] points of a tensor grid, the last coordinate fastest."""
    return np.stack(np.meshgrid(*axes.values(), indexing="ij"), axis=-1).reshape(-1, len(axes))


class FunctionReference(Reference):
    """A function of the points, with a grid."""

    def __init__(
        self,
        fields: Sequence[str],
        axes: Mapping[str, ArrayLike],
        function: Callable[[Array], Array],
        points: ArrayLike | None = None,
    ) -> None:
        """
        Args:
            fields: names of the columns of the result.
            axes: {coordinate: increasing values} of the grid, in the order of the coordinates.
            function: [N, d] -> [N, m], called with float64.
            points: [N, d] on which errors are measured, where a tensor grid is too large; None takes the grid.
        """
        self.fields, self.coordinates = tuple(fields), tuple(axes)
        self._axes = {name: np.asarray(axis, dtype=np.float64) for name, axis in axes.items()}
        self._function = function
        self._points = None if points is None else self._checked(points)

    def solution(self, points: ArrayLike) -> Array:
        return self._function(self._checked(points))

    def grid(self) -> dict[str, Array]:
        return dict(self._axes)

    def evaluation(self) -> tuple[Array, Array]:
        return super().evaluation() if self._points is None else (self._points, self.solution(self._points))


class Unknown(FunctionReference):
    """No solution to compare with: errors are NaN, and figures show the prediction alone, on this grid."""

    def __init__(self, fields: Sequence[str], axes: Mapping[str, ArrayLike]) -> None:
        """
        Args:
            fields: names of the PDE's fields.
            axes: {coordinate: increasing values} of the grid, in the order of the coordinates.
        """
        super().__init__(fields, axes, lambda points: np.full((len(points), len(self.fields)), np.nan))


class ClosedForm(FunctionReference):
    """A solution given by formulas: `ClosedForm({"u": "sin(pi*x)*exp(-a*t)"}, {"t": ..., "x": ...}, {"a": 2.0})`."""

    def __init__(
        self,
        formulas: Mapping[str, str],
        axes: Mapping[str, ArrayLike],
        constants: Mapping[str, float] | None = None,
        points: ArrayLike | None = None,
    ) -> None:
        """
        Args:
            formulas: {field: text in the coordinates and constants}.
            axes: {coordinate: increasing values} of the grid, in the order of the coordinates.
            constants: {name: value}.
            points: as in `FunctionReference`.

        Raises:
            ValueError: a formula does not parse.
        """
        symbols = {name: sympy.Symbol(name) for name in [*axes, *(constants or {})]}
        values = {symbols[name]: value for name, value in (constants or {}).items()}
        self.formulas = {name: parse_expression(text, symbols) for name, text in formulas.items()}
        arguments = [symbols[name] for name in axes]
        compiled = sympy.lambdify(arguments, [f.subs(values) for f in self.formulas.values()], "numpy", cse=True)

        def function(points: Array) -> Array:
            columns = compiled(*points.T)
            return np.stack([np.broadcast_to(column, len(points)) for column in columns], axis=1).astype(np.float64)

        super().__init__(tuple(formulas), axes, function, points)


class Scattered(Reference):
    """Given values at given points, for problems that start from measurements.

    Between the points the values are interpolated linearly in each simplex of the points; outside their convex hull
    they are NaN.
    """

    def __init__(
        self,
        fields: Sequence[str],
        coordinates: Sequence[str],
        points: ArrayLike,
        values: ArrayLike,
        grid: Sequence[int],
    ) -> None:
        """
        Args:
            points: [N, d].
            values: [N, m]; NaN where a field was not measured.
            grid: number of grid values of each coordinate, spread over the range of the data; 1 takes the middle.
        """
        self.fields, self.coordinates = tuple(fields), tuple(coordinates)
        self.points = self._checked(points)
        self.values = np.asarray(values, dtype=np.float64)
        low, high = self.points.min(0), self.points.max(0)
        self._low, self._span = low, np.where(high > low, high - low, 1.0)
        self._axes = {
            name: np.linspace(low[i], high[i], grid[i]) if grid[i] > 1 else np.array([np.median(self.points[:, i])])
            for i, name in enumerate(self.coordinates)
        }

    def solution(self, points: ArrayLike) -> Array:
        from scipy.interpolate import LinearNDInterpolator

        inside = (self.points - self._low) / self._span  # all coordinates of one size, as Delaunay wants
        interpolate = LinearNDInterpolator(inside, self.values)
        return interpolate((self._checked(points) - self._low) / self._span)

    def grid(self) -> dict[str, Array]:
        return dict(self._axes)

    def evaluation(self) -> tuple[Array, Array]:
        """The given points and values themselves."""
        return self.points, self.values
