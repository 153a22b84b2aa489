"""Helmholtz with a manufactured solution."""

from __future__ import annotations

import numpy as np

from pinnfuse.domains import Box
from pinnfuse.pde import PDE
from pinnfuse.problems.checks import positive
from pinnfuse.problems.condition import dirichlet
from pinnfuse.problems.problem import Problem
from pinnfuse.problems.spec import ModelSpec, TrainingSpec, quasi_newton
from pinnfuse.reference import ClosedForm


def helmholtz(k: float = 1.0, a1: int = 1, a2: int = 4) -> Problem:
    """Helmholtz: lap u + k^2 u = q on [-1, 1]^2, u = 0 on the boundary; u = sin(a1 pi x) sin(a2 pi y).

    Source: Wang, Teng & Perdikaris, SIAM J. Sci. Comput. 43 (2021) A3055.

    Args:
        k: wave number, > 0.
        a1, a2: half waves per unit length in x and y, at least 1.
    """
    positive("helmholtz", k=k, a1=a1, a2=a2)
    mode = f"sin({a1}*pi*x)*sin({a2}*pi*y)"
    equation = f"u_xx + u_yy + k**2*u - (k**2 - ({a1}*pi)**2 - ({a2}*pi)**2)*{mode}"
    pde = PDE("u", "x y", {"k": k}, {"helmholtz": equation}, name="helmholtz")
    box = Box({"x": (-1, 1), "y": (-1, 1)})
    axis = np.linspace(-1, 1, 101)
    return Problem(
        name="helmholtz",
        pde_name="helmholtz",
        title="Helmholtz equation with a manufactured solution",
        pde=pde,
        domain=box,
        conditions=(dirichlet("boundary", pde, box.boundary(), {"u": 0}),),
        reference=ClosedForm({"u": mode}, {"x": axis, "y": axis}),
        hard={"u": "(1 - x**2)*(1 - y**2)*u"},
        hard_conditions=("boundary",),
        model=ModelSpec("mlp", {"width": 20, "depth": 4, "activation": "tanh"}),
        training=TrainingSpec(interior=3000, boundary=200, resample_every=200, phases=quasi_newton(steps=1500)),
    )
