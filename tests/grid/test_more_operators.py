"""Own stencils, Fourier and time differences."""

import math

import pytest
import torch

from pinnfuse import Grid
from pinnfuse.grid import Dirichlet, Neumann, custom, derivative, laplacian, spectral, time_difference
from pinnfuse.grid.time import SCHEMES


@pytest.fixture
def torus() -> Grid:
    return Grid("x y", (2 * math.pi / 12, 2 * math.pi / 15), boundary="periodic")


def mesh(grid: Grid, space: tuple[int, ...]) -> list[torch.Tensor]:
    return list(torch.meshgrid(*grid.coordinates(space, dtype=torch.float64).values(), indexing="ij"))


@pytest.mark.parametrize("boundary", ["periodic", {"x": (Dirichlet(0.3), Neumann(-0.2)), "y": "one-sided"}], ids=str)
def test_custom_repeats_the_library(boundary, interpreter, where):
    """The five points of the Laplacian as a user's stencil: values, rows at walls, gradients, second derivatives."""
    grid = Grid("x y", (0.5, 0.5), boundary=boundary, centring="cell")
    own = {(0, 0): -16.0, (1, 0): 4.0, (-1, 0): 4.0, (0, 1): 4.0, (0, -1): 4.0}
    u = torch.randn(2, 9, 14, dtype=torch.float64, device=where, requires_grad=True)
    truth = laplacian(u, grid, backend="torch")
    y = torch.randn_like(truth)
    for backend in ("torch", "triton"):
        found = custom(own, grid, backend=backend)(u)
        torch.testing.assert_close(found, truth, rtol=1e-12, atol=1e-11)
        pulled = [torch.autograd.grad(out, u, y, retain_graph=True)[0] for out in (found, truth)]
        torch.testing.assert_close(*pulled, rtol=1e-12, atol=1e-11)


def test_custom_cross_points(interpreter, where):
    grid = Grid("x y", (0.5, 0.5), boundary={"x": Dirichlet(0.4), "y": Neumann(0.1)}, centring="cell")
    corners = {(i, j): i * j / (4 * 0.25) for i in (-1, 1) for j in (-1, 1)}
    u = torch.randn(7, 8, dtype=torch.float64, device=where, requires_grad=True)
    out = [custom(corners, grid, backend=backend)(u) for backend in ("torch", "triton")]
    torch.testing.assert_close(*out)
    torch.testing.assert_close(out[0][1:-1, 1:-1], derivative(u, grid, "xy", backend="torch")[1:-1, 1:-1])
    y = torch.randn_like(u)
    torch.testing.assert_close(*(torch.autograd.grad(o, u, y)[0] for o in out))


def test_custom_errors(torus):
    with pytest.raises(ValueError, match="tuples of 2 integers"):
        custom({1: 1.0}, torus)
    with pytest.raises(ValueError, match="at least one entry"):
        custom({}, torus)
    line = Grid("x", 1.0, boundary="periodic")
    assert custom({1: 1.0, 0: -1.0}, line)(torch.arange(4.0)).tolist() == [1.0, 1.0, 1.0, -3.0]


def test_fourier_derivatives_are_exact(torus):
    x, y = mesh(torus, (12, 15))
    u = torch.sin(2 * x) * torch.cos(3 * y)
    close = {"rtol": 1e-12, "atol": 1e-12}
    torch.testing.assert_close(spectral.laplacian(u, torus), -13 * u, **close)
    torch.testing.assert_close(spectral.biharmonic(u, torus), 169 * u, rtol=1e-12, atol=1e-10)
    torch.testing.assert_close(spectral.derivative(u, torus, "xy"), -6 * torch.cos(2 * x) * torch.sin(3 * y), **close)
    torch.testing.assert_close(spectral.divergence(spectral.gradient(u, torus), torus), -13 * u, rtol=1e-12, atol=1e-11)
    sawtooth = torch.cos(6 * x)  # the highest mode along x: its first derivative on the grid is zero
    assert float(spectral.derivative(sawtooth, torus, "x").abs().max()) < 1e-12
    assert torch.autograd.gradcheck(lambda u: spectral.laplacian(u, torus), u.requires_grad_(), fast_mode=True)
    with pytest.raises(ValueError, match="must be periodic"):
        spectral.laplacian(u, Grid("x y", 1.0, boundary="neumann"))


@pytest.mark.parametrize("scheme", SCHEMES)
def test_time_differences(scheme, interpreter, where):
    """Exact on the polynomials that the scheme promises; kernels as plain torch; any dimension."""
    dt = 0.1
    t = dt * torch.arange(7, dtype=torch.float64, device=where)
    at = {"euler": t[:-1] + dt / 2, "central": t[1:-1], "bdf2": t[2:], "second": t[1:-1]}[scheme]
    truth = {"second": torch.full_like(at, 2.0)}.get(scheme, 2 * at)
    fields = (t**2).reshape(1, 7, 1, 1).expand(2, 7, 3, 4)
    for backend in ("torch", "triton"):
        found = time_difference(fields, dt, scheme, backend=backend)
        assert found.shape == (2, len(truth), 3, 4)
        torch.testing.assert_close(found, truth.reshape(1, -1, 1, 1).expand_as(found), rtol=1e-10, atol=1e-10)
        torch.testing.assert_close(
            time_difference(fields.movedim(1, 0), dt, scheme, dim=0, backend=backend), found.movedim(1, 0)
        )
    u = torch.randn(2, 5, 3, dtype=torch.float64, device=where, requires_grad=True)
    pulled = [
        torch.autograd.grad(time_difference(u, dt, scheme, backend=b).cos().sum(), u)[0] for b in ("torch", "triton")
    ]
    torch.testing.assert_close(*pulled)
    with pytest.raises(ValueError, match="levels along dim 1"):
        time_difference(u[:, :1], dt, scheme)
