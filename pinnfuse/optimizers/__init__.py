"""Optimisers for PINNs: quasi-Newton methods, first-order methods, and schedules that hand over between them."""

from pinnfuse.optimizers.captured import StepGraph
from pinnfuse.optimizers.gauss_newton import GaussNewton
from pinnfuse.optimizers.lbfgs import LBFGS
from pinnfuse.optimizers.phased import PhasedOptimizer
from pinnfuse.optimizers.quasi_newton import QuasiNewton
from pinnfuse.optimizers.registry import available, build, default_lr, for_size, known_options
from pinnfuse.optimizers.schedule import Decay, Phase, phase_at, total_steps
from pinnfuse.optimizers.self_scaled import BFGS, SSBFGS, SelfScaledQuasiNewton, SSBroyden

__all__ = [
    "BFGS",
    "LBFGS",
    "SSBFGS",
    "Decay",
    "GaussNewton",
    "Phase",
    "PhasedOptimizer",
    "QuasiNewton",
    "SSBroyden",
    "SelfScaledQuasiNewton",
    "StepGraph",
    "available",
    "build",
    "default_lr",
    "for_size",
    "known_options",
    "phase_at",
    "total_steps",
]
