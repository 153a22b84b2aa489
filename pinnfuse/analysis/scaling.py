"""How time grows with the size of a problem: a fixed cost, a cost per element, and where one gives way to the other."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from scipy.optimize import nnls


@dataclass(frozen=True)
class Scaling:
    """t = fixed + each x size, fitted with weights 1 / t, so that every point counts by its relative error."""

    fixed: float
    """seconds whatever the size: launches, latency"""
    each: float
    """seconds per element: bandwidth or arithmetic"""
    error: float
    """root mean square of the relative residuals"""
    exponent: float
    """slope of log t against log size over all points: 0 where the fixed cost rules, 1 where elements do"""

    @property
    def crossover(self) -> float:
        """Size at which both costs are equal; infinite if elements cost nothing."""
        return self.fixed / self.each if self.each > 0 else float("inf")

    def regime(self, size: float) -> str:
        """ "launch-bound" below half the crossover, "bandwidth-bound" above twice, else "between"."""
        if size < self.crossover / 2:
            return "launch-bound"
        return "bandwidth-bound" if size > 2 * self.crossover else "between"


def fit_scaling(sizes: Sequence[float], seconds: Sequence[float]) -> Scaling:
    """Fit of measured times. Leave first calls out (they compile), or fit them apart to see what they cost.

    Raises:
        ValueError: fewer than three sizes, or anything that is not positive.
    """
    n, t = np.asarray(sizes, dtype=float), np.asarray(seconds, dtype=float)
    if n.shape != t.shape or n.size < 3 or not (n > 0).all() or not (t > 0).all():
        raise ValueError(
            f"fit_scaling: needs at least three sizes with their times, all positive; got {n.size} and {t.size}."
        )
    scale = n.max()
    (fixed, each), _ = nnls(np.stack([1 / t, n / scale / t], axis=1), np.ones_like(t))
    each /= scale
    residual = (fixed + each * n) / t - 1
    exponent = np.polyfit(np.log(n), np.log(t), 1)[0] if np.ptp(n) > 0 else 0.0
    return Scaling(float(fixed), float(each), float(np.sqrt((residual**2).mean())), float(exponent))
