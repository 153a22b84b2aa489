"""Patterns of two reacting substances."""

from __future__ import annotations

import torch
from torch import Tensor

from pinnfuse.grid import Grid
from pinnfuse.problems import ModelSpec
from pinnfuse.simulation import gray_scott_pde, solve
from pinnfuse.simulation.gray_scott import patches
from pinnfuse.tasks.spec import SurrogateSpec, one_adam
from pinnfuse.tasks.task import WindowTask


def gray_scott(
    points: int = 32,
    length: float = 0.5,
    feed: float = 0.0367,
    kill: float = 0.0649,
    step: float = 10.0,
    history: int = 1,
    ahead: int = 4,
    levels: int = 40,
    patch_count: int = 3,
) -> WindowTask:
    r"""Gray-Scott: u_t = D_u Laplacian(u) - u v^2 + F (1 - u), v_t = D_v Laplacian(v) + u v^2 - (F + k) v, periodic.

    `history` levels of both fields -> the next `ahead`, `step` apart, from random patches. Order 2 in space; in time
    Runge-Kutta of order 4 for the data, the midpoint rule for the residual. Source: Pearson, Science 261 (1993).

    Args:
        points: per axis, >= 16.
        length: of a side, > 0; spacing 1/64 and less resolves the spots.
        feed, kill: F and k, the default makes spots that divide (`pinnfuse.simulation.gray_scott.REGIMES`).
        step: time between levels.
        history, ahead: levels of a window.
        levels: levels of a sample after its first.
        patch_count: patches at the start.
    """
    if points < 16 or not length > 0 or patch_count < 1:
        raise ValueError(
            f"gray_scott: needs `points` >= 16, `length` > 0, `patch_count` >= 1; got {points}, {length:g}, "
            f"{patch_count}."
        )
    pde = gray_scott_pde(2, feed, kill)
    grid = Grid("x y", length / points, boundary="periodic", length=length)
    shape = (points, points)

    def sample(generator: torch.Generator) -> Tensor:
        seed = int(torch.randint(2**62, (), generator=generator))
        return patches(grid, shape, count=patch_count, seed=seed, dtype=torch.float64)[0]

    return WindowTask(
        name="gray_scott",
        title="Gray-Scott patterns, both substances to later ones",
        pde=pde,
        fields=("u", "v"),
        grid=grid,
        shape=shape,
        options={
            "points": points,
            "length": length,
            "feed": feed,
            "kill": kill,
            "step": step,
            "levels": levels,
            "patch_count": patch_count,
        },
        model=ModelSpec("unet", {"width": 16, "depth": 3}),
        training=SurrogateSpec(samples=48, held_out=16, batch=4, physics_weight=0.1, phases=one_adam(1000, 3e-3)),
        step=step,
        history=history,
        ahead=ahead,
        levels=levels,
        scheme="midpoint",
        sample=sample,
        solve=lambda u, times: solve(pde, u, grid, times, check_every=20),
    )
