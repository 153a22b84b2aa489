"""Burgers' equation from random starts."""

from __future__ import annotations

import torch
from torch import Tensor

from pinnfuse.grid import Grid
from pinnfuse.pde import PDE
from pinnfuse.problems import ModelSpec
from pinnfuse.simulation import solve
from pinnfuse.tasks.random_fields import periodic_field
from pinnfuse.tasks.spec import SurrogateSpec, one_adam
from pinnfuse.tasks.task import WindowTask


def burgers(
    points: int = 128, nu: float = 0.01, step: float = 0.02, history: int = 1, ahead: int = 5, levels: int = 50
) -> WindowTask:
    r"""Burgers: u_t + (u^2 / 2)_x = nu u_xx on the periodic unit interval.

    `history` levels -> the next `ahead`, `step` apart; with ahead = levels it is the map from the start to all times.
    The start is the Gaussian field N(0, 625 (-Laplacian + 25)^-2). Order 4 in space, conservative; in time Runge-Kutta
    of order 4 for the data, the midpoint rule for the residual.

    Source: Li et al., Fourier neural operator for parametric partial differential equations, ICLR 2021, section 5.1
    (there nu = 0.1 and the map from the start to time 1).

    Args:
        points: >= 16; about 1 / nu of them resolve a shock.
        nu: viscosity, > 0.
        step: time between levels; long ones make the residual coarse.
        history, ahead: levels of a window.
        levels: levels of a sample after its first.
    """
    if points < 16 or not nu > 0:
        raise ValueError(f"burgers: needs `points` >= 16 and `nu` > 0; got {points}, {nu:g}.")
    pde = PDE("u", "t x", {"nu": nu}, {"burgers": "u_t + D(u**2/2, x) - nu*u_xx"}, name="burgers")
    grid = Grid("x", 1 / points, boundary="periodic", order=4, length=1.0)

    def sample(generator: torch.Generator) -> Tensor:
        return periodic_field(generator, (points,), 625.0, 5.0, 2.0)[None]

    return WindowTask(
        name="burgers",
        title="Burgers' equation from random starts, velocity to later velocity",
        pde=pde,
        fields=("u",),
        grid=grid,
        shape=(points,),
        options={"points": points, "nu": nu, "step": step, "levels": levels},
        model=ModelSpec("unet", {"width": 16, "depth": 4}),
        training=SurrogateSpec(samples=256, held_out=64, batch=16, physics_weight=0.1, phases=one_adam(1500, 3e-3)),
        block=64,
        step=step,
        history=history,
        ahead=ahead,
        levels=levels,
        scheme="midpoint",
        sample=sample,
        solve=lambda u, times: solve(pde, u, grid, times, check_every=10),
    )
