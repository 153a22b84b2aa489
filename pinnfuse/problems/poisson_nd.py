"""Poisson in any number of dimensions."""

from __future__ import annotations

import numpy as np

from pinnfuse.domains import Box
from pinnfuse.pde import PDE
from pinnfuse.problems.condition import dirichlet
from pinnfuse.problems.problem import Problem
from pinnfuse.problems.spec import ModelSpec, TrainingSpec, quasi_newton
from pinnfuse.reference import ClosedForm

_EVALUATION = 8192  # points where a tensor grid would be too large


def poisson_nd(dimension: int = 5) -> Problem:
    """Poisson in d dimensions: -lap u = pi^2/4 sum_i sin(pi x_i / 2) on [0, 1]^d; u = sum_i sin(pi x_i / 2).

    The solution is given on the boundary. Source: PINNacle, PNd (d = 5).

    Args:
        dimension: number of coordinates x1, x2, ..., from 1 to 100.
    """
    if not 1 <= dimension <= 100:
        raise ValueError(f"poisson_nd: option `dimension` must lie between 1 and 100; got {dimension!r}.")
    names = [f"x{i}" for i in range(1, dimension + 1)]
    total = " + ".join(f"sin(pi*{name}/2)" for name in names)
    pde = PDE("u", names, equations={"poisson": f"-laplacian(u) - pi**2/4*({total})"}, name="poisson_nd")
    box = Box({name: (0, 1) for name in names})
    small = dimension <= 3
    axis = np.linspace(0, 1, {1: 1001, 2: 101, 3: 31}.get(dimension, 5))
    points = None if small else np.random.default_rng(0).random((_EVALUATION, dimension))
    return Problem(
        name="poisson_nd",
        pde_name="poisson",
        title=f"Poisson equation in {dimension} dimensions",
        pde=pde,
        domain=box,
        conditions=(dirichlet("boundary", pde, box.boundary(), {"u": total}),),
        reference=ClosedForm({"u": total}, dict.fromkeys(names, axis), points=points),
        model=ModelSpec("mlp", {"width": 20, "depth": 4, "activation": "tanh"}),
        training=TrainingSpec(interior=4000, boundary=1000, resample_every=200, phases=quasi_newton(steps=1500)),
    )
