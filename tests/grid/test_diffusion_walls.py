"""div(k grad u) of order 2 beside walls: truth, conservation, positivity, and the kernels; residual losses too."""

import itertools
import math

import pytest
import torch

from pinnfuse import PDE, FusedGridResidualLoss, Grid
from pinnfuse.grid import Dirichlet, Neumann, OneSided, diffusion

FLUX = PDE("u k", "x", equations={"e": "D(k*D(u, x), x)"})
KINDS = ("dirichlet", "neumann", "one-sided")


def u(x):
    return torch.sin(x + 0.3) + x**2 / 3


def u_x(x):
    return torch.cos(x + 0.3) + 2 * x / 3


def u_xx(x):
    return 2 / 3 - torch.sin(x + 0.3)


def k(x):
    return 2 + torch.sin(3 * x + 1)


def k_x(x):
    return 3 * torch.cos(3 * x + 1)


def side(kind, end):
    at = torch.tensor(float(end), dtype=torch.float64)
    return {"dirichlet": Dirichlet(float(u(at))), "neumann": Neumann(float(u_x(at))), "one-sided": OneSided()}[kind]


def line(n, kinds, centring):
    """A grid of n intervals on [0, 1] whose walls carry what u has there, and its points."""
    sides = tuple(side(kind, end) for end, kind in enumerate(kinds))
    count = n if centring == "cell" else n + 1 - kinds.count("dirichlet")
    grid = Grid("x", 1 / n, boundary={"x": sides}, centring=centring, length=1.0, shape=count)
    return grid, grid.coordinates((count,), dtype=torch.float64)["x"]


def by_operator(grid, x):
    return diffusion(u(x), k(x), grid, backend="torch")


def by_residual(grid, x):
    first = 0.0 if grid.centring == "cell" else float(x[0])
    grids = {"u": grid, "k": Grid("x", grid.spacing, boundary="one-sided", centring=grid.centring, origin=first)}
    fields = torch.stack([u(x), k(x)])[None]
    return FusedGridResidualLoss(FLUX, grids, backend="torch").residuals(fields)[0, 0]


@pytest.mark.parametrize("method", [by_operator, by_residual])
@pytest.mark.parametrize("centring", ["cell", "node"])
@pytest.mark.parametrize("end", [0, 1])
@pytest.mark.parametrize("kind", KINDS)
def test_truth_at_every_wall(method, centring, end, kind):
    """The row at the wall is of first order, as second derivatives are there, the interior of second."""
    walls, inner = [], []
    for n in (40, 80, 160):
        grid, x = line(n, (kind, "one-sided") if end == 0 else ("one-sided", kind), centring)
        error = (method(grid, x) - k_x(x) * u_x(x) - k(x) * u_xx(x)).abs()
        walls.append(float(error[-1 if end else 0]))
        inner.append(float(error[3:-3].max()))
    assert math.log2(walls[1] / walls[2]) > 0.9 and walls[2] < 0.1, walls
    assert math.log2(inner[1] / inner[2]) > 1.9, inner


@pytest.mark.parametrize("centring", ["cell", "node"])
def test_the_sum_over_volumes_is_the_flux_through_neumann_walls(centring):
    grid = Grid("x y", (0.1, 0.2), boundary={"x": (Neumann(0.7), Neumann(-0.4)), "y": "periodic"}, centring=centring)
    k = torch.rand(9, 5, dtype=torch.float64) + 0.1
    volume = torch.ones(9, 1, dtype=torch.float64)
    if centring == "node":
        volume[[0, -1]] = 0.5
    total = (diffusion(torch.randn(9, 5, dtype=torch.float64), k, grid) * volume * 0.1).sum(0)
    walls = k[[0, -1]]
    if centring == "cell":  # k on the wall follows the smaller slope, here mostly none
        wide = torch.cat([k[:3], k[-3:].flip(0)]).reshape(2, 3, 5)
        a, b = wide[:, 1] - wide[:, 0], wide[:, 2] - wide[:, 1]
        size = torch.minimum(torch.minimum(a.abs(), b.abs()), wide[:, 0])
        walls = wide[:, 0] - torch.where(a * b > 0, a.sign() * size, 0.0) / 2
    torch.testing.assert_close(total.sum(), (-0.4 * walls[1] - 0.7 * walls[0]).sum())


@pytest.mark.parametrize("centring", ["cell", "node"])
@pytest.mark.parametrize("kind", ["dirichlet", "neumann"])
def test_jumps_of_k_keep_the_signs(centring, kind):
    """u_t = div(k grad u) has no new extrema: every neighbour's weight is positive, however k jumps or grows."""
    grid = Grid("x", 0.1, boundary=kind, centring=centring)
    torch.manual_seed(3)
    jumps = 10.0 ** torch.randint(-4, 5, (40, 8)).double()
    steep = (4.0 ** torch.arange(8)).expand(2, 8) * torch.tensor([[1.0], [0.0]]) + torch.tensor([[0.0], [1.0]])
    for k in (*jumps, *steep.double()):
        matrix = torch.autograd.functional.jacobian(lambda u, k=k: diffusion(u, k, grid), torch.zeros(8).double())
        beside = matrix - torch.diag(matrix.diag())
        assert float(beside.min()) >= 0 and float(matrix.diag().max()) < 0
        assert float(matrix.sum(1).max()) <= 1e-9 * float(matrix.abs().max())


def test_two_materials_do_not_mix_at_a_wall():
    """A jump one point from the wall says nothing about k on the wall: the flux there is that of the first material."""
    grid = Grid("x", 0.5, boundary=(Neumann(1.0), Neumann(0.0)), centring="cell")
    k = torch.tensor([3.0, 12.0, 12.0, 12.0], dtype=torch.float64)
    assert diffusion(torch.zeros(4, dtype=torch.float64), k, grid).tolist() == [-3.0 / 0.5, 0.0, 0.0, 0.0]


CASES = [(Dirichlet(0.3), Neumann(-0.2)), (Neumann(0.7), OneSided()), (OneSided(), Dirichlet(1.0))]


@pytest.mark.parametrize("centring", ["cell", "node"])
@pytest.mark.parametrize("sides", CASES, ids=str)
def test_kernels(sides, centring, interpreter, where):
    """Values and both gradients; k random, and so steep that its extrapolation is cut off."""
    grid = Grid("x", 0.3, boundary={"x": sides}, centring=centring)
    steep = 10 ** torch.linspace(-2, 2, 18, dtype=torch.float64)
    k = torch.stack([torch.rand(18).double() + 0.1, steep, steep.flip(0)]).to(where)
    u = torch.randn(3, 18, dtype=torch.float64, device=where)
    upstream = torch.randn_like(u)
    found = []
    for backend in ("torch", "triton"):
        given = [u.clone().requires_grad_(), k.clone().requires_grad_()]
        out = diffusion(*given, grid, backend=backend)
        found.append((out, *torch.autograd.grad(out, given, upstream)))
    for ours, plain in zip(*found, strict=True):
        assert float((ours - plain).detach().abs().max()) < 1e-14 * float(plain.detach().abs().max())


@pytest.mark.parametrize("sides", CASES, ids=str)
def test_kernels_of_residuals(sides, interpreter, where):
    """D(k*D(u, x), x) of a residual loss, with the same walls."""
    points = {"axes": "x", "spacing": 0.3, "centring": "cell"}
    grids = {"u": Grid(**points, boundary={"x": sides}), "k": Grid(**points, boundary="one-sided")}
    fields = torch.rand(2, 2, 9, dtype=torch.float64, device=where) + 0.1
    found = []
    for backend in ("torch", "triton"):
        leaf = fields.clone().requires_grad_()
        r = FusedGridResidualLoss(FLUX, grids, backend=backend).to(where).residuals(leaf)
        found.append((r, torch.autograd.grad(r.square().sum(), leaf)[0]))
    for plain, ours in zip(*found, strict=True):
        torch.testing.assert_close(ours, plain, rtol=1e-12, atol=1e-11)


def test_gradients_where_k_is_cut_off():
    for sides, centring in itertools.product(CASES, ("cell", "node")):
        grid = Grid("x", 0.3, boundary={"x": sides}, centring=centring)
        k = (4.0 ** torch.arange(6)).double().requires_grad_()
        u = torch.randn(6, dtype=torch.float64, requires_grad=True)
        run = lambda u, k, grid=grid: diffusion(u, k, grid, backend="torch")  # noqa: E731
        assert torch.autograd.gradcheck(run, (u, k))
        assert torch.autograd.gradcheck(run, (u, k.detach().flip(0).requires_grad_()))
