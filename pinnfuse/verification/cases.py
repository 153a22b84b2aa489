"""What `pinnfuse verify` runs: every problem with its own network, every kind of network on a PDE with all features."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn

from pinnfuse import PDE, Parameter, models, problems

EVERYTHING = PDE(
    "u v",
    "t x",
    parameters=[Parameter("nu", 0.05), Parameter("k", 0.7, trainable=True, positive=True)],
    data="f",
    equations={"first": "u_t + u*u_x - nu*u_xx + k*v - f", "second": "v_t + k*v_x*u_x - nu*v_xx + sin(v)*t"},
)
"""Nonlinear, coupled, a collapsed operator, a constant and a trained parameter, a data column, the coordinates."""
FOURTH = PDE("u", "x y", equations={"plate": "u_xxxx + 2*u_xxyy + u_yyyy + u_xxx*u_y - u**3"})

Case = tuple[str, str, PDE, nn.Module, Tensor]


def cases(count: int) -> Iterator[Case]:
    """(PDE, network, PDE itself, float64 network, `count` points), the same at every call."""
    for name, names in problems.available().items():
        for problem_name in names:
            problem = problems.get(name, problem_name)
            bounds = [tuple(problem.domain.bounds[c]) for c in problem.pde.coordinates]
            torch.manual_seed(0)
            net = models.for_problem(problem, **_small(problem.model.kwargs))
            label = f"{problem.model.name}{', hard constraints' if problem.hard else ''}"
            yield problem_name, label, problem.pde, _stirred(net), _points(bounds, count)
    for label, net in _networks():
        yield "all features", label, EVERYTHING, _stirred(net), _points([(0.0, 1.0), (-1.0, 1.0)], count)
    for activation in models.ACTIVATIONS:
        torch.manual_seed(0)
        net = models.MLP(2, 1, width=12, depth=2, activation=activation)
        yield "fourth order", activation, FOURTH, _stirred(net), _points([(-1.0, 1.0), (-1.0, 1.0)], count)


def _small(options: dict[str, Any]) -> dict[str, Any]:
    """The problem's network, narrow enough for nested autograd to take milliseconds."""
    size = {"width": 16, "depth": 2}
    return size | ({"fourier_features": 16} if options.get("fourier_features") else {})


def _networks() -> Iterator[tuple[str, nn.Module]]:
    torch.manual_seed(0)
    box: Any = {"bounds": [(0.0, 1.0), (-1.0, 1.0)]}
    for activation in models.ACTIVATIONS:
        yield activation, models.MLP(2, 2, width=16, depth=3, activation=activation)
    yield "one layer of 20", models.MLP(2, 2, width=20, depth=1)
    yield "residual blocks", models.MLP(2, 2, width=16, depth=3, residual=True)
    yield "factorised weights", models.MLP(2, 2, width=16, depth=2, weight_factorisation=True)
    yield "periodic embedding", models.MLP(2, 2, width=16, depth=2, periods={1: 2.0}, harmonics=2, **box)
    yield "Fourier features", models.MLP(2, 2, width=16, depth=2, fourier_features=16, **box)
    yield "gates (modified MLP)", models.ModifiedMLP(2, 2, width=16, depth=2, **box)
    yield "gates (PirateNet)", models.PirateNet(2, 2, width=16, depth=1, **box)
    yield "sines (SIREN)", models.Siren(2, 2, width=16, depth=2, **box)
    reflected = {"x": "-cos(pi*(x + 1)/2)"}
    yield "reflected inputs", models.InputTransform(models.MLP(2, 2, width=16, depth=2), reflected, "tx")
    transform = {"u": "sin(pi*x) + t*(1 - x**2)*u", "v": "exp(-t)*v/(1 + x**2)"}
    yield "hard constraints", models.OutputTransform(models.MLP(2, 2, width=16, depth=2), transform, "uv", "tx")


def _stirred(net: nn.Module) -> nn.Module:
    """Away from zero biases and identity blocks, which would hide what they multiply."""
    net = net.double()
    with torch.no_grad():
        for p in net.parameters():
            p.add_(torch.randn(p.shape, dtype=p.dtype), alpha=0.1)
    return net


def _points(bounds: list[tuple[float, ...]], count: int) -> Tensor:
    low, high = torch.tensor(bounds, dtype=torch.float64).unbind(1)
    return low + (high - low) * torch.rand(count, len(bounds), dtype=torch.float64)


class WithoutClosedForm(nn.Module):
    """The same network behind an operation that has no jet rule, so that it runs by forward mode."""

    def __init__(self, net: nn.Module):
        super().__init__()
        self.net = net

    def forward(self, x: Tensor) -> Tensor:
        return self.net(x.roll(1, 1).roll(-1, 1))
