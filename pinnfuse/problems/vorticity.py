"""Decaying Taylor-Green vortices as vorticity and stream function."""

from __future__ import annotations

import numpy as np

from pinnfuse.domains import Box
from pinnfuse.pde import PDE
from pinnfuse.problems.checks import positive
from pinnfuse.problems.condition import dirichlet, initial, periodic
from pinnfuse.problems.problem import Problem
from pinnfuse.problems.spec import ModelSpec, TrainingSpec, quasi_newton
from pinnfuse.reference import ClosedForm


def vorticity(nu: float = 0.1, t_end: float = 1.0) -> Problem:
    """Navier-Stokes without pressure: w_t + psi_y w_x - psi_x w_y = nu lap w, lap psi = -w, periodic on [0, 2 pi]^2.

    u = psi_y, v = -psi_x; psi = -cos x cos y F, w = 2 psi, F = exp(-2 nu t): Taylor & Green, Proc. R. Soc. A 158
    (1937) 499. The stream function, open up to a function of time, is given at the origin.

    Args:
        nu: kinematic viscosity, > 0.
        t_end: end of the time interval, > 0.
    """
    positive("vorticity", nu=nu, t_end=t_end)
    equations = {
        "vorticity": "w_t + psi_y*w_x - psi_x*w_y - nu*(w_xx + w_yy)",
        "stream_function": "psi_xx + psi_yy + w",
    }
    pde = PDE("w psi", "t x y", {"nu": nu}, equations, name="vorticity")
    side = 2 * np.pi
    box = Box({"t": (0, t_end), "x": (0, side), "y": (0, side)})
    axis = np.linspace(0, side, 65)
    return Problem(
        name="vorticity",
        pde_name="vorticity",
        title="Decaying Taylor-Green vortices, vorticity and stream function",
        pde=pde,
        domain=box,
        conditions=(
            initial("initial", pde, box.initial(), {"w": "-2*cos(x)*cos(y)"}),
            periodic("periodic_x", pde, box, "x"),
            periodic("periodic_y", pde, box, "y"),
            dirichlet("stream", pde, box.slice({"x": 0, "y": 0}), {"psi": "-exp(-2*nu*t)"}),
        ),
        reference=ClosedForm(
            {"w": "-2*cos(x)*cos(y)*exp(-2*nu*t)", "psi": "-cos(x)*cos(y)*exp(-2*nu*t)"},
            {"t": np.linspace(0, t_end, 11), "x": axis, "y": axis},
            {"nu": nu},
        ),
        hard={"w": "-2*cos(x)*cos(y) + t*w"},
        hard_conditions=("initial",),
        periodic={"x": side, "y": side},
        model=ModelSpec("mlp", {"width": 20, "depth": 4, "activation": "tanh"}),
        training=TrainingSpec(interior=2000, boundary=100, resample_every=200, phases=quasi_newton(steps=1000)),
    )
