"""Kovasznay's steady flow behind a grid."""

from __future__ import annotations

import math

import numpy as np

from pinnfuse.domains import Box
from pinnfuse.problems.checks import positive
from pinnfuse.problems.condition import dirichlet
from pinnfuse.problems.fluid import navier_stokes
from pinnfuse.problems.problem import Problem
from pinnfuse.problems.spec import ModelSpec, TrainingSpec, quasi_newton
from pinnfuse.reference import ClosedForm


def kovasznay(reynolds: float = 40.0) -> Problem:
    """Kovasznay flow: steady Navier-Stokes on [-0.5, 1] x [-0.5, 1.5] with an exact solution.

    u = 1 - exp(l x) cos 2 pi y, v = l / (2 pi) exp(l x) sin 2 pi y, p = (1 - exp(2 l x)) / 2,
    l = Re/2 - sqrt(Re^2/4 + 4 pi^2). Velocity is given on the boundary; p is known up to a constant.

    Args:
        reynolds: Reynolds number, > 0; nu = 1 / reynolds.
    """
    positive("kovasznay", reynolds=reynolds)
    rate = -4 * math.pi**2 / (reynolds / 2 + math.sqrt(reynolds**2 / 4 + 4 * math.pi**2))  # l, free of cancellation
    formulas = {
        "u": f"1 - exp({rate!r}*x)*cos(2*pi*y)",
        "v": f"{rate!r}/(2*pi)*exp({rate!r}*x)*sin(2*pi*y)",
        "p": f"(1 - exp(2*{rate!r}*x))/2",
    }
    pde = navier_stokes("x y", 1 / reynolds)
    box = Box({"x": (-0.5, 1.0), "y": (-0.5, 1.5)})
    return Problem(
        name="kovasznay",
        pde_name="navier_stokes",
        title=f"Kovasznay flow, Re = {reynolds:g}",
        pde=pde,
        domain=box,
        conditions=(dirichlet("boundary", pde, box.boundary(), {f: formulas[f] for f in ("u", "v")}),),
        reference=ClosedForm(formulas, {"x": np.linspace(-0.5, 1.0, 101), "y": np.linspace(-0.5, 1.5, 101)}),
        metrics={"u": ("u",), "v": ("v",), "p": ("p",), "velocity": ("u", "v")},
        up_to_constant=("p",),
        model=ModelSpec("mlp", {"width": 20, "depth": 4, "activation": "tanh"}),
        training=TrainingSpec(interior=2000, boundary=200, resample_every=200, phases=quasi_newton(steps=1500)),
    )
