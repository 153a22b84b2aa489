"""Steady flow in a square cavity whose lid slides."""

from __future__ import annotations

from pinnfuse.domains import Box, Union
from pinnfuse.problems.condition import dirichlet
from pinnfuse.problems.fluid import navier_stokes
from pinnfuse.problems.problem import Problem
from pinnfuse.problems.spec import ModelSpec, TrainingSpec, quasi_newton
from pinnfuse.reference import CavityReference


def lid_driven_cavity(reynolds: float = 100.0) -> Problem:
    """Lid-driven cavity: steady Navier-Stokes on [0, 1]^2, u = 1 on the lid y = 1, no slip on the other walls.

    p is known up to a constant. u jumps at the two lid corners, so errors leave out a disc of radius 0.04 about each.

    Args:
        reynolds: Reynolds number of lid speed and side, in [1, 1000]; nu = 1 / reynolds.
    """
    if not 1 <= reynolds <= 1000:
        raise ValueError(f"lid_driven_cavity: option `reynolds` must lie in [1, 1000]; got {reynolds!r}.")
    pde = navier_stokes("x y", 1 / reynolds)
    box = Box({"x": (0, 1), "y": (0, 1)})
    walls = Union(box.face("x", "low"), box.face("x", "high"), box.face("y", "low"))
    return Problem(
        name="lid_driven_cavity",
        pde_name="navier_stokes",
        title=f"Steady flow in a lid-driven cavity, Re = {reynolds:g}",
        pde=pde,
        domain=box,
        conditions=(
            dirichlet("lid", pde, box.face("y", "high"), {"u": 1, "v": 0}),
            dirichlet("walls", pde, walls, {"u": 0, "v": 0}),
        ),
        reference=CavityReference(reynolds),
        metrics={"u": ("u",), "v": ("v",), "p": ("p",), "velocity": ("u", "v")},
        up_to_constant=("p",),
        model=ModelSpec("mlp", {"width": 40, "depth": 4, "activation": "tanh"}),
        training=TrainingSpec(
            interior=4096,
            boundary=512,
            phases=quasi_newton(adam=1000, steps=4000),
            loss_weights={"lid": 10.0, "walls": 10.0},
        ),
    )
