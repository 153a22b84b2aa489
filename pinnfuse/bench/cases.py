"""The PDEs and networks that are measured, and what one step of them must at least compute and move."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor, nn

from pinnfuse import PDE
from pinnfuse.jets.plan import JetPlan, plan


def _poisson(dimension: int) -> PDE:
    return PDE("u", [f"x{i}" for i in range(dimension)], equations={"poisson": "laplacian(u) + sin(x0)"})


PDES: dict[str, Callable[[], PDE]] = {
    "navier_stokes": lambda: PDE(
        "u v p",
        "t x y",
        parameters={"nu": 0.01},
        equations={
            "momentum_x": "u_t + u*u_x + v*u_y + p_x - nu*(u_xx + u_yy)",
            "momentum_y": "v_t + u*v_x + v*v_y + p_y - nu*(v_xx + v_yy)",
            "continuity": "u_x + v_y",
        },
    ),
    "burgers": lambda: PDE("u", "t x", parameters={"nu": 0.01}, equations={"burgers": "u_t + u*u_x - nu*u_xx"}),
    "poisson_10": lambda: _poisson(10),
    "poisson_100": lambda: _poisson(100),
    "kdv": lambda: PDE("u", "t x", equations={"kdv": "u_t + u*u_x + 0.1*u_xxx"}),
    "plate": lambda: PDE("u", "x y", equations={"plate": "u_xxxx + 2*u_xxyy + u_yyyy - sin(x)*sin(y)"}),
}


@dataclass(frozen=True)
class Case:
    """One measurement: a PDE, a tanh network of `depth` hidden layers, a number of points, a precision."""

    name: str
    width: int
    depth: int
    points: int
    precision: str
    device: torch.device

    @cached_property
    def pde(self) -> PDE:
        return PDES[self.name]()

    @cached_property
    def plan(self) -> JetPlan:
        return plan(self.pde)

    @property
    def dtype(self) -> torch.dtype:
        return torch.float64 if self.precision == "float64" else torch.float32

    def network(self) -> nn.Sequential:
        """The same weights at every call: Xavier's, with small biases."""
        generator = torch.Generator().manual_seed(0)
        sizes = [len(self.pde.coordinates), *[self.width] * self.depth, len(self.pde.fields)]
        layers: list[nn.Module] = []
        for a, b in zip(sizes[:-1], sizes[1:], strict=True):
            layer = nn.Linear(a, b)
            nn.init.xavier_normal_(layer.weight, generator=generator)
            nn.init.normal_(layer.bias, std=0.1, generator=generator)
            layers += [layer, nn.Tanh()]
        return nn.Sequential(*layers[:-1]).to(self.device, self.dtype)

    def inputs(self, copies: int) -> list[Tensor]:
        """Different sets of points, to be used in turn."""
        generator = torch.Generator().manual_seed(1)
        shape = self.points, len(self.pde.coordinates)
        return [torch.rand(shape, generator=generator).to(self.device, self.dtype) for _ in range(copies)]

    @property
    def flop(self) -> float:
        """Of the matrix products of closed-form jets: forward, input gradients, weight gradients.

        Of the first layer the value only (its derivatives are the weights themselves), without input gradients.
        """
        channels, (d, m) = len(self.plan.space), (len(self.pde.coordinates), len(self.pde.fields))
        inner = (self.depth - 1) * self.width**2 + self.width * m
        return 2.0 * self.points * (3 * channels * inner + 2 * d * self.width)

    @property
    def bytes(self) -> float:
        """Least traffic of any engine: points and weights in, gradients out."""
        d, m = len(self.pde.coordinates), len(self.pde.fields)
        weights = d * self.width + (self.depth - 1) * self.width**2 + self.width * m + self.depth * self.width + m
        return float(torch.finfo(self.dtype).bits // 8) * (self.points * d + 2 * weights)
