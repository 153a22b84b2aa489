"""Difference formulas: exact on the promised polynomials at every row, symbols, convergence, and the torch path."""

import itertools

import pytest
import torch

from pinnfuse import Grid
from pinnfuse.grid import Dirichlet, Neumann, OneSided, axis_stencil
from pinnfuse.grid.stencils import apply, ghost_rows

H = 0.37
FORMULAS = [(m, p, 0) for m in (1, 2, 3, 4) for p in (2, 4, 6)] + [(1, p, b) for p in (1, 3, 5) for b in (-1, 1)]
KINDS = ["dirichlet", "neumann", "one-sided"]


def walls(kind: str, centring: str, function, n: int, h: float = H):
    """Sides that know the function, on points 0 .. n-1 times h from the first."""
    if kind == "one-sided":
        return OneSided(), OneSided()
    shift = {("dirichlet", "node"): 1.0, ("neumann", "node"): 0.0}.get((kind, centring), 0.5)
    x = torch.tensor([-shift * h, (n - 1 + shift) * h], dtype=torch.float64)
    if kind == "dirichlet":
        return tuple(Dirichlet(v) for v in function(x).tolist())
    return tuple(Neumann(v) for v in derivative(function, 1, x).tolist())


def derivative(function, m: int, x: torch.Tensor) -> torch.Tensor:
    x = x.clone().requires_grad_()
    value = function(x)
    for _ in range(m):
        if not value.requires_grad:
            return torch.zeros_like(x)
        (value,) = torch.autograd.grad(value.sum(), x, create_graph=True, allow_unused=True, materialize_grads=True)
    return value.detach()


@pytest.mark.parametrize("kind", [*KINDS, "mixed"])
@pytest.mark.parametrize("centring", ["node", "cell"])
@pytest.mark.parametrize(("m", "p", "bias"), FORMULAS)
def test_exact_on_polynomials(m, p, bias, centring, kind):
    """Interior: degree p + m - 1. Rows at walls: the same for odd m, one less for even m (order p - 1)."""
    n = 16
    x = torch.arange(n, dtype=torch.float64) * H
    middle = x.mean()
    for degree in range(p + m):

        def function(t, degree=degree):
            return ((t - middle) / 3) ** degree + 0 * t

        if kind == "mixed":
            sides = walls("dirichlet", centring, function, n)[0], walls("neumann", centring, function, n)[1]
        else:
            sides = walls(kind, centring, function, n)
        grid = Grid("x", H, boundary={"x": sides}, centring=centring)
        stencil = axis_stencil(grid, "x", m, p, bias)
        error = (apply(stencil, function(x), 0) - derivative(function, m, x)).abs()
        low, high = len(stencil.low), len(stencil.high)
        assert float(error[low : n - high].max()) < 1e-9
        if degree <= p + m - 1 - (m % 2 == 0):
            assert float(error.max()) < 1e-8, degree
    dense, constant = stencil.matrix(n)
    u = torch.randn(n, dtype=torch.float64)
    torch.testing.assert_close(apply(stencil, u, 0), dense @ u + constant, rtol=1e-13, atol=1e-11)


@pytest.mark.parametrize(("m", "p", "bias"), FORMULAS)
def test_symbol_on_fourier_modes(m, p, bias):
    n = 24
    grid = Grid("x", H, boundary="periodic")
    stencil = axis_stencil(grid, "x", m, p, bias)
    for k in (0, 1, 5, 12):
        phase = torch.tensor(2 * torch.pi * k / n, dtype=torch.float64)
        mode = torch.exp(1j * phase * torch.arange(n))
        found = torch.complex(apply(stencil, mode.real, 0), apply(stencil, mode.imag, 0))
        scale = sum(map(abs, stencil.weights))
        assert float((found - stencil.symbol(phase) * mode).abs().max()) < 1e-12 * scale
    # and the symbol is that of the derivative to the order promised
    angles = torch.tensor([0.4, 0.2], dtype=torch.float64)
    gaps = (stencil.symbol(angles) * H**m - (1j * angles) ** m).abs() / angles**m
    if float(gaps.min()) > 1e-11:  # above rounding
        slope = float(torch.log2(gaps[0] / gaps[1]))
        assert slope > p - 0.2


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("centring", ["node", "cell"])
@pytest.mark.parametrize(("m", "p"), list(itertools.product((1, 2), (2, 4, 6))))
def test_convergence(m, p, centring, kind):
    """Slopes at the interior and at the rows near walls, apart."""
    inner, outer = [], []
    for n in (24, 48):
        h = 1.0 / n
        x = torch.arange(n, dtype=torch.float64) * h
        sides = walls(kind, centring, torch.sin, n, h)
        stencil = axis_stencil(Grid("x", h, boundary={"x": sides}, centring=centring), "x", m, p)
        error = (apply(stencil, torch.sin(x), 0) - derivative(torch.sin, m, x)).abs()
        reach = len(stencil.low)
        inner.append(float(error[reach : n - reach].max()))
        outer.append(float(torch.cat([error[:reach], error[n - reach :]]).max()))
    if inner[1] > 1e-11:
        assert inner[0] / inner[1] > 2 ** (p - 0.3)
    if outer[1] > 1e-10:
        assert outer[0] / outer[1] > 2 ** (p - (m == 2) - 0.4)


def test_known_rows():
    """The rows everyone knows by heart."""

    def low(m, boundary, centring, **kwargs):
        row = axis_stencil(Grid("x", 1.0, boundary=boundary, centring=centring, **kwargs), "x", m).low[0]
        return dict(zip(row.offsets_from_that_end, row.weights, strict=True)), row.constant

    assert low(2, Dirichlet(5.0), "node") == ({0: -2.0, 1: 1.0}, 5.0)
    assert low(2, Neumann(3.0), "node") == ({0: -2.0, 1: 2.0}, -6.0)  # ghost u_1 - 2 h g
    assert low(2, Neumann(3.0), "cell") == ({0: -1.0, 1: 1.0}, -3.0)
    assert low(1, Neumann(3.0), "node") == ({}, 3.0)
    assert low(1, OneSided(), "node") == ({0: -1.5, 1: 2.0, 2: -0.5}, 0.0)
    high = axis_stencil(Grid("x", 0.5, boundary=Neumann(3.0), centring="cell"), "x", 2).high[0]
    assert high.constant == 6.0 and dict(zip(high.offsets_from_that_end, high.weights, strict=True)) == {
        0: -4.0,
        1: 4.0,
    }


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(("m", "p", "bias"), [(1, 4, 0), (2, 4, 0), (1, 3, -1), (1, 3, 1)])
def test_ghost_points_give_the_same_rows(m, p, bias, kind):
    """Filling the outside and applying the interior formula there is what the rows near the walls do."""
    n = 12
    sides = walls(kind, "cell", torch.cos, n)
    grid = Grid("x", H, boundary={"x": sides}, centring="cell")
    stencil = axis_stencil(grid, "x", m, p, bias)
    u = torch.randn(n, dtype=torch.float64)
    low, high = ghost_rows(grid, "x", stencil.minimum, 3)

    def ghosts(rows, values):
        return [
            row.constant + sum(w * values[i] for i, w in zip(row.offsets_from_that_end, row.weights, strict=True))
            for row in rows
        ]

    padded = torch.stack([*reversed(ghosts(low, u)), *u, *ghosts(high, u.flip(0))])
    found = sum(w * padded[3 + o : 3 + o + n] for o, w in zip(stencil.offsets, stencil.weights, strict=True))
    torch.testing.assert_close(found, apply(stencil, u, 0), rtol=1e-10, atol=1e-9)


def test_strides_and_dtypes():
    grid = Grid("x y", (0.5, 0.25), boundary={"x": "periodic", "y": "dirichlet"}, order=4)
    u = torch.randn(3, 7, 9, 2, dtype=torch.float64).permute(3, 0, 1, 2)[:, ::2]
    for axis, dim in (("x", -2), ("y", -1)):
        stencil = axis_stencil(grid, axis, 1)
        found = apply(stencil, u, dim)
        torch.testing.assert_close(found, apply(stencil, u.contiguous(), dim))
        half = apply(stencil, u.bfloat16(), dim)
        assert half.dtype == torch.bfloat16
        assert float((half.double() - apply(stencil, u.bfloat16().double(), dim)).abs().max()) < 2**-8 * float(
            found.abs().max()
        )


def test_errors():
    grid = Grid("x", 1.0, boundary="dirichlet", order=6)
    with pytest.raises(ValueError, match="at least 7 points"):
        apply(axis_stencil(grid, "x", 2), torch.zeros(6), 0)
    with pytest.raises(ValueError, match="unknown axis 'z'"):
        axis_stencil(grid, "z", 1)
    for bad in ({"derivative": 0}, {"derivative": 1, "order": 3}, {"derivative": 1, "order": 2, "bias": 1}):
        with pytest.raises(ValueError, match="axis_stencil"):
            axis_stencil(grid, "x", **bad)
