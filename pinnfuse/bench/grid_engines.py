"""What `pinnfuse bench grid` compares: a step is the residual loss of fields and its gradient.

pinnfuse        the two generated kernels (on a CPU plain torch); "pinnfuse again" forms the residuals twice instead
                of keeping them
torch           ours without kernels
eager           ghost points by `torch.cat`, differences by slices, gradient by autograd
roll            differences by `torch.roll` (periodic only)
torch-compile   the eager function compiled by TorchInductor, as one graph
fourier         derivatives by FFT (periodic only)
coordinates     the residuals of a network of 4 x 64 at as many points, by nested autograd
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from pinnfuse import FusedGridResidualLoss, FusedResidualLoss, Grid
from pinnfuse.bench.grid_equations import DT, Derivatives, Equations, equations
from pinnfuse.grid import Dirichlet
from pinnfuse.grid.stencils import ghost_rows
from pinnfuse.models.fno import FNO

Step = Callable[[Tensor], tuple[Tensor, Tensor]]
SPACING = (0.01, 0.015, 0.02)
ENGINES = ("pinnfuse again", "torch", "eager", "roll", "torch-compile", "fourier", "coordinates")
WIDTHS = (64, 64, 64, 64)
"""Hidden layers of the network of "coordinates"."""


@dataclass(frozen=True)
class GridCase:
    """Backward Euler between two levels (or a steady PDE) of `batch` samples of n^dimension cells, periodic or between
    walls; those of the flow are a cavity with a moving lid."""

    boundary: str
    n: int
    batch: int
    pde: str = "navier_stokes"
    dimension: int = 2
    dtype: str = "float32"

    @property
    def equations(self) -> Equations:
        return equations(self.pde, self.dimension)

    @property
    def fields(self) -> tuple[str, ...]:
        return self.equations.pde.fields

    @property
    def grids(self) -> dict[str, Grid]:
        axes = "xyz"[: self.dimension]
        common: dict[str, Any] = {"axes": " ".join(axes), "spacing": SPACING[: self.dimension], "centring": "cell"}
        if self.boundary == "periodic":
            return {name: Grid(**common, boundary="periodic") for name in self.fields}
        lid: dict[str, Any] = dict.fromkeys(axes, "dirichlet") | {axes[-1]: ("dirichlet", Dirichlet(1.0))}
        kinds = {"u": lid, "p": "neumann"}
        return {name: Grid(**common, boundary=kinds.get(name, "dirichlet")) for name in self.fields}

    @property
    def torch_dtype(self) -> torch.dtype:
        return getattr(torch, self.dtype)

    @property
    def shape(self) -> tuple[int, ...]:
        levels = () if self.equations.steady else (2,)
        return (self.batch, *levels, len(self.fields), *[self.n] * self.dimension)

    @property
    def points(self) -> int:
        return self.batch * self.n**self.dimension

    def inputs(self, device: torch.device, copies: int, dtype: torch.dtype | None = None) -> list[Tensor]:
        generator = torch.Generator(device).manual_seed(0)
        dtype = dtype or self.torch_dtype
        return [torch.randn(self.shape, generator=generator, device=device).to(dtype) for _ in range(copies)]

    @property
    def megabytes(self) -> float:
        return math.prod(self.shape) * self.torch_dtype.itemsize / 1e6


def loss_of(case: GridCase, derivatives: Callable[[str, Tensor], Derivatives]) -> Callable[[Tensor], Tensor]:
    """The loss of a step, from a function that gives the derivatives of one field."""
    steady, by_hand, names = case.equations.steady, case.equations.by_hand, case.fields

    def loss(fields: Tensor) -> Tensor:
        now = fields if steady else fields[:, 1]
        new = dict(zip(names, now.unbind(1), strict=True))
        rates = {}
        if not steady:
            rates = {name: (new[name] - old) / DT for name, old in zip(names, fields[:, 0].unbind(1), strict=True)}
        found = by_hand(new, rates, {name: derivatives(name, f) for name, f in new.items()})
        return sum((r.square().mean() for r in found[1:]), found[0].square().mean())

    return loss


def eager(case: GridCase) -> Callable[[Tensor], Tensor]:
    """Ghost points, then slices: second order, the same rows at walls as ours."""
    walls: dict[tuple[str, int], list[tuple[list[tuple[int, float]], float]]] = {}  # weights of rows, constant
    for name, grid in case.grids.items():
        for k, axis in enumerate(grid.axes):
            if not grid.periodic[axis]:
                sides = [rows[0] for rows in ghost_rows(grid, axis, 3, 1)]
                walls[name, k - case.dimension] = [
                    (list(zip(row.offsets_from_that_end, row.weights, strict=True)), row.constant) for row in sides
                ]

    def padded(name: str, f: Tensor, dim: int) -> Tensor:
        if (name, dim) not in walls:
            return torch.cat([f.narrow(dim, -1, 1), f, f.narrow(dim, 0, 1)], dim)
        n = f.shape[dim]
        sides = []
        for last, (weights, constant) in enumerate(walls[name, dim]):
            terms = [w * f.narrow(dim, n - 1 - i if last else i, 1) for i, w in weights]
            sides.append(sum(terms[1:], terms[0]) + constant)
        return torch.cat([sides[0], f, sides[1]], dim)

    def neighbours(name: str, f: Tensor, dim: int) -> tuple[Tensor, Tensor]:
        wide, n = padded(name, f, dim), f.shape[dim]
        return wide.narrow(dim, 0, n), wide.narrow(dim, 2, n)

    dims = range(-case.dimension, 0)
    return loss_of(case, lambda name, f: _central(f, [neighbours(name, f, dim) for dim in dims]))


def compiled(case: GridCase, **options: Any) -> Callable[[Tensor], Tensor]:
    """The eager function as one graph; what other cases compiled is forgotten, which Dynamo allows a few of."""
    torch._dynamo.reset()
    return torch.compile(eager(case), dynamic=False, fullgraph=True, **options)


def roll(case: GridCase) -> Callable[[Tensor], Tensor]:
    dims = range(-case.dimension, 0)
    return loss_of(case, lambda _, f: _central(f, [(f.roll(1, k), f.roll(-1, k)) for k in dims]))


def _central(f: Tensor, neighbours: Sequence[tuple[Tensor, Tensor]]) -> Derivatives:
    first = [(high - low) / (2 * h) for (low, high), h in zip(neighbours, SPACING, strict=False)]
    second = [(high - 2 * f + low) / h**2 for (low, high), h in zip(neighbours, SPACING, strict=False)]
    return Derivatives(first, sum(second[1:], second[0]))


def fourier(case: GridCase) -> Callable[[Tensor], Tensor]:
    dims = tuple(range(-case.dimension, 0))

    def derivatives(_: str, f: Tensor) -> Derivatives:
        n = f.shape[-1]
        waves = []
        for k, h in enumerate(SPACING[: case.dimension]):
            numbers = torch.fft.rfftfreq if k == case.dimension - 1 else torch.fft.fftfreq
            wave = 2j * math.pi * numbers(n, h, device=f.device, dtype=f.dtype)
            waves.append(wave.reshape([-1 if j == k else 1 for j in range(case.dimension)]))
        spectrum = torch.fft.rfftn(f, dim=dims)
        back = [torch.fft.irfftn(spectrum * w, s=f.shape[-case.dimension :], dim=dims) for w in waves]
        squares = sum((w**2 for w in waves[1:]), waves[0] ** 2)
        return Derivatives(back, torch.fft.irfftn(spectrum * squares, s=f.shape[-case.dimension :], dim=dims))

    return loss_of(case, derivatives)


def step_of(loss: Callable[[Tensor], Tensor]) -> Step:
    """Loss and gradient; the loss's own gradient is kept, which autograd would fill anew in a launch of its own."""
    ones: list[Tensor] = []

    def step(fields: Tensor) -> tuple[Tensor, Tensor]:
        fields = fields.detach().requires_grad_()
        value = loss(fields)
        if not ones:
            ones.append(torch.ones_like(value))
        return value.detach(), torch.autograd.grad(value, fields, ones[0])[0]

    return step


def fused(case: GridCase, backend: str, device: torch.device, recompute: bool = False) -> FusedGridResidualLoss:
    step, scheme = (None, None) if case.equations.steady else (DT, "backward_euler")
    loss = FusedGridResidualLoss(case.equations.pde, case.grids, step, scheme, backend, recompute=recompute)
    return loss.to(device)


def ours(case: GridCase, backend: str, device: torch.device, recompute: bool = False) -> Step:
    return step_of(fused(case, backend, device, recompute))


def steps(case: GridCase, against: Sequence[str], device: torch.device) -> dict[str, Callable[[], Step]]:
    """Engines that apply to a case, built when called."""
    found: dict[str, Callable[[], Step]] = {"pinnfuse": lambda: ours(case, "auto", device)}
    others: dict[str, Callable[[], Step]] = {
        "pinnfuse again": lambda: ours(case, "triton", device, recompute=True),
        "torch": lambda: ours(case, "torch", device),
        "eager": lambda: step_of(eager(case)),
        "torch-compile": lambda: step_of(compiled(case)),
    }
    if case.boundary == "periodic":
        others["roll"] = lambda: step_of(roll(case))
        if case.torch_dtype.itemsize >= 4:  # there is no FFT of half precision for every size
            others["fourier"] = lambda: step_of(fourier(case))
    return found | {name: build for name, build in others.items() if name in against}


# -- with a network ------------------------------------------------------------------------------------------------


def by_coordinates(
    case: GridCase, device: torch.device, dtype: torch.dtype = torch.float32
) -> tuple[nn.Module, nn.Module]:
    """A network of the PDE's coordinates, and the residual loss of nested autograd."""
    torch.manual_seed(0)
    pde = case.equations.pde
    sizes = (len(pde.coordinates), *WIDTHS, len(pde.fields))
    layers = [layer for a, b in zip(sizes[:-1], sizes[1:], strict=True) for layer in (nn.Linear(a, b), nn.Tanh())]
    return nn.Sequential(*layers[:-1]).to(device, dtype), FusedResidualLoss(pde, backend="autograd")


def training_step(
    case: GridCase, loss: Callable[[Tensor], Tensor], device: torch.device, dtype: torch.dtype = torch.float32
) -> Callable[[Tensor], Tensor]:
    """Adam on the residual of a Fourier operator's prediction (12 modes, 16 channels, 4 layers); returns the loss."""
    torch.manual_seed(0)
    c, steady = len(case.fields), case.equations.steady
    modes = min(12, case.n // 2)
    net = FNO(c, c, case.dimension, [case.boundary == "periodic"] * case.dimension, modes=modes, width=16, depth=4)
    net = net.to(device, dtype)
    optimizer = torch.optim.Adam(net.parameters(), lr=1e-6)

    def step(fields: Tensor) -> Tensor:
        optimizer.zero_grad()
        given = fields if steady else fields[:, 0]
        prediction = net(given)
        value = loss(prediction if steady else torch.stack((given, prediction), dim=1))
        value.backward()
        optimizer.step()
        return value.detach()

    return step


def coordinate_training_step(case: GridCase, device: torch.device) -> Callable[[Tensor], Tensor]:
    """Adam on the residual of a network of coordinates at `points` `[N, d]`, by nested autograd."""
    net, loss = by_coordinates(case, device)
    optimizer = torch.optim.Adam(net.parameters(), lr=1e-6)

    def step(points: Tensor) -> Tensor:
        optimizer.zero_grad()
        value = loss(net, points)
        value.backward()
        optimizer.step()
        return value.detach()

    return step
