"""Output transforms behind the stack: hard constraints of the problems, and other pointwise maps."""

import copy

import pytest
import torch
from torch import nn

import pinnfuse
from pinnfuse import PDE, models, problems
from pinnfuse.models.transform import OutputTransform

from .cases import PDES, errors, mlp, relative  # noqa: TID251 - this folder, not the library's

TRANSFORMS = {
    "burgers": {"u": "-sin(pi*x) + t*(1 - x**2)*u"},
    "kdv": {"u": "exp(-x**2) + tanh(t)*u"},
    "navier_stokes": {"u": "x*y + t*u", "v": "v/(1 + x**2) + t*u"},  # p passes as it is, v reads two outputs
    "biharmonic": {"u": "x**2*(1 - x)**2*sin(u)"},  # not linear in the network
}


def check(pde: PDE, net: nn.Module, points: torch.Tensor) -> None:
    eager = errors(pde, net, points, "autograd")
    for key, error in errors(pde, net, points, "triton").items():
        assert error <= max(3e-6, 10 * eager[key]), key


@pytest.mark.parametrize("name", TRANSFORMS)
@pytest.mark.parametrize("tiles", [None, 1])
def test_output_transforms(name, tiles, where, monkeypatch):
    pde = PDES[name]
    stack = mlp(len(pde.coordinates), [20, 20], len(pde.fields), nn.Tanh)
    net = OutputTransform(stack, TRANSFORMS[name], pde.fields, pde.coordinates)
    if tiles:
        monkeypatch.setattr("pinnfuse.kernels.jets.buffers.SCRATCH_BYTES", 1)  # one tile at a time
    check(pde, net, torch.rand(70, len(pde.coordinates), device=where) - 0.3)


def test_an_embedding_and_a_transform(where):
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.stack = mlp(3, [17, 17], 1, nn.SiLU)

        def forward(self, points):
            t, x = points[:, :1], points[:, 1:]
            start = torch.cos(3 * x)
            return start + t * self.stack(torch.cat([t, start, torch.sin(3 * x)], dim=1))

    check(PDES["kdv"], Net(), torch.rand(70, 2, device=where))


def test_derivatives_by_name(where):
    net = OutputTransform(mlp(2, [16], 2, nn.Tanh), {"u": "t*u + x**3", "v": "exp(v)*x"}, "uv", "tx").to(where)
    points, names = torch.rand(50, 2, device=where), ["u", "v_x", "u_xxt", "v_xxx"]
    kwargs = {"fields": "u v", "coordinates": "t x"}
    ours = pinnfuse.derivatives(net, points, names, backend="triton", **kwargs)
    truth = pinnfuse.derivatives(copy.deepcopy(net).double(), points.double(), names, backend="autograd", **kwargs)
    for name in names:
        assert relative(ours[name], truth[name]) < 3e-6, name


@pytest.mark.parametrize("name", sorted(problems.available()))
def test_default_networks_of_the_problems_run(name, where):
    """Nothing runs here: embedding, stack and hard constraint of every default network find their kernel."""
    problem = problems.get(name)
    net = models.for_problem(problem).to(where)
    points = torch.rand(4, len(problem.pde.coordinates), device=where)
    loss_fn = pinnfuse.FusedResidualLoss(problem.pde, backend="triton").to(where)
    assert loss_fn.explain(net, points).path == "fused kernel"


def test_trained_numbers_behind_the_last_layer(where):
    class Scaled(nn.Module):
        def __init__(self):
            super().__init__()
            self.stack, self.scale = mlp(2, [8], 1, nn.Tanh), nn.Parameter(torch.full((1,), 0.7))

        def forward(self, points):
            return self.stack(points) * self.scale

    check(PDES["burgers"], Scaled(), torch.rand(40, 2, device=where))
