"""Heat conduction with very different diffusivities in x and y."""

from __future__ import annotations

import numpy as np

from pinnfuse.domains import Box
from pinnfuse.pde import PDE
from pinnfuse.problems.checks import positive
from pinnfuse.problems.condition import dirichlet, initial
from pinnfuse.problems.problem import Problem
from pinnfuse.problems.spec import ModelSpec, TrainingSpec, quasi_newton
from pinnfuse.reference import ClosedForm


def heat_multiscale(t_end: float = 5.0) -> Problem:
    """Multiscale heat: u_t = u_xx / (500 pi)^2 + u_yy / pi^2 on [0, 1]^2, u = 0 on the walls.

    u = sin(20 pi x) sin(pi y) exp(-(0.0016 + 1) t). The start has ten periods in x, so the default network sees x
    through random Fourier features of that frequency. Source: PINNacle, Heat2d-MS; Tancik et al., arXiv:2006.10739.

    Args:
        t_end: end of the time interval, > 0.
    """
    positive("heat_multiscale", t_end=t_end)
    pde = PDE("u", "t x y", equations={"heat": "u_t - u_xx/(500*pi)**2 - u_yy/pi**2"}, name="heat_multiscale")
    box = Box({"t": (0, t_end), "x": (0, 1), "y": (0, 1)})
    start = "sin(20*pi*x)*sin(pi*y)"
    return Problem(
        name="heat_multiscale",
        pde_name="heat",
        title="Heat equation, multiscale in two dimensions",
        pde=pde,
        domain=box,
        conditions=(
            initial("initial", pde, box.initial(), {"u": start}),
            dirichlet("walls", pde, box.boundary(), {"u": 0}),
        ),
        reference=ClosedForm(
            {"u": f"{start}*exp(-1.0016*t)"},
            {"t": np.linspace(0, t_end, 11), "x": np.linspace(0, 1, 201), "y": np.linspace(0, 1, 21)},
        ),
        hard={"u": f"{start} + 16*t/(1 + t)*x*(1 - x)*y*(1 - y)*u"},
        hard_conditions=("initial", "walls"),
        model=ModelSpec(
            "mlp",
            {
                "width": 20,
                "depth": 2,
                "activation": "tanh",
                "fourier_features": 48,
                "fourier_scale": [0.5, 31.0, 0.8],  # 20 pi x is 31.4 times the scaled x
            },
        ),
        training=TrainingSpec(interior=4000, boundary=200, resample_every=200, phases=quasi_newton(steps=3000)),
    )
