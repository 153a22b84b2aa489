"""Viscous Burgers with a shock."""

from __future__ import annotations

import numpy as np

from pinnfuse.domains import Box
from pinnfuse.pde import PDE
from pinnfuse.problems.condition import dirichlet, initial
from pinnfuse.problems.problem import Problem
from pinnfuse.problems.spec import ModelSpec, TrainingSpec, quasi_newton
from pinnfuse.reference import FunctionReference, cole_hopf


def burgers(nu: float = 0.01 / np.pi) -> Problem:
    """Burgers: u_t + u u_x = nu u_xx on x in [-1, 1], t in [0, 1], u(0, x) = -sin(pi x), u(t, +-1) = 0.

    Reference by the Cole-Hopf integral, to rounding.

    Args:
        nu: viscosity, at least 1e-3.
    """
    if not nu >= 1e-3:
        raise ValueError(f"burgers: option `nu` must be at least 1e-3, for which the reference is exact; got {nu!r}.")
    pde = PDE("u", "t x", {"nu": nu}, {"burgers": "u_t + u*u_x - nu*u_xx"}, name="burgers")
    box = Box({"t": (0, 1), "x": (-1, 1)})
    return Problem(
        name="burgers",
        pde_name="burgers",
        title="Viscous Burgers, a sine that steepens to a shock",
        pde=pde,
        domain=box,
        conditions=(
            initial("initial", pde, box.initial(), {"u": "-sin(pi*x)"}),
            dirichlet("walls", pde, box.face("x"), {"u": 0}),
        ),
        reference=FunctionReference(
            ("u",),
            {"t": np.linspace(0, 1, 101), "x": np.linspace(-1, 1, 257)},
            lambda points: cole_hopf(points[:, 0], points[:, 1], nu)[:, None],
        ),
        hard={"u": "-sin(pi*x) + t*(1 - x**2)*u"},
        hard_conditions=("initial", "walls"),
        model=ModelSpec("mlp", {"width": 20, "depth": 4, "activation": "tanh"}),
        training=TrainingSpec(interior=4000, boundary=200, resample_every=200, phases=quasi_newton(steps=2000)),
    )
