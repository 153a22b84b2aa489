"""A standing wave in a cavity: Maxwell's equations, transverse electric."""

from __future__ import annotations

import math

import numpy as np

from pinnfuse.domains import Box
from pinnfuse.pde import PDE
from pinnfuse.problems.checks import positive
from pinnfuse.problems.condition import dirichlet, initial
from pinnfuse.problems.problem import Problem
from pinnfuse.problems.spec import ModelSpec, TrainingSpec, quasi_newton
from pinnfuse.reference import ClosedForm


def maxwell(m: int = 1, n: int = 1) -> Problem:
    """Maxwell, TE: Ex_t = Hz_y, Ey_t = -Hz_x, Hz_t = Ex_y - Ey_x on [0, 1]^3, walls conduct perfectly (c = 1).

    Hz = cos(m pi x) cos(n pi y) cos w t, Ex = -n pi / w cos(m pi x) sin(n pi y) sin w t,
    Ey = m pi / w sin(m pi x) cos(n pi y) sin w t, w = pi sqrt(m^2 + n^2). Source: Jackson, Classical Electrodynamics
    (1999), chapter 8: the TE mode m, n of a rectangular cavity.

    Args:
        m, n: half waves in x and y, at least 1.
    """
    positive("maxwell", m=m, n=n)
    w = math.pi * math.hypot(m, n)
    formulas = {
        "Ex": f"-{n}*pi/{w!r}*cos({m}*pi*x)*sin({n}*pi*y)*sin({w!r}*t)",
        "Ey": f"{m}*pi/{w!r}*sin({m}*pi*x)*cos({n}*pi*y)*sin({w!r}*t)",
        "Hz": f"cos({m}*pi*x)*cos({n}*pi*y)*cos({w!r}*t)",
    }
    equations = {"ampere_x": "Ex_t - Hz_y", "ampere_y": "Ey_t + Hz_x", "faraday": "Hz_t - Ex_y + Ey_x"}
    pde = PDE("Ex Ey Hz", "t x y", {}, equations, name="maxwell")
    box = Box({"t": (0, 1), "x": (0, 1), "y": (0, 1)})
    start = f"cos({m}*pi*x)*cos({n}*pi*y)"
    axis = np.linspace(0, 1, 41)
    return Problem(
        name="maxwell",
        pde_name="maxwell",
        title="Standing wave of Maxwell's equations in a cavity",
        pde=pde,
        domain=box,
        conditions=(
            initial("initial", pde, box.initial(), {"Ex": 0, "Ey": 0, "Hz": start}),
            dirichlet("walls_x", pde, box.face("x"), {"Ey": 0}),
            dirichlet("walls_y", pde, box.face("y"), {"Ex": 0}),
        ),
        reference=ClosedForm(formulas, {"t": np.linspace(0, 1, 21), "x": axis, "y": axis}),
        hard={"Ex": "4*t*y*(1 - y)*Ex", "Ey": "4*t*x*(1 - x)*Ey", "Hz": f"{start} + t*Hz"},
        hard_conditions=("initial", "walls_x", "walls_y"),
        metrics={"fields": ("Ex", "Ey", "Hz"), "Ex": ("Ex",), "Ey": ("Ey",), "Hz": ("Hz",)},
        model=ModelSpec("mlp", {"width": 20, "depth": 4, "activation": "tanh"}),
        training=TrainingSpec(interior=2000, boundary=100, resample_every=200, phases=quasi_newton(steps=1000)),
    )
