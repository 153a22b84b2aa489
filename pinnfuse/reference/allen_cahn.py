r"""Allen-Cahn, u_t = eps u_xx + r (u - u^3), x in [-1, 1] periodic, t in [0, 1], u(0, x) = x^2 cos(pi x).

The initial state has a slope jump of 4 at x = +-1. It is carried by the heat equation in closed form,

    p_t = eps p_xx,   p(0, x) = -x^2 = -1/3 - sum_k 4 (-1)^k / (pi k)^2 cos(pi k x),

and the Fourier solver computes w = u - p, which starts with two more continuous derivatives:
w_t = eps w_xx + r (u - u^3), w(0, x) = x^2 (1 + cos pi x). Times are graded, t = s^2, for what starts like sqrt(t).
"""

from __future__ import annotations

import numpy as np
from scipy.special import erfc

from pinnfuse.reference.base import Array, Complex
from pinnfuse.reference.cache import cached
from pinnfuse.reference.etdrk4 import integrate
from pinnfuse.reference.periodic import PeriodicReference, time_nodes


def kink(t: Array, x: Array, eps: float) -> Array:
    """p(t, x) of the module's docstring, in closed form.

    Between its jumps p0 = -y^2, y = x mod 2, so p = -y^2 - 2 eps t plus what each slope jump of 4 adds at distance z,
    2 (sqrt(4 eps t / pi) exp(-q^2) - z erfc(q)) with q = z / sqrt(4 eps t). Jumps beyond +-3 are below rounding.
    """
    y = np.mod(x + 1, 2.0) - 1
    spread = np.sqrt(4 * eps * np.maximum(t, 1e-300))
    out = -(y**2) - 2 * eps * t
    for centre in (-3.0, -1.0, 1.0, 3.0):
        z = np.abs(y - centre)
        q = z / spread
        out = out + 2 * (spread / np.sqrt(np.pi) * np.exp(-(q**2)) - z * erfc(q))
    return out


def solve(eps: float, reaction: float, end: float, points: int, max_step: float, times: int) -> Complex:
    """rfft coefficients / points of w at the graded Chebyshev times, [times + 1, 1, points // 2 + 1]."""
    x = -1 + 2 * np.arange(points) / points
    decay = -eps * (np.pi * np.arange(points // 2 + 1)) ** 2

    def nonlinear(hat: Complex, t: float) -> Complex:
        u = np.fft.irfft(hat, n=points) + kink(np.full(1, t), x, eps)
        return reaction * np.fft.rfft(u - u**3)

    start = np.fft.rfft(x**2 * (1 + np.cos(np.pi * x)))
    nodes = time_nodes(end, times, grading=2)
    hats = integrate(decay.astype(complex), nonlinear, start, nodes, lambda t: max_step * max(0.02, np.sqrt(t / end)))
    return hats[:, None] / points


def allen_cahn(eps: float = 1e-4, reaction: float = 5.0, end: float = 1.0) -> PeriodicReference:
    """Reference; its accuracy at the kink and away from it is measured in `tests/reference`."""
    parameters = {"eps": eps, "reaction": reaction, "end": end, "points": 4096, "max_step": 2e-3, "times": 120}

    def compute() -> Complex:
        return cached("allen_cahn", 1, parameters, lambda: {"w": solve(**parameters)})["w"]  # type: ignore[arg-type]

    def extra(t: Array, x: Array) -> Array:
        return kink(t, x, eps)[:, None]

    return PeriodicReference(("u",), -1.0, 2.0, end, compute, grading=2, extra=extra)
