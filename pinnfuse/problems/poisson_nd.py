"""Poisson in any number of dimensions."""

from __future__ import annotations

from typing import Literal

import numpy as np

from pinnfuse.domains import Box
from pinnfuse.pde import PDE
from pinnfuse.problems.condition import dirichlet
from pinnfuse.problems.problem import Problem
from pinnfuse.problems.spec import ModelSpec, TrainingSpec, quasi_newton
from pinnfuse.reference import ClosedForm

_EVALUATION = 8192  # points where a tensor grid would be too large


def poisson_nd(dimension: int = 5, solution: Literal["sine", "cosine", "product"] = "sine") -> Problem:
    """Poisson in d dimensions, -lap u = f on [0, 1]^d, with a known solution that is given on the boundary.

    "sine": u = sum_i sin(pi x_i / 2), f = pi^2 u / 4 (PINNacle, PNd, d = 5). "cosine": u = sum_i cos(pi x_i),
    f = pi^2 u. "product": u = x1 x2 + x3 x4 + ..., f = 0. The last two for d = 5 and d = 10 are those of the
    literature on natural gradients (Dangel, Mueller & Zeinhofer, KFAC for PINNs, NeurIPS 2024).

    Args:
        dimension: number of coordinates x1, x2, ..., from 1 to 100; even for "product".
        solution: "sine", "cosine" or "product".
    """
    if not 1 <= dimension <= 100:
        raise ValueError(f"poisson_nd: option `dimension` must lie between 1 and 100; got {dimension!r}.")
    if solution == "product" and dimension % 2:
        raise ValueError(f"poisson_nd: option `dimension` must be even for the products; got {dimension!r}.")
    names = [f"x{i}" for i in range(1, dimension + 1)]
    terms, factor = {
        "sine": ([f"sin(pi*{name}/2)" for name in names], "pi**2/4"),
        "cosine": ([f"cos(pi*{name})" for name in names], "pi**2"),
        "product": ([f"{a}*{b}" for a, b in zip(names[::2], names[1::2], strict=False)], "0"),
    }[solution]
    total = " + ".join(terms)
    source = f" - {factor}*({total})" if factor != "0" else ""
    pde = PDE("u", names, equations={"poisson": f"-laplacian(u){source}"}, name="poisson_nd")
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
