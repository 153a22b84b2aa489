import numpy as np
import pytest

from pinnfuse.domains import Box
from pinnfuse.optimizers import Phase
from pinnfuse.pde import PDE
from pinnfuse.problems import ModelSpec, Problem, TrainingSpec, dirichlet, initial
from pinnfuse.reference import ClosedForm


@pytest.fixture
def heat() -> Problem:
    """A small problem with an exact solution, for runs of a few seconds."""
    pde = PDE("u", "t x", {"k": 0.1}, {"heat": "u_t - k*u_xx"}, name="heat")
    box = Box({"t": (0, 1), "x": (0, 1)})
    return Problem(
        name="rod",
        pde_name="heat",
        title="cooling rod",
        pde=pde,
        domain=box,
        conditions=(
            initial("initial", pde, box.initial(), {"u": "sin(pi*x)"}),
            dirichlet("walls", pde, box.boundary(), {"u": 0}),
        ),
        reference=ClosedForm(
            {"u": "exp(-k*pi**2*t)*sin(pi*x)"}, {"t": np.linspace(0, 1, 11), "x": np.linspace(0, 1, 21)}, {"k": 0.1}
        ),
        model=ModelSpec("mlp", {"width": 12, "depth": 2}),
        training=TrainingSpec(
            interior=64,
            boundary=16,
            phases=[Phase(optimizer="adam", steps=30, lr=5e-3), Phase(optimizer="ssbroyden", steps=20)],
        ),
    )
