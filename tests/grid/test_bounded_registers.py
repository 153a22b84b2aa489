"""Between walls kernels of the plane have a bound on registers: the launch takes it, and the numbers are the same."""

import pytest
import torch

from pinnfuse import PDE, FusedGridResidualLoss, Grid
from pinnfuse.grid import convection

pytestmark = pytest.mark.usefixtures("interpreter")
GRID = Grid("x y", (0.1, 0.2), boundary="one-sided")


def test_residual(where, monkeypatch):
    from pinnfuse.kernels.grid import residual

    torch.manual_seed(0)
    loss = FusedGridResidualLoss(PDE("u", "x y", equations="u_xx + u*u_y"), GRID, backend="triton")
    u = torch.rand(1, 1, 6, 66, device=where, requires_grad=True)
    options = []
    prepared = residual.Prepared
    monkeypatch.setattr(residual, "Prepared", lambda *a, **o: options.append(o) or prepared(*a, **o))
    (bounded,) = torch.autograd.grad(loss(u), u)
    assert [o.get("maxnreg") for o in options] == [96, 128]
    monkeypatch.setattr(residual, "FEW", 0)
    residual._launches.cache_clear()
    (plain,) = torch.autograd.grad(loss(u), u)
    assert [o.get("maxnreg") for o in options[2:]] == [None, None]
    torch.testing.assert_close(bounded, plain, rtol=1e-5, atol=1e-5 * float(plain.abs().max()))
    residual._launches.cache_clear()


@pytest.mark.parametrize("scheme", ["central", "upwind3"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_convection(scheme, dtype, where, monkeypatch):
    from pinnfuse.kernels.grid import apply, run_flow
    from pinnfuse.kernels.grid.tile import Tile

    key = (scheme, {"central": 1, "upwind3": 2}[scheme], True)
    monkeypatch.setattr(run_flow, "BOUNDED", {key: Tile(16, 4, 1, registers=64)})
    run_flow.kernels.cache_clear()
    options = []
    prepared = apply.Prepared
    monkeypatch.setattr(apply, "Prepared", lambda *a, **o: options.append(o) or prepared(*a, **o))
    f = torch.rand(8, 40, dtype=dtype, device=where, requires_grad=True)
    v = torch.randn(2, 8, 40, dtype=dtype, device=where, requires_grad=True)
    found, truth = (
        torch.autograd.grad(convection(f, v, GRID, scheme=scheme, backend=b).square().sum(), (f, v))
        for b in ("triton", "torch")
    )
    assert [o.get("maxnreg") for o in options] == [None, 64 if dtype == torch.float32 else None]
    for a, b in zip(found, truth, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-4, atol=1e-5 * float(b.abs().max()))
    run_flow.kernels.cache_clear()
