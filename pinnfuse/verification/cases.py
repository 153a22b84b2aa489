"""What `pinnfuse verify` runs: every problem with its own network, every kind of network on a PDE with all features."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
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


def cases() -> dict[str, Callable[[int], Case]]:
    """By name, what makes (PDE, network, PDE itself, float64 network, so many points), the same at every call."""
    found: dict[str, Callable[[int], Case]] = {}
    for name, names in problems.available().items():
        found |= {problem: partial(_problem, name, problem) for problem in names}
    found |= {f"all features, {label}": partial(_everything, label) for label in _networks()}
    found |= {f"fourth order, {activation}": partial(_fourth, activation) for activation in models.ACTIVATIONS}
    return found


def _problem(name: str, problem_name: str, count: int) -> Case:
    torch.manual_seed(0)
    problem = problems.get(name, problem_name)
    bounds = [tuple(problem.domain.bounds[c]) for c in problem.pde.coordinates]
    net = models.for_problem(problem, **_small(problem.model.kwargs))
    label = f"{problem.model.name}{', hard constraints' if problem.hard else ''}"
    return problem_name, label, problem.pde, _stirred(net), _points(bounds, count)


def _everything(label: str, count: int) -> Case:
    torch.manual_seed(0)
    net = _networks()[label]()
    return "all features", label, EVERYTHING, _stirred(net), _points([(0.0, 1.0), (-1.0, 1.0)], count)


def _fourth(activation: str, count: int) -> Case:
    torch.manual_seed(0)
    net = models.MLP(2, 1, width=12, depth=2, activation=activation)
    return "fourth order", activation, FOURTH, _stirred(net), _points([(-1.0, 1.0), (-1.0, 1.0)], count)


def _small(options: dict[str, Any]) -> dict[str, Any]:
    """The problem's network, narrow enough for nested autograd to take milliseconds."""
    size = {"width": 16, "depth": 2}
    return size | ({"fourier_features": 16} if options.get("fourier_features") else {})


def _networks() -> dict[str, Callable[[], nn.Module]]:
    box: Any = {"bounds": [(0.0, 1.0), (-1.0, 1.0)]}
    small: Any = {"width": 16, "depth": 2}
    mlp = partial(models.MLP, 2, 2)
    reflected = {"x": "-cos(pi*(x + 1)/2)"}
    transform = {"u": "sin(pi*x) + t*(1 - x**2)*u", "v": "exp(-t)*v/(1 + x**2)"}
    return {name: partial(mlp, width=16, depth=3, activation=name) for name in models.ACTIVATIONS} | {
        "one layer of 20": partial(mlp, width=20, depth=1),
        "residual blocks": partial(mlp, width=16, depth=3, residual=True),
        "factorised weights": partial(mlp, **small, weight_factorisation=True),
        "periodic embedding": partial(mlp, **small, periods={1: 2.0}, harmonics=2, **box),
        "Fourier features": partial(mlp, **small, fourier_features=16, **box),
        "gates (modified MLP)": partial(models.ModifiedMLP, 2, 2, **small, **box),
        "gates (PirateNet)": partial(models.PirateNet, 2, 2, width=16, depth=1, **box),
        "sines (SIREN)": partial(models.Siren, 2, 2, **small, **box),
        "reflected inputs": lambda: models.InputTransform(mlp(**small), reflected, "tx"),
        "hard constraints": lambda: models.OutputTransform(mlp(**small), transform, "uv", "tx"),
    }


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
