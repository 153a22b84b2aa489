"""Poisson's equation with a coefficient: residual, convergence, both gradients, batches."""

import math

import pytest
import torch

from pinnfuse import Grid
from pinnfuse.grid import Dirichlet, Neumann
from pinnfuse.grid.transport import diffusion
from pinnfuse.simulation import poisson_solve, variable

WALLS = {
    "periodic": "periodic",
    "dirichlet": {"x": (Dirichlet(0.5), Dirichlet(-1.0)), "y": "periodic"},
    "mixed": {"x": (Neumann(0.3), Dirichlet(1.0)), "y": "dirichlet"},
    "neumann": "neumann",
}


def coefficient(shape, contrast=100.0):
    torch.manual_seed(1)
    return torch.where(torch.rand(shape) > 0.5, contrast, 1.0).double()


@pytest.mark.parametrize(("walls", "order"), [*((w, 2) for w in WALLS), ("periodic", 4), ("mixed", 4)])
def test_the_diffusion_of_the_result_is_the_right_hand_side(walls, order):
    grid = Grid("x y", (0.1, 0.07), boundary=WALLS[walls], order=order, centring="cell")
    torch.manual_seed(0)
    k = torch.rand(3, 1, 14, 12, dtype=torch.float64) + 0.2
    rhs = diffusion(torch.randn(3, 2, 14, 12, dtype=torch.float64), k, grid)
    p = poisson_solve(rhs, grid, coefficient=k, compatible="project")
    assert (diffusion(p, k, grid) - rhs).norm() < 1e-9 * rhs.norm()


def test_a_coefficient_in_two_phases_of_high_contrast():
    grid = Grid("x y", 1 / 32, boundary="dirichlet", centring="cell")
    k = coefficient((32, 32), 1e3)
    p = poisson_solve(-torch.ones(32, 32, dtype=torch.float64), grid, coefficient=k)
    assert (diffusion(p, k, grid) + 1).norm() < 1e-9 * 32
    assert float(p.min()) > 0


def test_a_constant_coefficient_is_the_direct_solve():
    grid = Grid("x y", 0.1, boundary="dirichlet", centring="cell")
    rhs = torch.randn(2, 12, 10, dtype=torch.float64)
    found = poisson_solve(rhs, grid, coefficient=torch.full((12, 10), 2.0, dtype=torch.float64))
    assert torch.allclose(found, poisson_solve(rhs / 2, grid), atol=1e-10)


def test_second_order_against_an_exact_solution():
    """k = 1 + x, p = x - log(1 + x)/log 2 on [0, 1]: (k p')' = 1."""
    errors = []
    for n in (20, 40):
        grid = Grid("x", 1 / n, boundary="dirichlet", centring="cell")
        x = grid.coordinates((n,), dtype=torch.float64)["x"]
        p = poisson_solve(torch.ones_like(x), grid, coefficient=1 + x)
        errors.append(float((p - (x - (1 + x).log() / torch.log(torch.tensor(2.0, dtype=torch.float64)))).abs().max()))
    assert 3.3 < errors[0] / errors[1] < 5.5


@pytest.mark.parametrize("walls", ["dirichlet", "mixed", "periodic"])
def test_gradients_to_both_arguments(walls):
    grid = Grid("x y", (0.3, 0.2), boundary=WALLS[walls], centring="cell")
    torch.manual_seed(0)
    k = (torch.rand(5, 4, dtype=torch.float64) + 0.5).requires_grad_()
    rhs = torch.randn(2, 5, 4, dtype=torch.float64, requires_grad=True)
    solve = lambda r, c: poisson_solve(r, grid, coefficient=c, compatible="project")  # noqa: E731
    assert torch.autograd.gradcheck(solve, (rhs, k), eps=1e-6, atol=1e-6)


def test_second_derivatives_are_refused():
    """The incoming gradient is a constant: `once_differentiable` would let the term vanish."""
    k = torch.ones(8, dtype=torch.float64, requires_grad=True)
    p = poisson_solve(torch.ones_like(k), Grid("x", 0.1, boundary="dirichlet"), coefficient=k)
    with pytest.raises(RuntimeError, match="no derivative of its own"):
        torch.autograd.grad(p.sum(), k, create_graph=True)


def test_float32_reaches_its_tolerance():
    grid = Grid("x y", 1 / 64, boundary="dirichlet", centring="cell")
    k = coefficient((64, 64), 10.0)
    rhs = -torch.ones(64, 64)
    found = poisson_solve(rhs, grid, coefficient=k.float())
    truth = poisson_solve(rhs.double(), grid, coefficient=k)
    assert (found - truth).norm() < 1e-3 * truth.norm()


def test_bad_input():
    grid = Grid("x y", 0.1, boundary="dirichlet", centring="cell")
    rhs = torch.ones(8, 9, dtype=torch.float64)
    for bad in (-1.0, 0.0, math.nan, math.inf):
        with pytest.raises(ValueError, match=f"must be > 0 and finite everywhere; its least value is {bad:g}"):
            poisson_solve(rhs, grid, coefficient=torch.full_like(rhs, bad))
    with pytest.raises(ValueError, match="`rhs` must be finite"):
        poisson_solve(rhs * math.nan, grid, coefficient=torch.ones_like(rhs))
    for tolerance in (-1.0, math.nan):
        with pytest.raises(ValueError, match="`tolerance` must be >= 0"):
            poisson_solve(rhs, grid, coefficient=torch.ones_like(rhs), tolerance=tolerance)
    with pytest.raises(ValueError, match="`coefficient` must be"):
        poisson_solve(rhs, grid, coefficient=torch.ones(8, 8).double())
    with pytest.raises(ValueError, match="weighted mean"):
        poisson_solve(rhs, Grid("x y", 0.1, boundary="periodic"), coefficient=torch.ones_like(rhs))
    with pytest.raises(ValueError, match="Fix the level by a Dirichlet wall"):
        poisson_solve(rhs, Grid("x y", 0.1, boundary="neumann"), coefficient=torch.ones_like(rhs))


def test_iterations_that_do_not_arrive_are_an_error(monkeypatch):
    monkeypatch.setattr(variable, "MOST", 3)
    grid = Grid("x y", 0.1, boundary="dirichlet", centring="cell")
    with pytest.raises(RuntimeError, match="after 3 iterations the residual is .* larger `tolerance`"):
        poisson_solve(torch.rand(8, 9).double(), grid, coefficient=coefficient((8, 9)))
