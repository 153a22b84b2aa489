"""Optimisers for PINNs: quasi-Newton methods with a strong line search, and first-order ones by name."""

from pinnfuse.optimizers.lbfgs import LBFGS
from pinnfuse.optimizers.quasi_newton import QuasiNewton
from pinnfuse.optimizers.self_scaled import BFGS, SSBFGS, SelfScaledQuasiNewton, SSBroyden

__all__ = ["BFGS", "LBFGS", "SSBFGS", "QuasiNewton", "SSBroyden", "SelfScaledQuasiNewton"]
