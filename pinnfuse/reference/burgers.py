r"""Viscous Burgers by the Cole-Hopf integral.

    u_t + u u_x = nu u_xx on the line,   u(0, x) = -sin(pi x)

    u = -int sin(pi y) f(y) g dy / int f(y) g dy,   y = x - eta,  f(y) = exp(-cos(pi y) / (2 pi nu)),
    g = exp(-eta^2 / (4 nu t))

The solution is odd and 2-periodic, hence also that of x in [-1, 1] with u(+-1) = 0. Source: Basdevant et al.,
Computers & Fluids 14 (1986) 23-41.
"""

from __future__ import annotations

import numpy as np

from pinnfuse.reference.base import Array


def cole_hopf(t: Array, x: Array, nu: float) -> Array:
    """u at points (t, x), t >= 0, x in [-1, 1]; [N], [N] -> [N].

    Trapezoid rule in z = eta / sqrt(4 nu t), which converges geometrically; weights are formed relative to the largest,
    so small nu does not overflow. Error below 1e-12 for nu >= 1e-3.
    """
    sharpness = 1 / (2 * np.pi * nu)
    reach = np.sqrt(2 * sharpness + 40.0)  # beyond it the integrand is below exp(-40) of its peak
    # width of the narrowest peak of the integrand in z, for the largest t; the rule needs a few nodes across it
    width = 1 / np.sqrt(2 + sharpness * np.pi**2 * 4 * nu * max(float(t.max(initial=0.0)), 1e-300))
    nodes = int(np.ceil(2 * reach / (0.35 * width))) | 1
    z = np.linspace(-reach, reach, nodes)
    out = np.empty_like(x)
    for rows in np.array_split(np.arange(len(x)), max(1, len(x) * nodes // 4_000_000)):
        y = x[rows, None] - np.sqrt(4 * nu * t[rows, None]) * z
        exponent = -sharpness * np.cos(np.pi * y) - z**2
        weight = np.exp(exponent - exponent.max(1, keepdims=True))
        out[rows] = -(np.sin(np.pi * y) * weight).sum(1) / weight.sum(1)
    return out
