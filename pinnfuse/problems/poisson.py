"""Poisson on a square with four localised sources and sinks."""

from __future__ import annotations

import numpy as np

from pinnfuse.domains import Box
from pinnfuse.pde import PDE
from pinnfuse.problems.condition import dirichlet
from pinnfuse.problems.problem import Problem
from pinnfuse.problems.spec import ModelSpec, TrainingSpec, quasi_newton
from pinnfuse.reference import poisson as solution
from pinnfuse.reference.base import Array

# x, y, strength of each source
_SOURCES = ((0.35, 0.35, 40.0), (0.65, 0.4, -30.0), (0.4, 0.7, 25.0), (0.65, 0.65, 20.0))


def poisson(width: float = 0.08) -> Problem:
    """Poisson: -lap u = sum_k s_k exp(-|x - x_k|^2 / (2 width^2)) on [0, 1]^2, u = 0 on the boundary.

    Four Gaussian sources and sinks. Reference by Chebyshev collocation.

    Args:
        width: standard deviation of the sources, in [0.05, 0.1].
    """
    if not 0.05 <= width <= 0.1:
        raise ValueError(f"poisson: option `width` must lie in [0.05, 0.1]; got {width!r}.")
    bumps = [f"{s!r}*exp(-((x - {a!r})**2 + (y - {b!r})**2)/(2*width**2))" for a, b, s in _SOURCES]
    pde = PDE("u", "x y", {"width": width}, {"poisson": f"-u_xx - u_yy - ({' + '.join(bumps)})"}, name="poisson")

    def source(x: Array, y: Array) -> Array:
        return sum((s * np.exp(-((x - a) ** 2 + (y - b) ** 2) / (2 * width**2)) for a, b, s in _SOURCES), np.zeros(()))

    box = Box({"x": (0, 1), "y": (0, 1)})
    axis = np.linspace(0, 1, 101)
    return Problem(
        name="poisson",
        pde_name="poisson",
        title="Poisson equation with four sources on a square",
        pde=pde,
        domain=box,
        conditions=(dirichlet("boundary", pde, box.boundary(), {"u": 0}),),
        reference=solution(source, {"x": axis, "y": axis}),
        hard={"u": "x*(1 - x)*y*(1 - y)*u"},
        hard_conditions=("boundary",),
        model=ModelSpec("mlp", {"width": 20, "depth": 4, "activation": "tanh"}),
        training=TrainingSpec(interior=3000, boundary=200, resample_every=200, phases=quasi_newton(steps=1000)),
    )
