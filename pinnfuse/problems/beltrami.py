"""Ethier and Steinman's Beltrami flow in three dimensions."""

from __future__ import annotations

import numpy as np

from pinnfuse.domains import Box
from pinnfuse.problems.checks import positive
from pinnfuse.problems.condition import dirichlet, initial
from pinnfuse.problems.fluid import navier_stokes
from pinnfuse.problems.problem import Problem
from pinnfuse.problems.spec import ModelSpec, TrainingSpec, quasi_newton
from pinnfuse.reference import ClosedForm

_FORMULAS = {
    "u": "-(exp(x)*sin(y + z) + exp(z)*cos(x + y))*exp(-nu*t)",
    "v": "-(exp(y)*sin(z + x) + exp(x)*cos(y + z))*exp(-nu*t)",
    "w": "-(exp(z)*sin(x + y) + exp(y)*cos(z + x))*exp(-nu*t)",
    "p": "-(exp(2*x) + exp(2*y) + exp(2*z) + 2*sin(x + y)*cos(z + x)*exp(y + z)"
    " + 2*sin(y + z)*cos(x + y)*exp(z + x) + 2*sin(z + x)*cos(y + z)*exp(x + y))/2*exp(-2*nu*t)",
}


def beltrami(nu: float = 1.0, t_end: float = 1.0) -> Problem:
    """Beltrami flow: 3D unsteady Navier-Stokes on [-1, 1]^3 with an exact solution.

    u = -(e^x sin(y + z) + e^z cos(x + y)) e^(-nu t), v and w by rotating x -> y -> z. Velocity is given on the boundary
    and at the start, the pressure in the middle. Source: Ethier & Steinman, Int. J. Numer. Meth. Fluids 19 (1994) 369,
    with a = d = 1.

    Args:
        nu: kinematic viscosity, > 0.
        t_end: end of the time interval, > 0.
    """
    positive("beltrami", nu=nu, t_end=t_end)
    pde = navier_stokes("t x y z", nu)
    box = Box({"t": (0, t_end), "x": (-1, 1), "y": (-1, 1), "z": (-1, 1)})
    velocity = {name: _FORMULAS[name] for name in ("u", "v", "w")}
    start = {name: text.replace("*exp(-nu*t)", "") for name, text in velocity.items()}
    axis = np.linspace(-1, 1, 17)
    return Problem(
        name="beltrami",
        pde_name="navier_stokes",
        title="Beltrami flow in three dimensions",
        pde=pde,
        domain=box,
        conditions=(
            dirichlet("boundary", pde, box.boundary(), velocity),
            initial("initial", pde, box.initial(), start),
            dirichlet("pressure", pde, box.slice({"x": 0, "y": 0, "z": 0}), {"p": _FORMULAS["p"]}),
        ),
        reference=ClosedForm(_FORMULAS, {"t": np.linspace(0, t_end, 6), "x": axis, "y": axis, "z": axis}, {"nu": nu}),
        metrics={"u": ("u",), "v": ("v",), "w": ("w",), "p": ("p",), "velocity": ("u", "v", "w")},
        model=ModelSpec("mlp", {"width": 20, "depth": 4, "activation": "tanh"}),
        training=TrainingSpec(interior=4000, boundary=1000, resample_every=200, phases=quasi_newton(steps=1500)),
    )
