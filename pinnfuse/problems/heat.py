"""A decaying mode of the heat equation."""

from __future__ import annotations

import numpy as np

from pinnfuse.domains import Box
from pinnfuse.pde import PDE
from pinnfuse.problems.checks import positive
from pinnfuse.problems.condition import dirichlet, initial
from pinnfuse.problems.problem import Problem
from pinnfuse.problems.spec import ModelSpec, TrainingSpec, quasi_newton
from pinnfuse.reference import ClosedForm


def heat(alpha: float = 0.4) -> Problem:
    """Heat: u_t = alpha u_xx on [0, 1]^2, u(0, x) = sin(pi x), u = 0 at both ends; u = sin(pi x) exp(-pi^2 alpha t).

    Args:
        alpha: diffusivity, > 0.
    """
    positive("heat", alpha=alpha)
    pde = PDE("u", "t x", {"alpha": alpha}, {"heat": "u_t - alpha*u_xx"}, name="heat")
    box = Box({"t": (0, 1), "x": (0, 1)})
    return Problem(
        name="heat",
        pde_name="heat",
        title="Heat equation, a decaying mode",
        pde=pde,
        domain=box,
        conditions=(
            initial("initial", pde, box.initial(), {"u": "sin(pi*x)"}),
            dirichlet("walls", pde, box.face("x"), {"u": 0}),
        ),
        reference=ClosedForm(
            {"u": "sin(pi*x)*exp(-pi**2*alpha*t)"},
            {"t": np.linspace(0, 1, 101), "x": np.linspace(0, 1, 129)},
            {"alpha": alpha},
        ),
        hard={"u": "sin(pi*x) + t*x*(1 - x)*u"},
        hard_conditions=("initial", "walls"),
        model=ModelSpec("mlp", {"width": 20, "depth": 4, "activation": "tanh"}),
        training=TrainingSpec(interior=2000, boundary=100, resample_every=200, phases=quasi_newton(steps=500)),
    )
