"""Explicit heat steps: the exact discrete factor, what is conserved, and the limit of stability."""

import math

import pytest
import torch

from pinnfuse import Grid
from pinnfuse.grid import Dirichlet, axis_stencil
from pinnfuse.simulation import heat
from pinnfuse.simulation.heat import largest_stable_step

TURN = 2 * math.pi


def test_a_mode_decays_by_the_exact_factor_over_5000_steps():
    grid = Grid("x y", (TURN / 16, TURN / 12), boundary="periodic")
    at = grid.coordinates((16, 12), dtype=torch.float64)
    u0 = at["x"].cos()[:, None] * at["y"].sin()[None, :]
    found = heat(u0, grid, diffusivity=0.1, dt=1e-3, steps=5000)
    symbol = sum((2 * math.sin(h / 2) / h) ** 2 for h in grid.spacing)
    assert torch.allclose(found, (1 - 1e-4 * symbol) ** 5000 * u0, rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize("boundary", ["periodic", "neumann"])
def test_heat_is_conserved(boundary):
    torch.manual_seed(0)
    grid = Grid("x y", (0.1, 0.2), boundary=boundary, centring="cell")
    u0 = torch.rand(3, 9, 12, dtype=torch.float64)
    found = heat(u0, grid, diffusivity=2.0, steps=100)
    assert torch.allclose(found.sum((-2, -1)), u0.sum((-2, -1)), rtol=1e-12)
    assert torch.all(found.amax((-2, -1)) < u0.amax((-2, -1)))


def test_walls_hold_their_temperature():
    grid = Grid("x", 1 / 8, boundary={"x": (Dirichlet(1.0), Dirichlet(3.0))})
    x = grid.coordinates((7,), dtype=torch.float64)["x"]
    assert torch.allclose(heat(torch.zeros(7, dtype=torch.float64), grid, diffusivity=1.0, steps=600), 1 + 2 * x)


def test_the_limit_is_a_quarter_on_a_periodic_plane():
    grid = Grid("x y", 1.0, boundary="periodic")
    assert largest_stable_step(grid, (16, 16)) == pytest.approx(0.25)
    with pytest.raises(ValueError, match="largest stable step is 0.25"):
        heat(torch.rand(16, 16), grid, diffusivity=1.0, dt=0.26)


@pytest.mark.parametrize("order", [2, 4, 6])
@pytest.mark.parametrize("centring", ["node", "cell"])
@pytest.mark.parametrize("boundary", ["periodic", "dirichlet", "neumann", ("neumann", "dirichlet")])
def test_the_limit_is_that_of_the_whole_matrix(boundary, centring, order):
    grid = Grid("x y", (0.1, 0.3), boundary={"x": boundary, "y": "periodic"}, order=order, centring=centring)
    dense = [axis_stencil(grid, axis, 2).matrix(n)[0] for axis, n in (("x", 40), ("y", 8))]
    values = torch.linalg.eigvals(torch.kron(dense[0], torch.eye(8)) + torch.kron(torch.eye(40), dense[1]))
    values = values[values.abs() > 1e-9 * values.abs().max()]
    truth = float((-2 * values.real / values.abs() ** 2).min())
    assert largest_stable_step(grid, (40, 8)) == pytest.approx(truth, rel=3e-2)


def test_bad_input():
    grid = Grid("x", 0.1, boundary="periodic")
    for options, message in (
        ({"diffusivity": -1.0}, "`diffusivity`"),
        ({"diffusivity": math.nan}, "`diffusivity`"),
        ({"diffusivity": 1.0, "steps": -1}, "`steps`"),
        ({"diffusivity": 1.0, "dt": 0.0}, "`dt`"),
        ({"diffusivity": "a"}, "`diffusivity` must be a finite number"),
        ({"diffusivity": torch.tensor(1.0, requires_grad=True)}, "without gradient"),
        ({"diffusivity": 1.0, "steps": 2.5}, "whole number"),
        ({"u0": torch.zeros(2), "diffusivity": 1.0}, "at least 3 points along 'x'"),
        ({"grid": 0.1, "diffusivity": 1.0}, "must be a pinnfuse.Grid"),
    ):
        with pytest.raises(ValueError, match=message):
            heat(**{"u0": torch.zeros(16), "grid": grid} | options)


@pytest.mark.parametrize("boundary", ["one-sided", ("one-sided", "dirichlet"), ("neumann", "one-sided")])
def test_ends_where_nothing_is_known(boundary):
    """Straight lines stay, waves do not grow, at the step that is taken for stable; twice of it is refused."""
    grid = Grid("x", 0.1, boundary={"x": boundary})
    largest = largest_stable_step(grid, (16,))
    assert 0 < largest < 0.1**2
    wave = 1e-3 * (-1.0) ** torch.arange(16, dtype=torch.float64)
    assert float(heat(wave, grid, diffusivity=1.0, dt=0.99 * largest, steps=200).abs().max()) < 0.1
    if boundary == "one-sided":
        line = grid.coordinates((16,), dtype=torch.float64)["x"]
        torch.testing.assert_close(heat(line, grid, diffusivity=1.0, steps=20), line, rtol=1e-6, atol=1e-6)
    with pytest.raises(ValueError, match="largest stable step is 0.00"):
        heat(wave, grid, diffusivity=1.0, dt=2 * largest)
    with pytest.raises(ValueError, match="grow as a power of time"):
        heat(wave, Grid("x", 0.1, boundary={"x": boundary}, order=4), diffusivity=1.0)
