"""Allen-Cahn with the usual cosine start."""

from __future__ import annotations

from pinnfuse.domains import Box
from pinnfuse.pde import PDE
from pinnfuse.problems.checks import positive
from pinnfuse.problems.condition import initial, periodic
from pinnfuse.problems.problem import Problem
from pinnfuse.problems.spec import ModelSpec, TrainingSpec, quasi_newton
from pinnfuse.reference import allen_cahn as solution


def allen_cahn(eps: float = 1e-4, reaction: float = 5.0) -> Problem:
    """Allen-Cahn: u_t = eps u_xx + r (u - u^3), x in [-1, 1] periodic, t in [0, 1], u(0, x) = x^2 cos(pi x).

    The start has a slope jump at x = +-1, which disappears at once: no output transform meets it exactly and stays
    periodic and smooth, so it is a loss term. The embedding in x is exactly periodic.

    Args:
        eps: diffusivity, > 0.
        reaction: r, > 0.
    """
    positive("allen_cahn", eps=eps, reaction=reaction)
    pde = PDE(
        "u", "t x", {"eps": eps, "r": reaction}, {"allen_cahn": "u_t - eps*u_xx - r*(u - u**3)"}, name="allen_cahn"
    )
    box = Box({"t": (0, 1), "x": (-1, 1)})
    return Problem(
        name="allen_cahn",
        pde_name="allen_cahn",
        title="Allen-Cahn, phases that sharpen",
        pde=pde,
        domain=box,
        conditions=(
            initial("initial", pde, box.initial(), {"u": "x**2*cos(pi*x)"}, weight=100.0),
            periodic("periodic", pde, box, "x"),
        ),
        reference=solution(eps, reaction),
        periodic={"x": 2.0},
        model=ModelSpec("mlp", {"width": 20, "depth": 4, "activation": "tanh"}),
        training=TrainingSpec(interior=3000, boundary=200, resample_every=200, phases=quasi_newton(steps=4000)),
    )
