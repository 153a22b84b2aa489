"""Focusing Schroedinger, i h_t + h_xx / 2 + |h|^2 h = 0, h = u + i v, x in [-L, L] periodic, h(0, x) = 2 sech x.

The periodic continuation of sech has a slope jump at +-L of 4 sech L tanh L (0.054 for L = 5, 1e-6 for L = 15). The
flow disperses it but does not smooth it: the coefficients decay like k^-2 for ever, and the error like modes^-1.5.
Those free waves turn like exp(-i k^2 t / 2), too fast to interpolate in time, so for L < 10 the modes above `TURNING`
are kept in the turning frame; all others are slower as they are. Relative L2 accuracy, by doubling modes, steps and
times (`tests/reference`): about 2e-6 for L = 5, 2e-9 for L = 15.
"""

from __future__ import annotations

import numpy as np

from pinnfuse.reference.base import Array, Complex
from pinnfuse.reference.cache import cached
from pinnfuse.reference.etdrk4 import integrate
from pinnfuse.reference.periodic import PeriodicReference, time_nodes

TURNING = 40.0  # wave number; the solitons' spectrum ends about here


def frequencies(half_length: float, points: int) -> Array:
    """k^2 / 2 for k = 0 ... points / 2 (times pi / L)."""
    return 0.5 * (np.pi / half_length * np.arange(points // 2 + 1)) ** 2


def frame(half_length: float, points: int) -> Array:
    """Frequencies of the frame in which each mode is kept."""
    omega = frequencies(half_length, points)
    return np.where((omega > TURNING**2 / 2) & (half_length < 10), omega, 0.0)


def solve(half_length: float, end: float, points: int, max_step: float, times: int) -> Complex:
    """Modes k >= 0 of h in their frame at the Chebyshev times; [times + 1, 1, points // 2 + 1]; h is even in x."""
    x = -half_length + 2 * half_length * np.arange(points) / points
    half = frequencies(half_length, points)
    omega = np.concatenate([half, half[-2:0:-1]])
    nodes = time_nodes(end, times)

    def nonlinear(hat: Complex, t: float) -> Complex:
        h = np.fft.ifft(hat)
        return 1j * np.fft.fft((h.real**2 + h.imag**2) * h)

    hats = integrate(-1j * omega, nonlinear, np.fft.fft(2 / np.cosh(x)), nodes, max_step)[:, : len(half)]
    return (hats * np.exp(1j * frame(half_length, points) * nodes[:, None]))[:, None] / points


def schrodinger(half_length: float = 5.0, end: float = np.pi / 2) -> PeriodicReference:
    """Reference for the fields u, v = Re h, Im h."""
    points = 2048
    parameters = {"half_length": half_length, "end": end, "points": points, "max_step": 2e-4, "times": 800}

    def compute() -> Complex:
        return cached("schrodinger", 2, parameters, lambda: {"h": solve(**parameters)})["h"]  # type: ignore[arg-type]

    return PeriodicReference(("u", "v"), -half_length, 2 * half_length, end, compute, frame=frame(half_length, points))
