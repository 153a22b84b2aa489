"""Decaying Taylor-Green vortices in the plane."""

from __future__ import annotations

import numpy as np

from pinnfuse.domains import Box
from pinnfuse.problems.checks import positive
from pinnfuse.problems.condition import dirichlet, initial, periodic
from pinnfuse.problems.fluid import navier_stokes
from pinnfuse.problems.problem import Problem
from pinnfuse.problems.spec import ModelSpec, TrainingSpec, quasi_newton
from pinnfuse.reference import ClosedForm

_FORMULAS = {
    "u": "cos(x)*sin(y)*exp(-2*nu*t)",
    "v": "-sin(x)*cos(y)*exp(-2*nu*t)",
    "p": "-(cos(2*x) + cos(2*y))/4*exp(-4*nu*t)",
}


def taylor_green(nu: float = 0.1, t_end: float = 1.0) -> Problem:
    """Taylor-Green vortices: 2D Navier-Stokes on [0, 2 pi]^2, periodic, with an exact solution.

    u = cos x sin y F, v = -sin x cos y F, p = -(cos 2x + cos 2y) F^2 / 4, F = exp(-2 nu t). The pressure, which
    periodic conditions leave open up to a function of time, is given at the origin.

    Args:
        nu: kinematic viscosity, > 0.
        t_end: end of the time interval, > 0.
    """
    positive("taylor_green", nu=nu, t_end=t_end)
    pde = navier_stokes("t x y", nu)
    side = 2 * np.pi
    box = Box({"t": (0, t_end), "x": (0, side), "y": (0, side)})
    return Problem(
        name="taylor_green",
        pde_name="navier_stokes",
        title="Decaying Taylor-Green vortices",
        pde=pde,
        domain=box,
        conditions=(
            initial("initial", pde, box.initial(), {"u": "cos(x)*sin(y)", "v": "-sin(x)*cos(y)"}),
            periodic("periodic_x", pde, box, "x"),
            periodic("periodic_y", pde, box, "y"),
            dirichlet("pressure", pde, box.slice({"x": 0, "y": 0}), {"p": "-exp(-4*nu*t)/2"}),
        ),
        reference=ClosedForm(
            _FORMULAS,
            {"t": np.linspace(0, t_end, 11), "x": np.linspace(0, side, 65), "y": np.linspace(0, side, 65)},
            {"nu": nu},
        ),
        hard={"u": "cos(x)*sin(y) + t*u", "v": "-sin(x)*cos(y) + t*v"},
        hard_conditions=("initial",),
        periodic={"x": side, "y": side},
        metrics={"u": ("u",), "v": ("v",), "p": ("p",), "velocity": ("u", "v")},
        model=ModelSpec("mlp", {"width": 20, "depth": 4, "activation": "tanh"}),
        training=TrainingSpec(interior=3000, boundary=100, resample_every=200, phases=quasi_newton(steps=1500)),
    )
