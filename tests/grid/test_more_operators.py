"""Fourier and time differences."""

import math

import pytest
import torch

from pinnfuse import Grid
from pinnfuse.grid import spectral, time_difference
from pinnfuse.grid.time import SCHEMES


@pytest.fixture
def torus() -> Grid:
    return Grid("x y", (2 * math.pi / 12, 2 * math.pi / 15), boundary="periodic")


def mesh(grid: Grid, space: tuple[int, ...]) -> list[torch.Tensor]:
    return list(torch.meshgrid(*grid.coordinates(space, dtype=torch.float64).values(), indexing="ij"))


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
    assert time_difference(u[:0], dt, scheme).shape == (0, len(truth) - 2, 3)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"fields": torch.arange(10).reshape(2, 5)}, "Use fields.float"),
        ({"fields": [1.0, 2.0]}, "must be a tensor"),
        ({"dim": 2}, "one of the 2 dimensions"),
        ({"dt": 0.0}, "`dt` must be > 0"),
        ({"dt": float("inf")}, "`dt` must be a finite number"),
        ({"dt": torch.tensor(0.1, requires_grad=True)}, "without gradient"),
    ],
)
def test_time_differences_refuse(arguments, message):
    with pytest.raises(ValueError, match=message):
        time_difference(**{"fields": torch.zeros(2, 5), "dt": 0.1} | arguments)
