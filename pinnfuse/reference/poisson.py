"""Poisson on the unit square with u = 0 on the boundary, by Chebyshev collocation."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import numpy as np
from numpy.typing import ArrayLike
from scipy.linalg import solve_sylvester

from pinnfuse.reference import chebyshev
from pinnfuse.reference.base import Array, FunctionReference


def solve(source: Callable[[Array, Array], Array], n: int) -> Array:
    """u with -lap u = source at the (n + 1)^2 Chebyshev nodes of [0, 1]^2, indexed [x, y].

    The two second derivatives act from left and right, D U + U D^T = -F: a Sylvester equation.
    """
    nodes = (chebyshev.nodes(n) + 1) / 2
    inner = nodes[1:-1]
    second = 4 * chebyshev.differentiation(n, 2)[1:-1, 1:-1]
    u = np.zeros((n + 1, n + 1))
    u[1:-1, 1:-1] = solve_sylvester(second, second.T, -source(inner[:, None], inner))
    return u


def poisson(source: Callable[[Array, Array], Array], axes: Mapping[str, ArrayLike], n: int = 80) -> FunctionReference:
    """Reference in coordinates x, y for a source that is smooth and small at the corners."""
    values: list[Array] = []

    def function(points: Array) -> Array:
        if not values:
            values.append(solve(source, n))
        x, y = points.T
        across = chebyshev.interpolation(n, 2 * x - 1) @ values[0]
        return np.einsum("nj,nj->n", across, chebyshev.interpolation(n, 2 * y - 1))[:, None]

    return FunctionReference(("u",), axes, function)
