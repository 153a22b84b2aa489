"""A sine carried around a circle."""

from __future__ import annotations

import numpy as np

from pinnfuse.domains import Box
from pinnfuse.pde import PDE
from pinnfuse.problems.checks import positive
from pinnfuse.problems.condition import initial, periodic
from pinnfuse.problems.problem import Problem
from pinnfuse.problems.spec import ModelSpec, TrainingSpec, quasi_newton
from pinnfuse.reference import ClosedForm


def advection(c: float = 30.0, t_end: float = 2.0) -> Problem:
    """Advection: u_t + c u_x = 0, x in [0, 2 pi] periodic, u(0, x) = sin x; u = sin(x - c t).

    The difficulty is the number of periods, c t_end / 2 pi, which a network of smooth features leaves out: the default
    one sees time through random Fourier features whose frequencies reach c. Source: Krishnapriyan et al., NeurIPS 2021
    (c = 30); Tancik et al., arXiv:2006.10739, for the features.

    Args:
        c: speed, > 0.
        t_end: end of the time interval, > 0.
    """
    positive("advection", c=c, t_end=t_end)
    pde = PDE("u", "t x", {"c": c}, {"advection": "u_t + c*u_x"}, name="advection")
    side = 2 * np.pi
    box = Box({"t": (0, t_end), "x": (0, side)})
    return Problem(
        name="advection",
        pde_name="advection",
        title=f"Advection of a sine, speed {c:g}",
        pde=pde,
        domain=box,
        conditions=(
            initial("initial", pde, box.initial(), {"u": "sin(x)"}),
            periodic("periodic", pde, box, "x", order=0),
        ),
        reference=ClosedForm(
            {"u": "sin(x - c*t)"}, {"t": np.linspace(0, t_end, 201), "x": np.linspace(0, side, 129)}, {"c": c}
        ),
        hard={"u": f"sin(x) + t/(t + {1.5 / c!r})*u"},  # a network of order 1 at all times,
        hard_conditions=("initial",),
        periodic={"x": side},
        model=ModelSpec(
            "mlp",
            {
                "width": 20,
                "depth": 2,
                "activation": "tanh",
                "fourier_features": 48,
                "fourier_scale": [max(1.0, c * t_end / 4), 0.7, 0.7],  # t scaled to [-1, 1], cos x, sin x
            },
        ),
        training=TrainingSpec(interior=4000, boundary=200, resample_every=200, phases=quasi_newton(steps=3000)),
    )
