"""PDEs and networks that the jet kernels are tested on, and the comparison with float64 nested autograd."""

from __future__ import annotations

import copy

import torch
from torch import Tensor, nn

import pinnfuse
from pinnfuse import PDE, Parameter

PDES = {
    "navier_stokes": PDE(
        "u v p",
        "t x y",
        parameters={"nu": 0.01},
        equations={
            "momentum_x": "u_t + u*u_x + v*u_y + p_x - nu*(u_xx + u_yy)",
            "momentum_y": "v_t + u*v_x + v*v_y + p_y - nu*(v_xx + v_yy)",
            "continuity": "u_x + v_y",
        },
    ),
    "burgers": PDE("u", "t x", equations={"burgers": "u_t + u*u_x - 0.01*u_xx"}),
    "kdv": PDE(
        "u",
        "t x",
        parameters=[Parameter("k", 0.3, trainable=True)],
        data="f",
        equations={"kdv": "u_t + u*u_x + k*u_xxx + sin(3*x)*exp(-t) - f"},
    ),
    "biharmonic": PDE("u", "x y", equations={"plate": "u_xxxx + 2*u_xxyy + u_yyyy - u**3 + tanh(u)"}),
    "mixed": PDE(
        "u w",
        "t x y",
        parameters=[Parameter("a", 0.7, trainable=True, positive=True)],
        equations={"one": "a*u_xy*w_x + u_tt", "two": "sqrt(1 + u**2)*w_yy - a**2*u_t + heaviside(x - 1/2)"},
    ),
    "value": PDE("u", "x y", data="target", equations={"fit": "u - target"}),
}


def mlp(inputs: int, widths: list[int], outputs: int, activation: type[nn.Module]) -> nn.Sequential:
    layers: list[nn.Module] = []
    for a, b in zip([inputs, *widths[:-1]], widths, strict=True):
        layers += [nn.Linear(a, b), activation()]
    return nn.Sequential(*layers, nn.Linear(widths[-1], outputs))


def relative(x: Tensor, truth: Tensor) -> float:
    """Relative L2 error; NaN never passes a comparison."""
    truth = truth.detach().double()
    return float((x.detach().double() - truth).norm() / truth.norm().clamp_min(1e-300))


def errors(
    pde: PDE, net: nn.Module, points: Tensor, backend: str, seed: int = 0, precision: str | None = None
) -> dict[str, float]:
    """Errors against float64 nested autograd: loss, residuals, every gradient, and a random vector-Jacobian product."""
    generator = torch.Generator().manual_seed(seed)

    def draw(*shape: int) -> Tensor:
        return torch.rand(shape, generator=generator, dtype=torch.float64).to(points)

    n, equations = points.shape[0], len(pde.equations)
    weights, data, upstream = draw(n, equations), {name: draw(n) for name in pde.data}, draw(n, equations) - 0.5
    results = []
    for dtype, name in ((torch.float64, "autograd"), (points.dtype, backend)):
        model = copy.deepcopy(net).to(points.device, dtype)
        loss_fn = pinnfuse.FusedResidualLoss(
            pde,
            backend=name,
            precision=None if name == "autograd" else precision,
            equation_weights=list(range(1, equations + 1)),
        ).to(points.device, dtype)
        x, columns = points.to(dtype), {k: v.to(dtype) for k, v in data.items()}
        evaluation = loss_fn.evaluate(model, x, weights.to(dtype), columns)
        evaluation.loss.backward()
        parameters = {**dict(model.named_parameters()), **{f"pde.{k}": p for k, p in loss_fn.named_parameters()}}
        found = {f"grad {k}": _gradient(p) for k, p in parameters.items()}
        found |= {"loss": evaluation.loss.detach(), "residuals": evaluation.residuals}
        model.zero_grad()
        residuals = loss_fn.residuals(model, x, columns)
        (residuals * upstream.to(dtype)).sum().backward()
        found |= {f"vjp {k}": _gradient(p) for k, p in model.named_parameters()}
        results.append(found)
    truth, ours = (_by_layer(found) for found in results)
    return {key: relative(ours[key], truth[key]) for key in truth}


def _gradient(p: nn.Parameter) -> Tensor:
    return torch.zeros_like(p) if p.grad is None else p.grad.clone()


def _by_layer(found: dict[str, Tensor]) -> dict[str, Tensor]:
    """A layer's weight and bias as one vector: the bias of one output alone is a sum that may cancel to any degree."""
    layers: dict[str, list[Tensor]] = {}
    for key, value in found.items():
        layers.setdefault(key.removesuffix(".weight").removesuffix(".bias"), []).append(value.flatten())
    return {key: torch.cat(values) for key, values in layers.items()}
