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

    The start has a slope jump at x = +-1, 2 |z| in the distance z from there, which diffusion rounds off at once. The
    output transform adds what heat conduction makes of it, with w = 2 sqrt(eps t):

        u = x^2 cos(pi x) + 2 sum_z (w / sqrt(pi) exp(-z^2 / w^2) - z erfc(z / w)) + t net,    z = 1 - x, 1 + x

    so the network has no corner to learn. The embedding in x is exactly periodic.

    Args:
        eps: diffusivity, > 0.
        reaction: r, > 0.
    """
    positive("allen_cahn", eps=eps, reaction=reaction)
    pde = PDE(
        "u", "t x", {"eps": eps, "r": reaction}, {"allen_cahn": "u_t - eps*u_xx - r*(u - u**3)"}, name="allen_cahn"
    )
    box = Box({"t": (0, 1), "x": (-1, 1)})
    width = "(2*sqrt(eps*t + 1e-14))"  # w, not zero at the start

    def rounded(z: str) -> str:
        return f"({width}/sqrt(pi)*exp(-{z}**2/{width}**2) - {z}*erfc({z}/{width}))"

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
        hard={"u": f"x**2*cos(pi*x) + 2*({rounded('(1 - x)')} + {rounded('(1 + x)')}) + t*u"},
        hard_conditions=("initial",),
        periodic={"x": 2.0},
        model=ModelSpec("mlp", {"width": 20, "depth": 4, "activation": "tanh"}),
        training=TrainingSpec(interior=3000, boundary=200, resample_every=200, phases=quasi_newton(steps=4000)),
    )
