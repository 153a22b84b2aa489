"""Korteweg-de Vries: a cosine that breaks up into solitons."""

from __future__ import annotations

from pinnfuse.domains import Box
from pinnfuse.pde import PDE
from pinnfuse.problems.condition import initial, periodic
from pinnfuse.problems.problem import Problem
from pinnfuse.problems.spec import ModelSpec, TrainingSpec, quasi_newton
from pinnfuse.reference import kdv as solution


def kdv(d: float = 0.0025) -> Problem:
    """Korteweg-de Vries: u_t + u u_x + d u_xxx = 0, x in [-1, 1] periodic, t in [0, 1], u(0, x) = cos(pi x).

    Args:
        d: dispersion, at least 4e-4: 0.0025 (Raissi et al., 2019), 0.022**2 (Zabusky & Kruskal, 1965).
    """
    if not d >= 4e-4:
        raise ValueError(f"kdv: option `d` must be at least 4e-4, which the reference resolves; got {d!r}.")
    pde = PDE("u", "t x", {"d": d}, {"kdv": "u_t + u*u_x + d*u_xxx"}, name="kdv")
    box = Box({"t": (0, 1), "x": (-1, 1)})
    return Problem(
        name="kdv",
        pde_name="kdv",
        title="Korteweg-de Vries, a cosine that breaks up into solitons",
        pde=pde,
        domain=box,
        conditions=(
            initial("initial", pde, box.initial(), {"u": "cos(pi*x)"}, weight=100.0),
            periodic("periodic", pde, box, "x", order=2),
        ),
        reference=solution(d),
        hard={"u": "cos(pi*x) + t*u"},
        hard_conditions=("initial",),
        periodic={"x": 2.0},
        model=ModelSpec("mlp", {"width": 20, "depth": 4, "activation": "tanh"}),
        training=TrainingSpec(interior=3000, boundary=200, resample_every=200, phases=quasi_newton(steps=3000)),
    )
