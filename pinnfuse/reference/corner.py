r"""Flow in the corner between a moving lid and a wall at rest, to second order in the distance.

With X the distance from the wall, Y the distance below the lid, theta = atan2(Y, X), and psi_1 + Re psi_2 the stream
function, u = dpsi/dy, y = 1 - Y,

    lap^2 psi_1 = 0,   lap^2 psi_2 = -(psi_1Y lap psi_1X - psi_1X lap psi_1Y),
    psi = psi_X = psi_Y = 0 on both walls, but psi_1Y = -1 (speed 1) on the lid Y = 0.

psi_1 = r f(theta) is Stokes flow (Moffatt, J. Fluid Mech. 18 (1964) 1-18); psi_2 = r^2 g(theta) is the first effect of
inertia (Gupta, Manohar & Noble, Computers & Fluids 9 (1981) 379). Both are polynomials in X, Y and theta; the
coefficients of psi_2 were found by solving the equations above for them, and a test checks that they do.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from math import comb

import numpy as np
import sympy

from pinnfuse.reference.base import Array

ORDER = 4
Table = dict[tuple[int, int], Array]  # (order in x, order in y) -> values


@functools.cache
def corner_functions() -> dict[tuple[int, int], Callable[[Array, Array], tuple[Array, Array]]]:
    """X^i Y^j derivatives of psi_1 and psi_2 for i + j <= 4; X^2 + Y^2 is their only denominator."""
    x, y, theta = sympy.symbols("X Y theta", real=True)
    pi = sympy.pi
    s = pi**2 - 4
    stokes = (-(pi**2) * y + theta * (4 * x + 2 * pi * y)) / s
    a = (pi**2 + 4) * (pi**2 + 6) / (16 * s**2)
    inertia = -a * x * y - pi * (pi**4 + 14 * pi**2 - 24) / (32 * s**2) * y**2
    inertia += theta * (
        a * x**2 + pi * (pi**2 + 6) / (2 * s**2) * x * y + (pi**4 + 6 * pi**2 - 24) / (16 * s**2) * y**2
    )
    inertia += theta**2 * (-pi / s**2 * x**2 - x * y / (2 * s) + pi / s**2 * y**2)
    theta_of = {x: -y / (x**2 + y**2), y: x / (x**2 + y**2)}

    def derivative(f: sympy.Expr, by: sympy.Symbol) -> sympy.Expr:
        return f.diff(by) + f.diff(theta) * theta_of[by]

    table = {(0, 0): (stokes, inertia)}
    for order in range(1, ORDER + 1):
        for i in range(order + 1):
            j = order - i
            before, by = (table[i, j - 1], y) if j else (table[i - 1, j], x)
            table[i, j] = (derivative(before[0], by), derivative(before[1], by))
    compiled = {key: sympy.lambdify((x, y, theta), pair, "numpy", cse=True) for key, pair in table.items()}
    return {key: functools.partial(_at, f) for key, f in compiled.items()}


def _at(function: Callable[..., tuple[Array, Array]], x: Array, y: Array) -> tuple[Array, Array]:
    return function(x, y, np.arctan2(y, x))


def _smoothstep() -> np.polynomial.Polynomial:
    """Degree 9: 0 at 0, 1 at 1, four vanishing derivatives at both ends."""
    x = np.polynomial.Polynomial([0.0, 1.0])
    return x**5 * sum((comb(4 + k, k) * (1 - x) ** k for k in range(5)), np.polynomial.Polynomial([0.0]))


def blended(x: Array, y: Array, reynolds: float, order: int = ORDER) -> Table:
    """Derivatives up to `order` of Psi = eta(y) [(1 - chi(x)) psi_left + chi(x) psi_right], with smooth steps chi, eta.

    It equals the corner flow near both lid corners and meets all boundary conditions of the cavity: Psi = 0 and no slip
    on the walls, speed 1 on the lid. The right corner mirrors the left one, which turns the sign of psi_2.
    """
    functions, step = corner_functions(), _smoothstep()
    steps = [step if k == 0 else step.deriv(k) for k in range(order + 1)]
    chi, eta = [s(x) for s in steps], [s(y) for s in steps]
    left, right = {}, {}
    for key in [key for key in functions if sum(key) <= order]:
        first, second = functions[key](x, 1 - y)
        left[key] = (-1.0) ** key[1] * (first + reynolds * second)
        first, second = functions[key](1 - x, 1 - y)
        right[key] = (-1.0) ** sum(key) * (first - reynolds * second)
    out: Table = {}
    for i, j in left:
        total = np.zeros(np.broadcast(x, y).shape)
        for k in range(i + 1):
            for m in range(j + 1):
                near_left = 1 - chi[0] if k == 0 else -chi[k]
                part = near_left * left[i - k, j - m] + chi[k] * right[i - k, j - m]
                total = total + comb(i, k) * comb(j, m) * eta[m] * part
        out[i, j] = total
    return out
