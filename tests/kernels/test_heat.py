"""Several steps of the heat equation a launch: against one by one in torch, the adjoint, resources of every tile."""

import math
import os
import subprocess
import sys

import pytest
import torch

from pinnfuse import Grid
from pinnfuse.grid import Dirichlet, Neumann
from pinnfuse.simulation import heat
from pinnfuse.simulation.steps import Advance, fits

heat_kernels = pytest.importorskip("pinnfuse.kernels.grid.heat")
WALLS = {"x": (Dirichlet(1.0), Neumann(0.3)), "y": "periodic"}


@pytest.fixture(autouse=True)
def interpreter(monkeypatch):
    monkeypatch.setenv("PINNFUSE_INTERPRET", "1")


@pytest.fixture
def where():
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")


@pytest.fixture(params=[True, False], ids=["halos", "one tile"])
def tile(request, monkeypatch):
    """Fields in many small tiles of three steps, or in one."""
    if request.param:
        small = heat_kernels.Tile(32, 16, 1, 3)
        plan = heat_kernels.plan
        monkeypatch.setattr(heat_kernels, "plan", lambda *given: plan(*given[:4], small))
    return request.param


@pytest.mark.parametrize("centring", ["node", "cell"])
@pytest.mark.parametrize("boundary", ["periodic", WALLS, "neumann"], ids=["periodic", "mixed", "neumann"])
def test_steps_are_those_of_torch(boundary, centring, tile, where):
    grid = Grid("x y", (0.5, 0.7), boundary=boundary, centring=centring)
    u0 = torch.randn(2, 23, 37, dtype=torch.float64, device=where)
    ours, plain = (heat(u0, grid, diffusivity=0.8, steps=7, backend=b) for b in ("triton", "torch"))
    assert torch.allclose(ours, plain, rtol=0, atol=1e-14)


@pytest.mark.parametrize("boundary", ["periodic", (Dirichlet(2.0), Neumann(-1.0))], ids=["periodic", "walls"])
@pytest.mark.parametrize("n", [50, 300])
def test_lines(boundary, n, where):
    grid = Grid("x", 0.1, boundary=boundary)
    u0 = torch.randn(3, n, dtype=torch.float64, device=where)
    ours, plain = (heat(u0, grid, diffusivity=2.0, steps=40, backend=b) for b in ("triton", "torch"))
    assert torch.allclose(ours, plain, rtol=0, atol=1e-13)


def test_the_adjoint_and_its_own(tile, where):
    grid = Grid("x y", (0.5, 0.7), boundary=WALLS, centring="cell")

    def steps(u):
        return Advance.apply(u, grid, 0.03, 5)

    u, g = (torch.randn(21, 34, dtype=torch.float64, device=where, requires_grad=True) for _ in range(2))
    offset = steps(torch.zeros_like(u))
    (pulled,) = torch.autograd.grad(steps(u), u, g, create_graph=True)
    pushed = ((steps(u) - offset) * g).sum().item()
    assert pushed == pytest.approx((u * pulled).sum().item(), rel=1e-12)
    (again,) = torch.autograd.grad(pulled, g, u)
    assert torch.allclose(again, steps(u) - offset, atol=1e-13)


def test_strides_and_half_precision(where):
    grid = Grid("x y", (0.5, 0.7), boundary="neumann")
    u0 = torch.randn(12, 30, 4, device=where).movedim(-1, 0)[::2]
    plain = heat(u0.double(), grid, diffusivity=1.0, steps=9, backend="torch")
    assert torch.allclose(heat(u0, grid, diffusivity=1.0, steps=9, backend="triton").double(), plain, atol=2e-6)
    half = heat(u0.bfloat16(), grid, diffusivity=1.0, steps=9, backend="triton")
    exact = heat(u0.bfloat16().double(), grid, diffusivity=1.0, steps=9, backend="torch")
    assert half.dtype == torch.bfloat16
    assert torch.allclose(half.double(), exact, atol=float(exact.abs().max()) * 2**-7)  # once; the interpreter cuts off


def test_an_eigenmode_decays_by_the_exact_factor_over_1000_steps(where):
    n = 16
    grid = Grid("x", 2 * math.pi / n, boundary="periodic")
    x = grid.coordinates((n,), where, torch.float64)["x"]
    factor = (1 - 1e-3 * (2 * math.sin(math.pi / n) / grid.spacing[0]) ** 2) ** 1000
    found = heat(x.sin(), grid, diffusivity=1.0, dt=1e-3, steps=1000, backend="triton")
    assert torch.allclose(found, factor * x.sin(), rtol=0, atol=1e-6 * factor)


@pytest.mark.parametrize("x, order", [("one-sided", 2), ("periodic", 4), ((Neumann(0.5), Dirichlet(1.0)), 4)])
def test_one_step_a_launch_where_rows_are_wider(where, x, order):
    grid = Grid("x y", (0.5, 0.7), boundary={"x": x, "y": (Dirichlet(1.0), Neumann(0.5))}, order=order)
    u0 = torch.randn(2, 9, 20, dtype=torch.float64, device=where)
    ours, plain = (heat(u0, grid, diffusivity=1.0, dt=1e-3, steps=2, backend=b) for b in ("triton", "torch"))
    assert torch.allclose(ours, plain, rtol=0, atol=1e-13)


def test_large_fields_take_single_steps_unless_told(where, monkeypatch):
    from pinnfuse.simulation.heat import LARGE

    grid, u0 = Grid("x y", 0.5, boundary="periodic"), torch.randn(8, 8, dtype=torch.float64, device=where)
    several = []
    monkeypatch.setattr(Advance, "apply", lambda u, *rest: several.append(u.shape) or u)
    big = u0.expand(LARGE // 64, 8, 8)
    assert heat(big, grid, diffusivity=1.0, steps=0) is big and not several
    heat(big, grid, diffusivity=1.0, steps=2, backend="triton")
    heat(big[1:], grid, diffusivity=1.0, steps=2)
    assert len(several) == 2


def test_what_the_kernel_cannot_do():
    assert not fits(Grid("x", 0.1, boundary="one-sided"), (20,))
    assert not fits(Grid("x", 0.1, boundary="periodic", order=4), (20,))
    assert not fits(Grid("x y z", 0.1, boundary="periodic"), (8, 8, 8))
    assert fits(Grid("x y", 0.1, boundary=WALLS), (8, 8))


def test_launches_do_not_depend_on_the_batch(monkeypatch, tile, where):
    launched = []
    call = heat_kernels.Prepared.__call__
    monkeypatch.setattr(heat_kernels.Prepared, "__call__", lambda *given: launched.append(call(*given)))
    counts = []
    for batch in (1, 4):
        u0 = torch.randn(batch, 20, 36, device=where)
        heat(u0, Grid("x y", 0.5, boundary="periodic"), diffusivity=1.0, steps=7, backend="triton")
        counts.append(len(launched))
        launched.clear()
    assert counts == ([3, 3] if tile else [1, 1])


SCRIPT = """
from pinnfuse.kernels.grid import heat
from pinnfuse.kernels.grid.heat_offline import resources

for capability in (80, 90, 100):
    for tile, whole, double in heat.SHIPPED:
        found = resources(tile, whole, double, capability)
        assert found.stack == 0 and found.shared < 100 * 1024, found
"""


def test_every_tile_compiles_without_spilling(tmp_path, root):
    environment = os.environ | {"TRITON_INTERPRET": "0", "TRITON_CACHE_DIR": str(tmp_path), "PYTHONPATH": str(root)}
    done = subprocess.run([sys.executable, "-c", SCRIPT], env=environment, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr[-2000:]
