"""The PDEs and networks that are measured, and what one step of them must at least compute and move."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import torch
from torch import Tensor, nn

from pinnfuse import PDE
from pinnfuse.jets.plan import JetPlan, plan
from pinnfuse.models import ModifiedMLP, PirateNet


def _poisson(dimension: int) -> PDE:
    return PDE("u", [f"x{i}" for i in range(dimension)], equations={"poisson": "laplacian(u) + sin(x0)"})


def _navier_stokes() -> PDE:
    return PDE(
        "u v p",
        "t x y",
        parameters={"nu": 0.01},
        equations={
            "momentum_x": "u_t + u*u_x + v*u_y + p_x - nu*(u_xx + u_yy)",
            "momentum_y": "v_t + u*v_x + v*v_y + p_y - nu*(v_xx + v_yy)",
            "continuity": "u_x + v_y",
        },
    )


PDES: dict[str, Callable[[], PDE]] = {
    "navier_stokes": _navier_stokes,
    "burgers": lambda: PDE("u", "t x", parameters={"nu": 0.01}, equations={"burgers": "u_t + u*u_x - nu*u_xx"}),
    "poisson_10": lambda: _poisson(10),
    "poisson_100": lambda: _poisson(100),
    "kdv": lambda: PDE("u", "t x", equations={"kdv": "u_t + u*u_x + 0.1*u_xxx"}),
    "plate": lambda: PDE("u", "x y", equations={"plate": "u_xxxx + 2*u_xxyy + u_yyyy - sin(x)*sin(y)"}),
    "modified_mlp": _navier_stokes,
    "piratenet": _navier_stokes,
}
"""The last two are navier_stokes for networks with gates, without weight factorisation."""


@dataclass(frozen=True)
class Case:
    """One measurement: a PDE, a tanh network of `depth` hidden layers (blocks of three for `piratenet`), a number of
    points, a precision."""

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

    @property
    def kind(self) -> str:
        """The network: "mlp", "modified_mlp" or "piratenet"."""
        return self.name if self.name in ("modified_mlp", "piratenet") else "mlp"

    def network(self) -> nn.Module:
        """The same weights at every call: Xavier's, with small biases."""
        generator = torch.Generator().manual_seed(0)
        if self.kind != "mlp":
            return self._gated(generator).to(self.device, self.dtype)
        sizes = [len(self.pde.coordinates), *[self.width] * self.depth, len(self.pde.fields)]
        layers: list[nn.Module] = []
        for a, b in zip(sizes[:-1], sizes[1:], strict=True):
            layer = nn.Linear(a, b)
            nn.init.xavier_normal_(layer.weight, generator=generator)
            nn.init.normal_(layer.bias, std=0.1, generator=generator)
            layers += [layer, nn.Tanh()]
        return nn.Sequential(*layers[:-1]).to(self.device, self.dtype)

    def _gated(self, generator: torch.Generator) -> nn.Module:
        build = ModifiedMLP if self.kind == "modified_mlp" else PirateNet
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            d, m = len(self.pde.coordinates), len(self.pde.fields)
            net = build(d, m, width=self.width, depth=self.depth, weight_factorisation=False)
        for name, p in net.named_parameters():
            if not name.endswith("weight"):  # biases, and how much of a block passes
                nn.init.normal_(p, mean=0.5 if name.endswith("alpha") else 0.0, std=0.1, generator=generator)
        return net

    def frequencies(self, net: nn.Module) -> Tensor | None:
        """Of the Fourier features of a network, which are no parameters."""
        return dict(net.named_buffers()).get("embedding.0.frequencies")

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
        inner, first = (self.depth - 1) * self.width**2 + self.width * m, 2 * d * self.width
        if self.kind == "modified_mlp":
            first *= 3
        if self.kind == "piratenet":  # nothing below the gates and the first layer wants a gradient
            inner = (3 * self.depth - 1) * self.width**2 + self.width * m
            first = d * self.width // 2 + 3 * 2 * channels * self.width**2
        return 2.0 * self.points * (3 * channels * inner + first)

    @property
    def bytes(self) -> float:
        """Least traffic of any engine: points and weights in, gradients out."""
        d = len(self.pde.coordinates)
        weights = sum(p.numel() for p in self.network().parameters())
        return float(torch.finfo(self.dtype).bits // 8) * (self.points * d + 2 * weights)
