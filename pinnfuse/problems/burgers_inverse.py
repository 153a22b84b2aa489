"""An inverse problem: the viscosity of Burgers' equation from noisy values."""

from __future__ import annotations

import dataclasses

import numpy as np
import torch

from pinnfuse.pde import PDE, Parameter
from pinnfuse.problems.burgers import burgers
from pinnfuse.problems.condition import dirichlet, initial, observations
from pinnfuse.problems.problem import Problem
from pinnfuse.problems.spec import TrainingSpec, quasi_newton


def burgers_inverse(
    nu: float = 0.01 / np.pi, values: int = 2000, noise: float = 0.01, start: float = 0.02, seed: int = 0
) -> Problem:
    """Burgers, inverse: find nu in u_t + u u_x = nu u_xx from values of u at random points, with noise.

    Domain, start and walls are those of `burgers`. Source: Raissi, Perdikaris & Karniadakis, J. Comput. Phys. 378
    (2019) 686, who take 2,000 values.

    Args:
        nu: the true viscosity, at least 1e-3.
        values: number of values of u, >= 1.
        noise: standard deviation of what is added to them, as a fraction of theirs, >= 0.
        start: first guess of nu, > 0.
        seed: of points and noise.
    """
    for name, value, good in (
        ("values", values, values >= 1),
        ("noise", noise, noise >= 0),
        ("start", start, start > 0),
    ):
        if not good:
            raise ValueError(f"burgers_inverse: option `{name}` is out of range; got {value!r}.")
    known = burgers(nu)
    pde = PDE(
        "u",
        "t x",
        [Parameter("nu", start, trainable=True, positive=True)],
        {"burgers": "u_t + u*u_x - nu*u_xx"},
        name="burgers_inverse",
    )
    box = known.domain
    generator = torch.Generator().manual_seed(seed)
    points = box.sample(values, generator, dtype=torch.float64, method="uniform")
    u = torch.from_numpy(known.reference.solution(points.numpy())[:, 0].copy())
    measured = u + noise * u.std(correction=0) * torch.randn(values, generator=generator, dtype=torch.float64)
    return dataclasses.replace(
        known,
        name="burgers_inverse",
        title="Viscous Burgers, inverse: viscosity from noisy values",
        pde=pde,
        conditions=(
            initial("initial", pde, box.initial(), {"u": "-sin(pi*x)"}),
            dirichlet("walls", pde, box.face("x"), {"u": 0}),
            observations("observations", pde, points, {"u": measured}),
        ),
        true_parameters={"nu": nu},
        training=TrainingSpec(interior=4000, boundary=values, resample_every=200, phases=quasi_newton(steps=1500)),
    )
