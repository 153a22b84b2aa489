"""Focusing nonlinear Schroedinger equation, real and imaginary part."""

from __future__ import annotations

import numpy as np

from pinnfuse.domains import Box
from pinnfuse.pde import PDE
from pinnfuse.problems.condition import initial, periodic
from pinnfuse.problems.problem import Problem
from pinnfuse.problems.spec import ModelSpec, TrainingSpec, quasi_newton
from pinnfuse.reference import schrodinger as solution


def schrodinger(half_length: float = 5.0) -> Problem:
    """Schroedinger: i h_t + h_xx / 2 + |h|^2 h = 0, h = u + i v, h(0, x) = 2 sech x, t in [0, pi/2], x periodic.

    The periodic continuation of sech has a slope jump at the ends (0.05 for half_length 5, 1e-6 for 15), so the start
    is a loss term.

    Args:
        half_length: x in [-half_length, half_length], 5 (Raissi et al., 2019) to 15.
    """
    if not 4 <= half_length <= 15:
        raise ValueError(f"schrodinger: option `half_length` must lie in [4, 15]; got {half_length!r}.")
    equations = {
        "real": "-v_t + u_xx/2 + (u**2 + v**2)*u",
        "imaginary": "u_t + v_xx/2 + (u**2 + v**2)*v",
    }
    pde = PDE("u v", "t x", equations=equations, name="schrodinger")
    box = Box({"t": (0, np.pi / 2), "x": (-half_length, half_length)})
    return Problem(
        name="schrodinger",
        pde_name="schrodinger",
        title="Nonlinear Schroedinger, a two-soliton breather",
        pde=pde,
        domain=box,
        conditions=(
            initial("initial", pde, box.initial(), {"u": "2*sech(x)", "v": 0}, weight=100.0),
            periodic("periodic", pde, box, "x"),
        ),
        reference=solution(half_length),
        periodic={"x": 2 * half_length},
        metrics={"u": ("u",), "v": ("v",), "h": ("u", "v")},
        model=ModelSpec("mlp", {"width": 30, "depth": 3, "activation": "tanh"}),
        training=TrainingSpec(interior=4000, boundary=200, resample_every=200, phases=quasi_newton(steps=3000)),
    )
