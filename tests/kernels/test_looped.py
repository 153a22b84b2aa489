"""Many channels of second order: kernels that loop over the tangents."""

import pytest
import torch
from torch import nn

from pinnfuse import PDE
from pinnfuse.jets.plan import plan
from pinnfuse.kernels.jets.looped import loops, runs

from .cases import errors, mlp  # noqa: TID251 - this folder, not the library's


def coordinates(d: int) -> list[str]:
    return [f"x{i}" for i in range(d)]


def laplacian(d: int) -> str:
    return " + ".join(f"u_{x}{x}" for x in coordinates(d))


def heat(d: int) -> PDE:
    """u_t and one drift belong to the operator; nu is its coefficient, x3 diffuses at another rate."""
    text = f"u_t - nu*({laplacian(d)}) - 0.5*u_x3x3 + 2*u_x1 - u**2"
    return PDE("u", " ".join(["t", *coordinates(d)]), parameters={"nu": 0.3}, equations={"heat": text})


PDES = {
    "poisson": PDE("u", "x0 x1 x2", equations={"poisson": laplacian(3) + " - sin(x0)*u"}),
    "heat": heat(4),
    "eikonal": PDE(
        "u w",
        "x0 x1 x2 x3",
        equations={"one": f"{laplacian(4)} + u_x0**2 + u_x2*w_x3 - w", "two": laplacian(4).replace("u", "w") + "- u"},
    ),
}


@pytest.fixture
def small(monkeypatch):
    """Few channels take the loop too."""
    monkeypatch.setattr("pinnfuse.kernels.jets.looped.LOOPED_FROM", 3)


@pytest.mark.parametrize(
    ("name", "widths", "activation"),
    [
        ("poisson", [9], nn.SiLU),
        ("poisson", [40, 40], nn.Tanh),
        ("heat", [9], nn.Tanh),
        ("heat", [17, 20], nn.SiLU),
        ("eikonal", [9], nn.Sigmoid),
        ("eikonal", [17, 20], nn.GELU),
    ],
)
def test_as_accurate_as_float32(name, widths, activation, where, small):
    pde = PDES[name]
    assert loops(plan(pde).space)
    net = mlp(len(pde.coordinates), widths, len(pde.fields), activation)
    check(pde, net, torch.rand(70, len(pde.coordinates), device=where))


def check(pde: PDE, net: nn.Module, points: torch.Tensor) -> None:
    eager = errors(pde, net, points, "autograd")
    for key, error in errors(pde, net, points, "triton").items():
        assert error <= max(3e-6, 10 * eager[key]), key


def test_chunks_an_embedding_and_a_transform(where, small, monkeypatch):
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.stack = mlp(6, [17, 17], 1, nn.Tanh)

        def forward(self, x):
            return x[:, :1] * self.stack(torch.cat([torch.sin(x[:, :2]), x[:, 1:]], dim=1))

    monkeypatch.setattr("pinnfuse.kernels.jets.buffers.SCRATCH_BYTES", 1)  # one tile at a time
    check(PDES["heat"], Net(), torch.rand(70, 5, device=where))


def test_float64(where, small):
    pde = PDES["heat"]
    net = mlp(len(pde.coordinates), [20, 20], 1, nn.Tanh).double()
    points = torch.rand(40, len(pde.coordinates), device=where, dtype=torch.float64)
    assert max(errors(pde, net, points, "triton").values()) < 1e-13


def test_twelve_dimensions(where):
    pde = PDE("u", " ".join(coordinates(12)), equations={"poisson": laplacian(12) + " - sin(x0)*u"})
    check(pde, mlp(12, [16], 1, nn.Tanh), torch.rand(40, 12, device=where))


@pytest.mark.gpu
@pytest.mark.parametrize("width", [64, 128])
def test_a_hundred_dimensions(width, where):
    pde = PDE("u", " ".join(coordinates(100)), equations={"poisson": laplacian(100) + " - x0"})
    net = mlp(100, [width, width], 1, nn.Tanh)
    points = torch.rand(130, 100, device=where)
    check(pde, net, points)


def test_tangents_in_runs():
    space = plan(heat(20)).space
    found = runs(space)
    assert [(r.start, r.stop) for r in found] == [(1, 4), (4, 5), (5, 21)]  # x3 has a coefficient of its own
    assert [r.coordinate for r in found] == [1, 4, 5]  # t is no tangent
    assert found[0].weights == found[2].weights != found[1].weights
