"""Operators on periodic grids as people write them: what `pinnfuse bench ops` compares with.

    eager-roll    torch.roll and arithmetic
    eager-slice   circular padding and slices
    conv          circular padding and a convolution with the stencil
    compile       torch.compile of eager-roll
    fourier       real FFTs; exact derivatives, hence other numbers than differences
    coordinates   the operator of a network of 4 x 64 at as many points by nested autograd
    pinnfuse      one kernel
    kernel, torch ours with and without kernels, whatever "auto" takes
All second order but Fourier; upwind3 is third order. Of the limited schemes, van_leer and weno5, there are only ours.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

from pinnfuse.grid import Grid, convection, gradient, laplacian, spectral

Op = Callable[..., Tensor]
OPERATORS = ("laplacian", "gradient", "convection central", "convection upwind3")
LIMITED = ("convection van_leer", "convection weno5")
OURS = ("pinnfuse", "kernel", "torch")
ENGINES = ("pinnfuse", "eager-roll", "eager-slice", "conv", "compile", "fourier", "coordinates")
DTYPES = ("float32", "float64", "float16", "bfloat16")
MOST_COORDINATES = 2**22
"""Points up to which nested autograd is measured."""


@dataclass(frozen=True)
class Case:
    """An operator on a batch of fields of n^dimension points."""

    operator: str
    n: int
    batch: int
    boundary: str = "periodic"
    dimension: int = 2
    dtype: str = "float32"

    @property
    def grid(self) -> Grid:
        """Spacing 1/2: differences of half precision stay in its range."""
        return Grid(" ".join("xyz"[: self.dimension]), 0.5, boundary=self.boundary)

    @property
    def size(self) -> str:
        """As on the command line: 2048, 2048x8, 256^3, 2048x8:float16."""
        text = f"{self.n}" + (f"^{self.dimension}" if self.dimension != 2 else "")
        return (
            text + (f"x{self.batch}" if self.batch > 1 else "") + ("" if self.dtype == "float32" else f":{self.dtype}")
        )

    def inputs(self, device: torch.device) -> tuple[Tensor, ...]:
        """Smooth fields and half as much noise."""
        generator = torch.Generator(device).manual_seed(0)
        x = torch.arange(self.n, device=device) * (2 * torch.pi / self.n)
        shape = (self.batch, *[self.n] * self.dimension)

        def field(k: int) -> Tensor:
            found = 1.0 + 0.5 * torch.rand(shape, device=device, generator=generator)
            for axis in range(self.dimension):
                wave = torch.sin((k + axis) * x + 0.1 * (axis + 1))  # no zero velocity
                found = found * wave.reshape([-1 if j == axis else 1 for j in range(self.dimension)])
            return found.to(getattr(torch, self.dtype))

        f = field(1)
        if "convection" not in self.operator:
            return (f,)
        return f, torch.stack([field(2 + k) for k in range(self.dimension)], dim=1)

    def gigabytes(self, backward: bool) -> float:
        """Every array once. The backward of a linear operator reads the gradient; of convection all arguments too."""
        d = self.dimension
        arrays = {"laplacian": (2, 2), "gradient": (1 + d, 1 + d)}.get(self.operator, (2 + d, 3 + 2 * d))[backward]
        return 1e-9 * getattr(torch, self.dtype).itemsize * arrays * self.batch * self.n**d


def applies(engine: str, case: Case) -> bool:
    """Fourier transforms have no half precision; networks are not compared in other precisions than float32; nobody
    wrote the limited schemes but us."""
    if case.operator in LIMITED:
        return engine in OURS
    if engine == "fourier":
        return case.dtype in ("float32", "float64")
    return engine != "coordinates" or (
        case.dtype == "float32" and case.batch * case.n**case.dimension <= MOST_COORDINATES
    )


def build(engine: str, case: Case) -> Op:
    """The operator as a function of its inputs."""
    grid, d = case.grid, case.dimension
    if engine in OURS:
        return _ours(case.operator, grid, {"pinnfuse": "auto", "kernel": "triton"}.get(engine, engine))
    h = grid.spacing[0]
    if engine == "compile":
        return torch.compile(_shifted(case.operator, _roll, h, d), dynamic=False)
    if engine == "conv":
        return _convolution(case.operator, h, d)
    if engine == "fourier":
        return _fourier(case.operator, grid)
    return _shifted(case.operator, {"eager-roll": _roll, "eager-slice": _slice}[engine], h, d)


def _ours(operator: str, grid: Grid, backend: str) -> Op:
    if operator == "laplacian":
        return lambda f: laplacian(f, grid, backend=backend)
    if operator == "gradient":
        return lambda f: gradient(f, grid, backend=backend)
    scheme = operator.split()[1]
    return lambda f, v: convection(f, v, grid, scheme=scheme, backend=backend)


def reference(case: Case) -> Op:
    """Ours in plain torch: the truth, in float64."""
    return _ours(case.operator, case.grid, "torch")


Shift = Callable[[int, int], Tensor]
"""(axis, steps) -> the field that many steps on."""


def _roll(f: Tensor, reach: int, dimension: int) -> Shift:
    return lambda axis, steps: torch.roll(f, -steps, axis - dimension)


def _slice(f: Tensor, reach: int, dimension: int) -> Shift:
    wide = functional.pad(f.unsqueeze(1), (reach,) * (2 * dimension), mode="circular").squeeze(1)
    sizes = f.shape[-dimension:]

    def at(axis: int, steps: int) -> Tensor:
        starts = [reach + steps * (k == axis) for k in range(dimension)]
        inside: Any = (..., *(slice(i, i + n) for i, n in zip(starts, sizes, strict=True)))
        return wide[inside]

    return at


def _shifted(operator: str, shift: Callable[[Tensor, int, int], Shift], h: float, dimension: int) -> Op:
    axes = range(dimension)

    def run_laplacian(f: Tensor) -> Tensor:
        at = shift(f, 1, dimension)
        neighbours = [at(k, s) for k in axes for s in (1, -1)]
        return (sum(neighbours[1:], neighbours[0]) - 2 * dimension * f) / h**2

    def run_gradient(f: Tensor) -> Tensor:
        at = shift(f, 1, dimension)
        return torch.stack([at(k, 1) - at(k, -1) for k in axes], dim=-1 - dimension) / (2 * h)

    def run_central(f: Tensor, v: Tensor) -> Tensor:
        at = shift(f, 1, dimension)
        parts = [v[:, k] * (at(k, 1) - at(k, -1)) for k in axes]
        return sum(parts[1:], parts[0]) / (2 * h)

    def run_upwind3(f: Tensor, v: Tensor) -> Tensor:
        at = shift(f, 2, dimension)
        total = torch.zeros_like(f)
        for k in axes:
            minus = at(k, -2) - 6 * at(k, -1) + 3 * f + 2 * at(k, 1)
            plus = -at(k, 2) + 6 * at(k, 1) - 3 * f - 2 * at(k, -1)
            total = total + v[:, k].clamp(min=0) * minus + v[:, k].clamp(max=0) * plus
        return total / (6 * h)

    runs: dict[str, Op] = {
        "laplacian": run_laplacian,
        "gradient": run_gradient,
        "convection central": run_central,
        "convection upwind3": run_upwind3,
    }
    return runs[operator]


_CONVOLUTIONS = (functional.conv1d, functional.conv2d, functional.conv3d)


def _convolution(operator: str, h: float, dimension: int) -> Op:
    """The derivatives that an operator needs as channels of one convolution."""
    axes = range(dimension)
    if operator == "laplacian":
        centre = (0, 0, -2.0 * dimension)
        channels, scale, reach = [[centre, *((k, s, 1.0) for k in axes for s in (1, -1))]], 1 / h**2, 1
    elif operator.endswith("upwind3"):
        upwind = ((-2, 1.0), (-1, -6.0), (0, 3.0), (1, 2.0))
        sides = [(k, side) for k in axes for side in (1, -1)]
        channels, scale, reach = [[(k, side * t, side * w) for t, w in upwind] for k, side in sides], 1 / (6 * h), 2
    else:
        channels, scale, reach = [[(k, 1, 1.0), (k, -1, -1.0)] for k in axes], 1 / (2 * h), 1
    kernel = torch.zeros(len(channels), 1, *[2 * reach + 1] * dimension, dtype=torch.float64)
    for channel, taps in enumerate(channels):
        for axis, steps, weight in taps:
            place: Any = (channel, 0, *(reach + steps * (k == axis) for k in axes))
            kernel[place] = weight * scale
    moved: dict[tuple[torch.device, torch.dtype], Tensor] = {}

    def derivatives(f: Tensor) -> Tensor:
        weight = moved.setdefault((f.device, f.dtype), kernel.to(f))
        wide = functional.pad(f.unsqueeze(1), (reach,) * (2 * dimension), mode="circular")
        return _CONVOLUTIONS[dimension - 1](wide, weight)

    def run(f: Tensor, *v: Tensor) -> Tensor:
        found = derivatives(f)
        if operator == "laplacian":
            return found.squeeze(1)
        if operator == "gradient":
            return found
        if reach == 1:
            return (v[0] * found).sum(1)
        return (v[0].clamp(min=0) * found[:, ::2] + v[0].clamp(max=0) * found[:, 1::2]).sum(1)

    return run


def _fourier(operator: str, grid: Grid) -> Op:
    if operator == "laplacian":
        return lambda f: spectral.laplacian(f, grid)
    if operator == "gradient":
        return lambda f: spectral.gradient(f, grid)
    return lambda f, v: (v * spectral.gradient(f, grid)).sum(-1 - len(grid.axes))


def network(dimension: int) -> nn.Module:
    """The field of the engine "coordinates"."""
    torch.manual_seed(0)
    sizes = (dimension, 64, 64, 64, 64, 1)
    layers = [layer for a, b in zip(sizes[:-1], sizes[1:], strict=True) for layer in (nn.Linear(a, b), nn.Tanh())]
    return nn.Sequential(*layers[:-1])


def by_coordinates(operator: str, net: nn.Module, points: Tensor) -> Tensor:
    """The operator of the network's output at `points` [N, d], velocities one: [N], or [N, d] of the gradient."""
    points = points.detach().requires_grad_()
    slopes = torch.autograd.grad(net(points).sum(), points, create_graph=True)[0]
    if operator == "gradient":
        return slopes
    if operator != "laplacian":
        return slopes.sum(1)
    seconds: Sequence[Tensor] = [
        torch.autograd.grad(slopes[:, k].sum(), points, create_graph=True)[0][:, k] for k in range(points.shape[1])
    ]
    return torch.stack(list(seconds)).sum(0)
