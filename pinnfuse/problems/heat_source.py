"""An inverse problem: the source of a heat equation, as a field of the network."""

from __future__ import annotations

import numpy as np
import torch

from pinnfuse.domains import Box
from pinnfuse.pde import PDE
from pinnfuse.problems.checks import positive
from pinnfuse.problems.condition import dirichlet, initial, observations
from pinnfuse.problems.problem import Problem
from pinnfuse.problems.spec import ModelSpec, TrainingSpec, quasi_newton
from pinnfuse.reference import ClosedForm

_U = "sin(pi*x)*(1 - exp(-k*pi**2*t)) + sin(2*pi*x)/2*(1 - exp(-4*k*pi**2*t))"
_F = "k*pi**2*(sin(pi*x) + 2*sin(2*pi*x))"


def heat_source(k: float = 0.1, values: int = 500, noise: float = 0.01, seed: int = 0) -> Problem:
    """Heat with an unknown source, inverse: find f(x) in u_t = k u_xx + f from noisy values of u at random points.

    On [0, 1]^2, u = 0 at the start and at both ends. The network has two outputs, u and f; that f does not depend on t
    is an equation. The source k pi^2 (sin pi x + 2 sin 2 pi x) gives a closed form.

    Args:
        k: diffusivity, > 0.
        values: number of values of u, >= 1.
        noise: standard deviation of what is added to them, as a fraction of theirs, >= 0.
        seed: of points and noise.
    """
    positive("heat_source", k=k)
    for name, value, good in (("values", values, values >= 1), ("noise", noise, noise >= 0)):
        if not good:
            raise ValueError(f"heat_source: option `{name}` is out of range; got {value!r}.")
    pde = PDE("u f", "t x", {"k": k}, {"heat": "u_t - k*u_xx - f", "steady": "f_t"}, name="heat_source")
    box = Box({"t": (0, 1), "x": (0, 1)})
    axes = {"t": np.linspace(0, 1, 51), "x": np.linspace(0, 1, 101)}
    reference = ClosedForm({"u": _U, "f": _F}, axes, {"k": k})
    generator = torch.Generator().manual_seed(seed)
    points = box.sample(values, generator, dtype=torch.float64, method="uniform")
    u = torch.from_numpy(reference.solution(points.numpy())[:, 0].copy())
    measured = u + noise * u.std(correction=0) * torch.randn(values, generator=generator, dtype=torch.float64)
    return Problem(
        name="heat_source",
        pde_name="heat",
        title="Heat equation, inverse: a source from noisy temperatures",
        pde=pde,
        domain=box,
        conditions=(
            initial("initial", pde, box.initial(), {"u": 0}),
            dirichlet("walls", pde, box.face("x"), {"u": 0}),
            observations("observations", pde, points, {"u": measured}, weight=100.0),
        ),
        reference=reference,
        hard={"u": "4*t*x*(1 - x)*u"},
        hard_conditions=("initial", "walls"),
        model=ModelSpec("mlp", {"width": 20, "depth": 3, "activation": "tanh"}),
        training=TrainingSpec(interior=1000, boundary=values, resample_every=200, phases=quasi_newton(steps=600)),
    )
