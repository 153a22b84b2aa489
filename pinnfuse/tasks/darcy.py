"""Darcy's flow through two materials."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor
from torch.nn import functional

from pinnfuse.grid import Grid
from pinnfuse.pde import PDE
from pinnfuse.problems import ModelSpec
from pinnfuse.simulation import poisson_solve
from pinnfuse.tasks.random_fields import neumann_field
from pinnfuse.tasks.spec import SurrogateSpec, one_adam
from pinnfuse.tasks.task import MapTask


def darcy(
    points: int = 31, centring: Literal["node", "cell"] = "node", high: float = 12.0, low: float = 3.0
) -> MapTask:
    r"""Darcy: -div(k grad u) = 1 on the unit square, u = 0 on its walls; k -> u.

    k is `high` where a Gaussian field N(0, (-Laplacian + 9)^-2) with Neumann walls is positive and `low` elsewhere.
    Solved by `poisson_solve`, in flux form with k averaged to the faces, order 2. The residual is formed on a grid with
    one point more beyond each end: u by the formula of the walls (for nodes the wall itself, 0; for cells the parabola
    through the wall and the next two cells), k as next to it. So it vanishes to rounding for the solver's solution.

    Source: Li et al., Fourier neural operator for parametric partial differential equations, ICLR 2021, section 5.2.

    Args:
        points: unknowns per axis, >= 8. "node": the walls lie one spacing 1 / (points + 1) outside the first and last
            (the paper's 85 x 85 nodes with walls are 83 here); "cell": half a spacing 1 / points.
        centring: of the points.
        high, low: the two values of k, > 0.
    """
    if points < 8:
        raise ValueError(f"darcy: option `points` must be at least 8; got {points}.")
    if not (high > 0 and low > 0):
        raise ValueError(f"darcy: options `high` and `low` must be > 0; got {high:g} and {low:g}.")
    node = centring == "node"
    h = 1 / (points + 1) if node else 1 / points
    grid = Grid("x y", h, boundary="dirichlet", centring=centring, length=1.0)
    at = [x.double() for x in grid.coordinates((points, points), dtype=torch.float64).values()]

    def sample(generator: torch.Generator) -> Tensor:
        return torch.where(neumann_field(generator, at, 1.0, 3.0, 2.0) > 0, high, low).double()

    def surround(field: Tensor, given: bool) -> Tensor:
        if given:
            return functional.pad(field, (1, 1, 1, 1), mode="replicate")
        if node:
            return functional.pad(field, (1, 1, 1, 1))
        for dim in (-1, -2):
            n = field.shape[dim]
            first, second, last, before = (field.narrow(dim, k, 1) for k in (0, 1, n - 1, n - 2))
            field = torch.cat([second / 3 - 2 * first, field, before / 3 - 2 * last], dim)
        return field

    return MapTask(
        name="darcy",
        title="Darcy's flow through two materials, coefficient to pressure",
        pde=PDE("u k", "x y", {}, {"darcy": "D(k*D(u, x), x) + D(k*D(u, y), y) + 1"}, name="darcy"),
        fields=("u",),
        grid=grid,
        shape=(points, points),
        options={"points": points, "centring": centring, "high": high, "low": low},
        model=ModelSpec("fno", {"modes": 8, "width": 16, "depth": 4}),
        training=SurrogateSpec(samples=512, held_out=32, batch=8, physics_weight=1.0, phases=one_adam(1200, 6e-3)),
        position=True,
        symmetric=True,
        given="k",
        sample=sample,
        potential=lambda r: poisson_solve(r, grid),
        solve=lambda k: poisson_solve(-torch.ones_like(k), grid, coefficient=k),
        surround=surround,
        wide=Grid("x y", h, boundary="one-sided", centring="node", origin=0.0 if node else -h / 2),
        size=0.04,
    )
