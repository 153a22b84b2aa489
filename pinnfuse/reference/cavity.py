r"""Lid-driven cavity on [0, 1]^2: steady Navier-Stokes for a spectral stream function.

    u = psi_y, v = -psi_x,   Re (psi_y lap psi_x - psi_x lap psi_y) = lap^2 psi,
    psi = 0 and psi_n = 0 on the walls, but psi_y = 1 on the lid y = 1

At the lid's corners u jumps, and psi is singular. psi = Psi + phi with Psi the blended corner flow of `corner.py`,
which meets all boundary conditions; phi is clamped, and found by a Legendre-Galerkin method (Shen's basis) from

    int lap phi lap v + int (lap^2 Psi - Re J(Psi)) v + Re int (F(psi) - F(Psi)) . grad v = 0   for all clamped v

with J(psi) = psi_y lap psi_x - psi_x lap psi_y = div F, F(psi) = lap psi (psi_y, -psi_x). Newton's method, with
continuation in Re; a Jacobian is kept while it serves. Pressure by integrating its gradient from the middle of the
cavity. Sources: Botella & Peyret, Computers & Fluids 27 (1998) 421; Shen, SIAM J. Sci. Comput. 15 (1994) 1489.
"""

from __future__ import annotations

from functools import cached_property

import numpy as np
from numpy.polynomial import legendre
from numpy.typing import ArrayLike
from scipy.linalg import lu_factor, lu_solve

from pinnfuse.reference.base import Array, Reference
from pinnfuse.reference.cache import cached
from pinnfuse.reference.corner import Table, blended

COARSE = 36  # modes in each direction for the continuation in Re
EXTRA = 24  # quadrature nodes beyond the number of modes
_KEEP = 0.05  # the Jacobian is kept while each step is that much smaller than the one before
PATH = 28  # Gauss nodes on each leg of the path from the middle, for the pressure


def clamped_basis(n: int) -> Array:
    """[n, n + 4] Legendre coefficients of n polynomials with f = f' = 0 at both ends."""
    k = np.arange(n)
    basis = np.zeros((n, n + 4))
    scale = 1 / np.sqrt(2 * (2 * k + 3) ** 2 * (2 * k + 5))  # makes the second derivatives orthonormal on [-1, 1]
    basis[k, k] = scale
    basis[k, k + 2] = -scale * 2 * (2 * k + 5) / (2 * k + 7)
    basis[k, k + 4] = scale * (2 * k + 3) / (2 * k + 7)
    return basis


def derivatives(coefficients: Array, x: Array, order: int) -> list[Array]:
    """[len(x), n] values of the derivatives 0 .. order at x in [0, 1] of Legendre series in 2x - 1; [n, modes]."""
    modes = coefficients.shape[1]
    values = legendre.legvander(2 * x - 1, modes - 1)
    return [
        2.0**k * values[:, : modes - k] @ legendre.legder(coefficients, k, axis=1).T[: modes - k]
        for k in range(order + 1)
    ]


def solve(reynolds: float, n: int) -> Array:
    """[n, n] coefficients of phi in the clamped basis, in x and y: continuation in Re with few modes, then all.

    Raises:
        RuntimeError: Newton's method did not converge.
    """
    path = [re for re in (100.0, 400.0, 1000.0, 1700.0, 2500.0, 3500.0) if re < 0.8 * reynolds]
    few = min(n, COARSE)
    c: Array = np.zeros((few, few))
    before = 0.0
    for re in [*path, reynolds]:
        c, before = newton(re, few, c, before, 1e-3), re
    return newton(reynolds, n, c, before, 1e-11)


def newton(reynolds: float, n: int, start: Array, start_reynolds: float, tolerance: float) -> Array:
    """Newton's method from the solution of another Reynolds number, or with fewer modes (the basis is hierarchical)."""
    nodes, weights = _gauss(n + EXTRA)
    x, y = np.meshgrid(nodes, nodes, indexing="ij")
    area = weights[:, None] * weights
    b = derivatives(clamped_basis(n), nodes, 2)

    def project(f: Array, i: int, j: int) -> Array:
        """int f d_x^i d_y^j v for all test functions v"""
        return b[i].T @ (area * f) @ b[j]

    def operator(f: Array, i: int, j: int, k: int, m: int) -> Array:
        """[n^2, n^2] matrix of int f (d_x^i d_y^j v) (d_x^k d_y^m phi)"""
        in_y = np.einsum("qr,rj,rm->qjm", area * f, b[j], b[m], optimize=True).reshape(len(nodes), n * n)
        in_x = (b[i][:, :, None] * b[k][:, None, :]).reshape(len(nodes), n * n)
        return (in_x.T @ in_y).reshape(n, n, n, n).transpose(0, 2, 1, 3).reshape(n * n, n * n)

    one = np.ones_like(x)
    stokes = operator(one, 2, 0, 2, 0) + operator(one, 0, 2, 0, 2)
    stokes += operator(one, 2, 0, 0, 2) + operator(one, 0, 2, 2, 0)
    given = blended(x, y, reynolds)
    given_lap = given[2, 0] + given[0, 2]
    inertia = given[0, 1] * (given[3, 0] + given[1, 2]) - given[1, 0] * (given[2, 1] + given[0, 3])
    source = project(given[4, 0] + 2 * given[2, 2] + given[0, 4] - reynolds * inertia, 0, 0)

    c = np.zeros((n, n))
    c[: len(start), : len(start)] = start
    if start_reynolds not in (0.0, reynolds):  # keep psi = Psi + phi where Psi changes with Re
        other = blended(x, y, start_reynolds, 2)
        change = other[2, 0] + other[0, 2] - given_lap
        c += np.linalg.solve(stokes, (project(change, 2, 0) + project(change, 0, 2)).ravel()).reshape(n, n)
    factors, size = None, 1.0
    for _ in range(40):
        psi_x, psi_y = given[1, 0] + b[1] @ c @ b[0].T, given[0, 1] + b[0] @ c @ b[1].T
        lap = given_lap + b[2] @ c @ b[0].T + b[0] @ c @ b[2].T
        flux_x, flux_y = lap * psi_y - given_lap * given[0, 1], given_lap * given[1, 0] - lap * psi_x
        flux = project(flux_x, 1, 0) + project(flux_y, 0, 1)
        residual = stokes @ c.ravel() + (source + reynolds * flux).ravel()
        if factors is None:
            jacobian = operator(psi_y, 1, 0, 2, 0)
            jacobian += operator(psi_y, 1, 0, 0, 2)
            jacobian += operator(lap, 1, 0, 0, 1)
            jacobian -= operator(psi_x, 0, 1, 2, 0)
            jacobian -= operator(psi_x, 0, 1, 0, 2)
            jacobian -= operator(lap, 0, 1, 1, 0)
            jacobian *= reynolds
            jacobian += stokes
            factors = lu_factor(jacobian, overwrite_a=True, check_finite=False)
        step = lu_solve(factors, -residual, check_finite=False).reshape(n, n)
        c = c + step
        before, size = size, float(np.abs(step).max() / np.abs(c).max())
        if size < tolerance:
            return c
        if size > _KEEP * before:  # a matrix costs a hundred steps with the one of before
            factors = None
    raise RuntimeError(f"cavity: Newton's method did not converge at Re = {reynolds:g}, last step {size:.1e}.")


def _gauss(n: int) -> tuple[Array, Array]:
    """Gauss nodes and weights on [0, 1]."""
    z, w = legendre.leggauss(n)
    return (z + 1) / 2, w / 2


class CavityReference(Reference):
    """Velocity and pressure, p = 0 in the middle; density 1, lid speed 1, nu = 1 / Re.

    Within `mask` of the two lid corners the fields are NaN: u jumps there and p is unbounded.
    """

    fields = ("u", "v", "p")
    coordinates = ("x", "y")

    def __init__(self, reynolds: float = 100.0, n: int | None = None, mask: float = 0.04, size: int = 101) -> None:
        """
        Args:
            reynolds: Reynolds number; the velocity is good to about 1e-6 (relative L2) at 100 and 2e-5 at 1000.
            n: modes in each direction; None takes enough for `reynolds`.
            mask: radius about each lid corner.
            size: points of the grid in each direction.
        """
        self.reynolds, self.mask, self._size = float(reynolds), mask, size
        self.n = n or int(np.interp(reynolds, (100, 400, 1000), (52, 60, 72)))

    @cached_property
    def phi(self) -> Array:
        """[n + 4, n + 4] Legendre coefficients of the smooth part of the stream function, in 2x - 1 and 2y - 1."""
        parameters = {"reynolds": self.reynolds, "n": self.n}
        c = cached("cavity", 1, parameters, lambda: {"phi": solve(self.reynolds, self.n)})["phi"]
        basis = clamped_basis(self.n)
        return basis.T @ c @ basis

    def stream(self, x: Array, y: Array, order: int = 3) -> Table:
        """Derivatives of psi up to `order` <= 3 at points, [N] each, or on a tensor grid, x [nx, 1] and y [1, ny]."""
        table = blended(x, y, self.reynolds, order)
        modes = np.eye(len(self.phi))
        across, along = derivatives(modes, x.ravel(), order), derivatives(modes, y.ravel(), order)
        for i, j in table:
            rows = across[i] @ self.phi
            own = np.einsum("nj,nj->n", rows, along[j]) if x.ndim == 1 else rows @ along[j].T
            table[i, j] = table[i, j] + own
        return table

    def pressure_gradient(self, x: Array, y: Array) -> tuple[Array, Array]:
        """p_x, p_y at points, from the momentum equations."""
        psi = self.stream(x, y)
        u, v, nu = psi[0, 1], -psi[1, 0], 1 / self.reynolds
        u_x, u_y, v_x, v_y = psi[1, 1], psi[0, 2], -psi[2, 0], -psi[1, 1]
        p_x = nu * (psi[2, 1] + psi[0, 3]) - u * u_x - v * u_y
        p_y = -nu * (psi[3, 0] + psi[1, 2]) - u * v_x - v * v_y
        return p_x, p_y

    def _pressure(self, x: Array, y: Array) -> Array:
        """Line integral of grad p from the middle: along y = 1/2 to x, then along x to y, clear of the corners."""
        columns, column = np.unique(x, return_inverse=True)
        levels, level = np.unique(y, return_inverse=True)
        z, w = _gauss(PATH)
        path = 0.5 + (columns[:, None] - 0.5) * z
        p_x, _ = self.pressure_gradient(path.ravel(), np.full(path.size, 0.5))
        across = (p_x.reshape(path.shape) @ w) * (columns - 0.5)
        if len(columns) * len(levels) > 4 * len(x):  # scattered: one path for each point
            along = np.empty_like(y)
            for rows in np.array_split(np.arange(len(x)), max(1, len(x) // 250)):
                path = 0.5 + (y[rows, None] - 0.5) * z
                _, p_y = self.pressure_gradient(np.repeat(x[rows], len(z)), path.ravel())
                along[rows] = (p_y.reshape(path.shape) @ w) * (y[rows] - 0.5)
            return across[column] + along
        # a grid: every column shares the pieces between its levels
        stops = np.union1d(levels, [0.5])
        length = np.diff(stops)
        z, w = _gauss(8 + int(PATH * length.max(initial=0.0)))
        path = stops[:-1, None] + length[:, None] * z
        _, p_y = self.pressure_gradient(columns[:, None], path.reshape(1, -1))
        pieces = (p_y.reshape(len(columns), *path.shape) @ w) * length
        total = np.concatenate([np.zeros((len(columns), 1)), np.cumsum(pieces, axis=1)], axis=1)
        total -= total[:, [np.searchsorted(stops, 0.5)]]
        return across[column] + total[column, np.searchsorted(stops, levels)[level]]

    def solution(self, points: ArrayLike) -> Array:
        x, y = self._checked(points).T
        out = np.full((len(x), 3), np.nan)
        near = np.minimum(np.hypot(x, 1 - y), np.hypot(1 - x, 1 - y)) < self.mask
        inside = (x >= 0) & (x <= 1) & (y >= 0) & (y <= 1)
        keep = np.flatnonzero(inside & ~near)
        for rows in np.array_split(keep, max(1, len(keep) // 10_000)):
            psi = self.stream(x[rows], y[rows], 1)
            out[rows] = np.stack([psi[0, 1], -psi[1, 0], self._pressure(x[rows], y[rows])], axis=1)
        return out

    def grid(self) -> dict[str, Array]:
        axis = np.linspace(0, 1, self._size)
        return {"x": axis, "y": axis}
