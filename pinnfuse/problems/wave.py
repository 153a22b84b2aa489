"""Standing waves of two frequencies."""

from __future__ import annotations

import numpy as np

from pinnfuse.domains import Box
from pinnfuse.pde import PDE
from pinnfuse.problems.checks import positive
from pinnfuse.problems.condition import dirichlet, initial
from pinnfuse.problems.problem import Problem
from pinnfuse.problems.spec import ModelSpec, TrainingSpec, quasi_newton
from pinnfuse.reference import ClosedForm


def wave(c: float = 2.0) -> Problem:
    """Wave: u_tt = c^2 u_xx on [0, 1]^2, u = 0 at both ends, at rest at t = 0.

    u = sin(pi x) cos(c pi t) + sin(4 pi x) cos(4 c pi t) / 2. Source: PINNacle, Wave1d-C (c = 2).

    Args:
        c: speed of the wave, > 0.
    """
    positive("wave", c=c)
    pde = PDE("u", "t x", {"c": c}, {"wave": "u_tt - c**2*u_xx"}, name="wave")
    box = Box({"t": (0, 1), "x": (0, 1)})
    start = "sin(pi*x) + sin(4*pi*x)/2"
    return Problem(
        name="wave",
        pde_name="wave",
        title="Standing waves of two frequencies",
        pde=pde,
        domain=box,
        conditions=(
            initial("initial", pde, box.initial(), {"u": start, "u_t": 0}),
            dirichlet("walls", pde, box.face("x"), {"u": 0}),
        ),
        reference=ClosedForm(
            {"u": "sin(pi*x)*cos(c*pi*t) + sin(4*pi*x)*cos(4*c*pi*t)/2"},
            {"t": np.linspace(0, 1, 101), "x": np.linspace(0, 1, 129)},
            {"c": c},
        ),
        hard={"u": f"{start} + t**2/(t**2 + {0.04 / c**2!r})*4*x*(1 - x)*u"},  # a network of order 1 at all times,
        hard_conditions=("initial", "walls"),
        model=ModelSpec("mlp", {"width": 30, "depth": 3, "activation": "tanh"}),
        training=TrainingSpec(interior=3000, boundary=200, resample_every=200, phases=quasi_newton(steps=3000)),
    )
