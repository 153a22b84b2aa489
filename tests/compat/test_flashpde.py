"""The article's names: values, boundaries, derivatives, and what is said about what the article leaves open."""

import math
import warnings

import pytest
import torch

from pinnfuse import Grid
from pinnfuse.compat import flashpde
from pinnfuse.grid import laplacian

TURN = 2 * math.pi


def plane(nx=24, ny=32):
    x = torch.arange(nx, dtype=torch.float64) * TURN / nx
    y = torch.arange(ny, dtype=torch.float64) * TURN / ny
    return x[:, None], y[None, :], TURN / nx, TURN / ny


@pytest.fixture(autouse=True)
def quiet():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def test_what_the_article_leaves_open_is_said_once():
    flashpde._say.cache_clear()
    with pytest.warns(UserWarning, match="spacing 1 and periodic boundaries"):
        flashpde.laplacian_2d(torch.rand(8, 8))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        flashpde.laplacian_2d(torch.rand(8, 8))
        flashpde.laplacian_2d(torch.rand(8, 8), 0.1, 0.1, boundary="neumann")
        flashpde.fused_operator(torch.rand(8, 8), boundary="neumann")  # spacing 1 is in its definition
    with pytest.warns(UserWarning, match=r"taken as periodic boundaries. Pass boundary="):
        flashpde.fused_operator(torch.rand(8, 8))


def test_laplacian_with_its_own_spacing_per_axis():
    x, y, dx, dy = plane()
    u = x.sin() * (2 * y).cos()
    symbol = (2 * math.sin(dx / 2) / dx) ** 2 + (2 * math.sin(dy) / dy) ** 2
    assert torch.allclose(flashpde.laplacian_2d(u, dx, dy), -symbol * u, atol=1e-12)


def test_convection_and_its_gradients():
    x, y, dx, dy = plane(8, 10)
    f, u, v = (t.expand(8, 10).clone().requires_grad_() for t in (x.sin() + y.cos(), 1 + 0 * x * y, y.sin() + 0 * x))
    found = flashpde.convection_term(f, u, v, dx, dy)
    truth = math.sin(dx) / dx * x.cos() - math.sin(dy) / dy * y.sin() ** 2
    assert torch.allclose(found, truth, atol=1e-12)
    assert torch.autograd.gradcheck(lambda *t: flashpde.convection_term(*t, dx, dy), (f, u, v))


def test_pressure_of_a_divergence():
    x, y, dx, dy = plane()
    u, v = x.sin() * y.cos(), 0 * x * y
    p = flashpde.poisson_solver(u, v, 0.5, dx, dy)
    assert torch.allclose(flashpde.laplacian_2d(p, dx, dy), math.sin(dx) / dx * x.cos() * y.cos() / 0.5, atol=1e-10)
    assert abs(float(p.mean())) < 1e-14
    with pytest.raises(ValueError, match="`dt` must be > 0"):
        flashpde.poisson_solver(u, v, 0.0)


def test_a_batch_is_solved_as_its_members():
    u0 = torch.rand(4, 12, 9, dtype=torch.float64)
    together = flashpde.pde_solver(u0)
    assert torch.equal(together, torch.stack([flashpde.pde_solver(sample) for sample in u0]))
    assert torch.allclose(together.mean((-2, -1)), u0.mean((-2, -1)))
    assert together.std() < 0.2 * u0.std()
    with pytest.raises(ValueError, match="largest stable step"):
        flashpde.pde_solver(u0, alpha=0.3)


def test_a_step_is_explicit_diffusion():
    u0 = torch.rand(12, 9, dtype=torch.float64)
    step = u0 + 0.1 * flashpde.laplacian_2d(u0)
    assert torch.allclose(flashpde.pde_solver(u0, steps=2), step + 0.1 * flashpde.laplacian_2d(step), atol=1e-14)


def test_fused_operator_is_laplacian_plus_reaction():
    x = torch.rand(3, 9, 14, dtype=torch.float64, requires_grad=True)
    assert torch.allclose(flashpde.fused_operator(x, 0.7), flashpde.laplacian_2d(x) + 0.7 * x, atol=1e-12)
    assert torch.autograd.gradcheck(flashpde.fused_operator, x)


def test_products():
    a, b = torch.randn(10, 5, dtype=torch.float64), torch.randn(5, 7, dtype=torch.float64)
    assert torch.allclose(flashpde.fused_matmul(a, b), a @ b)
    assert torch.allclose(flashpde.fused_matmul(a, b, b[0], "tanh"), (a @ b + b[0]).tanh())
    square = torch.randn(6, 6, dtype=torch.float64, requires_grad=True)
    assert torch.allclose(flashpde.fused_matmul_add(square), square @ square.T + square)
    assert torch.autograd.gradcheck(flashpde.fused_matmul_add, square)


@pytest.mark.parametrize("boundary", [{"x": "periodic", "y": "dirichlet"}, ["neumann", "dirichlet"]], ids=str)
def test_boundaries_in_every_form(boundary):
    u = torch.randn(8, 9, dtype=torch.float64)
    grid = Grid("x y", (0.5, 0.25), boundary=boundary)
    assert torch.equal(flashpde.laplacian_2d(u, 0.5, 0.25, boundary=boundary), laplacian(u, grid))


def test_a_backward_by_hand():
    x = torch.linspace(-4, 4, 17, dtype=torch.float64, requires_grad=True)
    assert torch.allclose(flashpde.optimized_function(x), torch.nn.functional.silu(x))
    assert torch.autograd.gradcheck(flashpde.optimized_function, x)
    assert torch.autograd.gradgradcheck(flashpde.optimized_function, x)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: flashpde.fused_matmul(torch.zeros(2, 3), torch.zeros(2, 3)), "\\[M, K\\] and \\[K, N\\]"),
        (lambda: flashpde.fused_matmul(torch.zeros(2, 3), torch.zeros(3, 2).double()), "share a floating dtype"),
        (lambda: flashpde.fused_matmul(torch.zeros(2, 3), torch.zeros(3, 2), torch.zeros(3)), "`bias` must be"),
        (lambda: flashpde.fused_matmul(torch.zeros(2, 3), torch.zeros(3, 2), None, "gelu"), "`activation`"),
        (lambda: flashpde.fused_matmul_add(torch.zeros(2, 3)), "square"),
        (lambda: flashpde.laplacian_2d(torch.zeros(8)), "must be \\[..., x, y\\]"),
        (lambda: flashpde.laplacian_2d(torch.zeros(8, 8), "a", 1.0), "`dx` must be a finite number"),
        (lambda: flashpde.poisson_solver(torch.zeros(8, 8), torch.zeros(4, 8), 0.1), "of one shape"),
        (lambda: flashpde.poisson_solver(torch.zeros(8, 8), torch.zeros(8, 8), "a"), "`dt` must be a finite number"),
    ],
)
def test_bad_input(call, message):
    with pytest.raises(ValueError, match=message):
        call()
