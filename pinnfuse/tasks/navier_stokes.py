"""Forced two-dimensional turbulence on a torus, as vorticity."""

from __future__ import annotations

import torch
from torch import Tensor

from pinnfuse.grid import Grid, derivative
from pinnfuse.pde import PDE
from pinnfuse.problems import ModelSpec
from pinnfuse.simulation import poisson_solve, solve
from pinnfuse.tasks.random_fields import periodic_field
from pinnfuse.tasks.spec import SurrogateSpec, one_adam
from pinnfuse.tasks.task import WindowTask


def velocity(vorticity: Tensor, grid: Grid) -> dict[str, Tensor]:
    """(u, v) = (psi_y, -psi_x) with laplacian(psi) = -w, `[..., *space]`; free of divergence on the grid."""
    psi = poisson_solve(-vorticity, grid, compatible="project")
    return {"u": derivative(psi, grid, "y"), "v": -derivative(psi, grid, "x")}


def navier_stokes(
    points: int = 32,
    nu: float = 1e-3,
    step: float = 0.25,
    history: int = 1,
    ahead: int = 4,
    levels: int = 24,
    strength: float = 1.0,
) -> WindowTask:
    r"""Navier-Stokes: w_t + u w_x + v w_y = nu Laplacian(w) + 0.1 (sin 2 pi (x + y) + cos 2 pi (x + y)), periodic.

    `history` levels of vorticity -> the next `ahead`, `step` apart. The start is the Gaussian field of the paper's
    generator, N(0, 2 7^3 (-Laplacian + 49)^-2.5), times `strength`: its code has that amplitude, its text 7^(3/2).
    Velocities follow from the stream function by `poisson_solve`, in the solver and, differentiable, as data columns of
    the residual (at the middle of a step). Order 4 in space; in time Runge-Kutta of order 4 for the data, the midpoint
    rule for the residual.

    Source: Li et al., Fourier neural operator for parametric partial differential equations, ICLR 2021, section 5.3
    (there nu = 1e-3, 64 x 64, step 1, history 10, ahead 1, levels 49).

    Args:
        points: per axis, >= 8.
        nu: viscosity, > 0.
        step: time between levels; long ones make the residual coarse.
        history, ahead: levels of a window.
        levels: levels of a sample after its first.
        strength: of the start, > 0.
    """
    if points < 8 or not nu > 0 or not strength > 0:
        raise ValueError(
            f"navier_stokes: needs `points` >= 8, `nu` > 0, `strength` > 0; got {points}, {nu:g}, {strength:g}."
        )
    forcing = "0.1*(sin(2*pi*(x + y)) + cos(2*pi*(x + y)))"
    pde = PDE(
        "w",
        "t x y",
        {"nu": nu},
        {"vorticity": f"w_t + u*w_x + v*w_y - nu*(w_xx + w_yy) - {forcing}"},
        data="u v",
        name="navier_stokes",
    )
    grid = Grid("x y", 1 / points, boundary="periodic", order=4, length=1.0)

    def sample(generator: torch.Generator) -> Tensor:
        return strength * periodic_field(generator, (points, points), 2 * 7.0**3, 7.0, 2.5)[None]

    def run(w: Tensor, times: list[float]) -> Tensor:
        return solve(pde, w, grid, times, data=lambda fields: velocity(fields[:, 0], grid), check_every=4)

    return WindowTask(
        name="navier_stokes",
        title="Forced turbulence on a torus, vorticity to later vorticity",
        pde=pde,
        fields=("w",),
        grid=grid,
        shape=(points, points),
        options={"points": points, "nu": nu, "step": step, "levels": levels, "strength": strength},
        model=ModelSpec("fno", {"modes": 10, "width": 16, "depth": 4}),
        training=SurrogateSpec(samples=64, held_out=16, batch=8, physics_weight=1.0, phases=one_adam(1000, 5e-3)),
        position=True,
        step=step,
        history=history,
        ahead=ahead,
        levels=levels,
        scheme="midpoint",
        sample=sample,
        solve=run,
        columns=lambda fields: velocity(fields.select(-3, 0), grid),
    )
