"""Korteweg-de Vries, u_t + u u_x + d u_xxx = 0, x in [-1, 1] periodic, u(0, x) = cos(pi x)."""

from __future__ import annotations

import numpy as np

from pinnfuse.reference.base import Complex
from pinnfuse.reference.cache import cached
from pinnfuse.reference.etdrk4 import integrate
from pinnfuse.reference.periodic import PeriodicReference, time_nodes


def solve(d: float, end: float, points: int, max_step: float, times: int) -> Complex:
    """rfft coefficients / points at the Chebyshev times, [times + 1, 1, points // 2 + 1]."""
    x = -1 + 2 * np.arange(points) / points
    k = np.pi * np.arange(points // 2 + 1)
    k[-1] = 0.0  # the odd derivatives of the highest mode vanish
    derivative = -0.5j * k
    keep = np.arange(points // 2 + 1) <= points // 3  # the square of the rest would alias

    def nonlinear(hat: Complex, t: float) -> Complex:
        return derivative * keep * np.fft.rfft(np.fft.irfft(hat, n=points) ** 2)

    start = np.fft.rfft(np.cos(np.pi * x))
    hats = integrate(1j * d * k**3, nonlinear, start, time_nodes(end, times), max_step)
    return hats[:, None] / points


def kdv(d: float = 0.0025, end: float = 1.0) -> PeriodicReference:
    """Reference for the given dispersion; see `tests/reference` for its measured accuracy."""
    parameters = {"d": d, "end": end, "points": 768, "max_step": 5e-5, "times": 300}

    def compute() -> Complex:
        return cached("kdv", 1, parameters, lambda: {"u": solve(**parameters)})["u"]  # type: ignore[arg-type]

    return PeriodicReference(("u",), -1.0, 2.0, end, compute)
