"""Chebyshev-Lobatto nodes on [-1, 1], ascending: differentiation, barycentric interpolation, local interpolation."""

from __future__ import annotations

import functools

import numpy as np

from pinnfuse.reference.base import Array


def nodes(n: int) -> Array:
    """n + 1 nodes, from -1 to 1."""
    return np.sin(np.pi * np.arange(-n, n + 1, 2) / (2 * n))


@functools.cache
def differentiation(n: int, order: int = 1) -> Array:
    """[n + 1, n + 1] matrix of the derivative of the interpolant.

    Off-diagonal entries by the recursion of Welfert (1997), diagonals by the negative sum of the row: both keep the
    error of high orders near the rounding of the data. Source: Weideman & Reddy, ACM TOMS 26 (2000) 465.
    """
    k = np.arange(n + 1)
    # differences of the nodes by sines, free of cancellation
    angle = np.pi * k / n
    difference = 2 * np.sin((angle[:, None] + angle) / 2) * np.sin((angle[:, None] - angle) / 2)
    np.fill_diagonal(difference, 1.0)
    c = np.where((k == 0) | (k == n), 2.0, 1.0) * (-1.0) ** k
    ratio = c[:, None] / c
    matrix = np.eye(n + 1)
    for m in range(1, order + 1):
        matrix = m / difference * (ratio * np.diag(matrix)[:, None] - matrix)
        np.fill_diagonal(matrix, 0.0)
        np.fill_diagonal(matrix, -matrix.sum(1))
    matrix.setflags(write=False)
    return matrix


def interpolation(n: int, x: Array) -> Array:
    """[N, n + 1] matrix that takes values at the nodes to values at x, all in [-1, 1] (barycentric formula)."""
    weights = (-1.0) ** np.arange(n + 1)
    weights[[0, -1]] /= 2
    gap = x[:, None] - nodes(n)
    exact = gap == 0
    gap[exact] = 1.0
    matrix = weights / gap
    hit = exact.any(1)
    matrix[hit] = exact[hit]
    return matrix / matrix.sum(1, keepdims=True)


def local_weights(offset: Array, width: int) -> Array:
    """[N, width] weights of Lagrange interpolation on the integers 0 .. width - 1 at `offset`, best near the middle."""
    j = np.arange(width)
    factorial = np.cumprod(np.concatenate([[1.0], np.arange(1.0, width)]))
    weights = (-1.0) ** j / (factorial * factorial[::-1])
    gap = offset[:, None] - j
    exact = gap == 0
    gap[exact] = 1.0
    matrix = weights / gap
    hit = exact.any(1)
    matrix[hit] = exact[hit]
    return matrix / matrix.sum(1, keepdims=True)
