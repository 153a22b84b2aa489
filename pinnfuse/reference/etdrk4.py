"""Fourth-order exponential time differencing for u' = L u + N(u, t) with diagonal L.

Source: Cox & Matthews, J. Comput. Phys. 176 (2002) 430; Kassam & Trefethen, SIAM J. Sci. Comput. 26 (2005) 1214.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from pinnfuse.reference.base import Array, Complex


def phi(z: Complex) -> tuple[Complex, Complex, Complex]:
    """phi_k(z) = sum_j z^j / (j + k)! for k = 1, 2, 3; by its series for |z| < 1, where the closed form cancels."""
    small = np.abs(z) < 1
    safe = np.where(small, 1.0, z)
    one = (np.exp(safe) - 1) / safe
    two = (one - 1) / safe
    three = (two - 0.5) / safe
    series = [np.zeros_like(z) for _ in range(3)]
    zs = np.where(small, z, 0.0)
    for k, out in enumerate(series, start=1):
        term = np.ones_like(z) / np.prod(np.arange(1.0, k + 1))
        for j in range(1, 22):
            out += term
            term = term * zs / (j + k)
    return (np.where(small, series[0], one), np.where(small, series[1], two), np.where(small, series[2], three))


def integrate(
    linear: Complex,
    nonlinear: Callable[[Complex, float], Complex],
    start: Complex,
    times: Array,
    max_step: float | Callable[[float], float],
) -> Complex:
    """The solution at `times` (increasing, the first one is the start): [len(times), *start.shape].

    Args:
        linear: eigenvalues of L, broadcastable to `start`.
        nonlinear: N(u, t).
        start: u at times[0].
        times: where the solution is wanted; each interval is cut into equal steps.
        max_step: longest step, or a function of the interval's left end.
    """
    out = np.empty((len(times), *start.shape), dtype=np.complex128)
    out[0] = u = start.astype(np.complex128)
    known_h = -1.0
    for i, (t0, t1) in enumerate(zip(times[:-1], times[1:], strict=True)):
        longest = max_step(float(t0)) if callable(max_step) else max_step
        steps = max(1, int(np.ceil((t1 - t0) / longest - 1e-9)))
        h = float(t1 - t0) / steps
        if abs(h - known_h) > 1e-14 * h:
            known_h = h
            full, half = np.exp(h * linear), np.exp(h / 2 * linear)
            inner = h / 2 * phi(h / 2 * linear)[0]
            p1, p2, p3 = phi(h * linear)
            first, middle, last = h * (p1 - 3 * p2 + 4 * p3), h * (2 * p2 - 4 * p3), h * (4 * p3 - p2)
        for k in range(steps):
            t = float(t0) + k * h
            at_start = nonlinear(u, t)
            base = half * u
            a = base + inner * at_start
            at_a = nonlinear(a, t + h / 2)
            b = base + inner * at_a
            at_b = nonlinear(b, t + h / 2)
            c = half * a + inner * (2 * at_b - at_start)
            u = full * u + first * at_start + middle * (at_a + at_b) + last * nonlinear(c, t + h)
        out[i + 1] = u
    return out
