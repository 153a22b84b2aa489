"""The Poisson solver inverts the difference matrices exactly; its adjoint is another solve."""

import itertools
import math

import pytest
import torch

from pinnfuse import Grid
from pinnfuse.grid import Dirichlet, Neumann, axis_stencil
from pinnfuse.simulation import poisson_solve, transforms

SIDES = {
    "periodic": "periodic",
    "dirichlet": (Dirichlet(0.3), Dirichlet(-1.0)),
    "neumann": (Neumann(0.0), Neumann(0.0)),
    "mixed": (Neumann(0.5), Dirichlet(2.0)),
}


def laplacian(p: torch.Tensor, grid: Grid) -> torch.Tensor:
    """By dense matrices, in float64."""
    total = torch.zeros_like(p)
    for k, axis in enumerate(grid.axes):
        dim = k - grid.dimension
        matrix, constant = axis_stencil(grid, axis, 2).matrix(p.shape[dim])
        total = total + (p.movedim(dim, -1) @ matrix.T.to(p) + constant.to(p)).movedim(-1, dim)
    return total


@pytest.mark.parametrize("order", [2, 4, 6])
@pytest.mark.parametrize("centring", ["node", "cell"])
@pytest.mark.parametrize(("first", "second"), list(itertools.product(SIDES, SIDES)))
def test_the_laplacian_of_the_result_is_the_right_hand_side(first, second, centring, order):
    torch.manual_seed(0)
    grid = Grid("x y", (0.1, 0.07), boundary={"x": SIDES[first], "y": SIDES[second]}, order=order, centring=centring)
    rhs = laplacian(torch.randn(2, 3, 13, 16, dtype=torch.float64), grid)
    p = poisson_solve(rhs, grid)
    assert (laplacian(p, grid) - rhs).norm() < 1e-10 * rhs.norm()


@pytest.mark.parametrize("sides", ["periodic", "neumann"])
@pytest.mark.parametrize("centring", ["node", "cell"])
def test_the_level_is_fixed_by_the_mean(sides, centring):
    grid = Grid("x y", 0.1, boundary=sides, centring=centring)
    with pytest.raises(ValueError, match="weighted mean of `rhs`"):
        poisson_solve(torch.ones(8, 9), grid)
    p = poisson_solve(torch.rand(8, 9, dtype=torch.float64), grid, compatible="project")
    weights = torch.ones_like(p)
    if sides == "neumann" and centring == "node":
        for dim, end in itertools.product((0, 1), (0, -1)):
            weights.select(dim, end).mul_(0.5)
    assert abs(float((weights * p).mean())) < 1e-15


def test_a_wall_with_flux_needs_a_source_that_balances_it():
    """u'' = q on [0, 1] with u'(0) = 0, u'(1) = 1 has solutions for q of mean 1 only."""
    grid = Grid("x", 1 / 16, boundary={"x": (Neumann(0.0), Neumann(1.0))}, centring="cell", order=2)
    p = poisson_solve(torch.ones(16, dtype=torch.float64), grid)
    x = grid.coordinates((16,), dtype=torch.float64)["x"]
    assert torch.allclose(p, x**2 / 2 - (x**2 / 2).mean(), atol=1e-12)
    with pytest.raises(ValueError, match="weighted mean"):
        poisson_solve(torch.zeros(16, dtype=torch.float64), grid)


@pytest.mark.parametrize("centring", ["node", "cell"])
@pytest.mark.parametrize("order", [2, 6])
@pytest.mark.parametrize("name", SIDES)
def test_the_gradient_is_a_solve_with_the_transposed_matrix(name, order, centring):
    torch.manual_seed(0)
    grid = Grid("x y", (0.3, 0.5), boundary={"x": SIDES[name], "y": "periodic"}, order=order, centring=centring)
    rhs = torch.randn(2, 9, 8, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda r: poisson_solve(r, grid, compatible="project"), rhs)
    assert torch.autograd.gradgradcheck(lambda r: poisson_solve(r, grid, compatible="project").square(), rhs)


def test_nothing_is_saved_for_the_gradient():
    """The backward is another solve, whatever the size."""
    kept = []
    grid = Grid("x y", (0.1, 0.2), boundary={"x": "dirichlet", "y": "periodic"})
    rhs = torch.randn(9, 8, dtype=torch.float64, requires_grad=True)
    with torch.autograd.graph.saved_tensors_hooks(lambda t: kept.append(t.numel()) or t, lambda t: t):
        found = poisson_solve(rhs, grid)
    assert found.requires_grad and not kept


def test_three_axes_odd_strides_and_half_precision():
    grid = Grid("x y z", (0.2, 0.1, 0.3), boundary={"x": "periodic", "y": "dirichlet", "z": "neumann"})
    truth = torch.randn(10, 7, 8, dtype=torch.float64)
    rhs = laplacian(truth, grid)
    strided = torch.empty(8, 10, 14, dtype=torch.float64).permute(1, 2, 0)[:, ::2]
    strided.copy_(rhs)
    assert torch.allclose(poisson_solve(strided, grid), truth, atol=1e-10)
    assert poisson_solve(rhs.half(), grid).dtype == torch.half
    assert torch.allclose(poisson_solve(rhs.float(), grid), truth.float(), atol=1e-3)


def test_second_order_against_an_exact_solution():
    """sin(pi x) cos(2 pi y) on [0, 1]^2, Dirichlet in x, Neumann in y."""
    errors = []
    for n in (16, 32):
        grid = Grid("x y", 1 / n, boundary={"x": "dirichlet", "y": "neumann"}, centring="cell")
        at = grid.coordinates((n, n), dtype=torch.float64)
        exact = torch.outer((torch.pi * at["x"]).sin(), (2 * torch.pi * at["y"]).cos())
        errors.append(float((poisson_solve(-5 * torch.pi**2 * exact, grid) - exact).abs().max()))
    assert 3.5 < errors[0] / errors[1] < 4.5


def test_bad_input():
    grid = Grid("x y", 0.1, boundary="dirichlet")
    with pytest.raises(ValueError, match="`compatible`"):
        poisson_solve(torch.zeros(8, 8), grid, compatible="yes")
    with pytest.raises(ValueError, match="floating point"):
        poisson_solve(torch.zeros(8, 8, dtype=torch.int), grid)
    with pytest.raises(ValueError, match="points along 'x'"):
        poisson_solve(torch.zeros(1, 8), grid)
    with pytest.raises(ValueError, match="must be a pinnfuse.Grid"):
        poisson_solve(torch.zeros(8, 8), 0.1)
    with pytest.raises(ValueError, match="rhs.* less the walls' fluxes must be 0 to rounding; got nan"):
        poisson_solve(torch.full((8, 8), math.nan), Grid("x y", 0.1, boundary="periodic"))


@pytest.mark.parametrize("other", ["one-sided", "dirichlet", "neumann"])
def test_an_end_where_nothing_is_known_leaves_the_field_open(other):
    grid = Grid("x y", 0.1, boundary={"x": "neumann", "y": ("one-sided", other)})
    for more in ({}, {"coefficient": torch.ones(8, 8)}):
        with pytest.raises(ValueError, match="along 'y' must be periodic, Dirichlet or Neumann at both ends"):
            poisson_solve(torch.zeros(8, 8), grid, **more)


def test_no_samples():
    for grid in (Grid("x y", 0.1, boundary="periodic"), Grid("x y", 0.1, boundary="neumann", centring="cell")):
        assert poisson_solve(torch.zeros(0, 8, 8), grid).shape == (0, 8, 8)


def test_transforms_of_functions():
    """torch.func and forward mode: a solve of the tangent, and of a batch at once."""
    grid = Grid("x y", 0.1, boundary={"x": "periodic", "y": (Dirichlet(1.0), "neumann")})
    u, t = torch.randn(2, 8, 9, dtype=torch.float64)
    value, tangent = torch.func.jvp(lambda u: poisson_solve(u, grid), (u,), (t,))
    torch.testing.assert_close(value, poisson_solve(u, grid))
    torch.testing.assert_close(tangent, poisson_solve(u + t, grid) - poisson_solve(u, grid))
    torch.testing.assert_close(
        torch.func.vmap(lambda u: poisson_solve(u, grid))(torch.stack((u, t))), poisson_solve(torch.stack((u, t)), grid)
    )
    hessian = torch.func.hessian(lambda u: poisson_solve(u, grid).square().sum())(u)
    symmetric = hessian.reshape(72, 72)
    torch.testing.assert_close(symmetric, symmetric.T)


@pytest.mark.parametrize("dim", [-1, -2, -3])
def test_the_sine_transform_is_the_same_by_its_matrix_and_by_fft(dim, monkeypatch):
    torch.manual_seed(0)
    x = torch.randn(2, 11, 12, 13, dtype=torch.float64)
    sine = transforms.Sine(x.shape[dim], 0.1)
    matrix = sine.analyse(x, dim), sine.synthesise(x, dim)
    monkeypatch.setattr(transforms, "FEW", 4)
    for a, b in zip(matrix, (sine.analyse(x, dim), sine.synthesise(x, dim)), strict=True):
        assert a.shape == x.shape and torch.allclose(a, b, atol=1e-13)
    assert torch.allclose(sine.synthesise(matrix[0], dim), x, atol=1e-13)


def test_products_of_transforms_are_no_tf32(monkeypatch):
    """Whatever torch's products take elsewhere."""
    seen = []
    product = torch.Tensor.__matmul__
    monkeypatch.setattr(
        torch.Tensor, "__matmul__", lambda a, b: seen.append(torch.get_float32_matmul_precision()) or product(a, b)
    )
    before = torch.get_float32_matmul_precision()
    torch.set_float32_matmul_precision("high")
    try:
        grid = Grid("x y", 0.1, boundary={"x": "dirichlet", "y": SIDES["mixed"]})
        poisson_solve(torch.ones(8, 9), grid)
        assert torch.get_float32_matmul_precision() == "high"
    finally:
        torch.set_float32_matmul_precision(before)
    assert len(seen) >= 4 and set(seen) == {"highest"}
