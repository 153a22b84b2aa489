"""Operators on periodic 2-D grids as people write them: what `pinnfuse bench ops` compares with.

    eager-roll    torch.roll and arithmetic
    eager-slice   circular padding and slices
    conv2d        circular padding and a convolution with the stencil
    compile       torch.compile of eager-roll
    fourier       real FFTs; exact derivatives, hence other numbers than differences
    pinnfuse      one kernel
    torch         ours without kernels (small grids only)
All second order but Fourier; upwind3 is third order.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from pinnfuse.grid import Grid, convection, gradient, laplacian, spectral

Op = Callable[..., Tensor]
OPERATORS = ("laplacian", "gradient", "convection central", "convection upwind3")
ENGINES = ("pinnfuse", "eager-roll", "eager-slice", "conv2d", "compile", "fourier")


@dataclass(frozen=True)
class Case:
    """An operator on a batch of square fields of the unit torus."""

    operator: str
    n: int
    batch: int
    boundary: str = "periodic"

    @property
    def grid(self) -> Grid:
        return Grid("x y", 1.0 / self.n, boundary=self.boundary)

    def inputs(self, device: torch.device) -> tuple[Tensor, ...]:
        """Smooth fields and a rounding's worth of noise, float32."""
        generator = torch.Generator(device).manual_seed(0)
        x = torch.arange(self.n, device=device) * (2 * torch.pi / self.n)

        def field(k: int) -> Tensor:
            smooth = torch.sin(k * x + 0.1)[:, None] * torch.cos((k + 1) * x + 0.2)[None]  # no zero velocity
            noise = torch.rand(self.batch, self.n, self.n, device=device, generator=generator)
            return smooth * (1.0 + 0.5 * noise)

        f = field(1)
        return (f, torch.stack((field(2), field(3)), dim=1)) if "convection" in self.operator else (f,)

    def gigabytes(self, backward: bool) -> float:
        """Every array once. The backward of a linear operator reads the gradient; of convection all arguments too."""
        arrays = {
            "laplacian": (2, 2),
            "gradient": (3, 3),
            "convection central": (4, 7),
            "convection upwind3": (4, 7),
        }[self.operator][backward]
        return 4e-9 * arrays * self.batch * self.n**2


def build(engine: str, case: Case) -> Op:
    """The operator as a function of its inputs."""
    grid = case.grid
    if engine in ("pinnfuse", "torch"):
        return _ours(case.operator, grid, "auto" if engine == "pinnfuse" else "torch")
    h = grid.spacing[0]
    if engine == "compile":
        return torch.compile(_shifted(case.operator, _roll, h), dynamic=False)
    if engine == "conv2d":
        return _conv2d(case.operator, h)
    if engine == "fourier":
        return _fourier(case.operator, grid)
    return _shifted(case.operator, {"eager-roll": _roll, "eager-slice": _slice}[engine], h)


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


def _roll(f: Tensor, reach: int) -> Callable[[int, int], Tensor]:
    return lambda i, j: torch.roll(f, (-i, -j), (-2, -1)) if i or j else f


def _slice(f: Tensor, reach: int) -> Callable[[int, int], Tensor]:
    wide = functional.pad(f, (reach,) * 4, mode="circular")
    n, m = f.shape[-2:]
    return lambda i, j: wide[..., reach + i : reach + i + n, reach + j : reach + j + m]


def _shifted(operator: str, shift: Callable[[Tensor, int], Callable[[int, int], Tensor]], h: float) -> Op:
    def run_laplacian(f: Tensor) -> Tensor:
        at = shift(f, 1)
        return (at(1, 0) + at(-1, 0) + at(0, 1) + at(0, -1) - 4 * f) / h**2

    def run_gradient(f: Tensor) -> Tensor:
        at = shift(f, 1)
        return torch.stack((at(1, 0) - at(-1, 0), at(0, 1) - at(0, -1)), dim=-3) / (2 * h)

    def run_central(f: Tensor, v: Tensor) -> Tensor:
        at = shift(f, 1)
        return (v[:, 0] * (at(1, 0) - at(-1, 0)) + v[:, 1] * (at(0, 1) - at(0, -1))) / (2 * h)

    def run_upwind3(f: Tensor, v: Tensor) -> Tensor:
        at = shift(f, 2)
        total = torch.zeros_like(f)
        for k, (i, j) in enumerate(((1, 0), (0, 1))):
            minus = at(-2 * i, -2 * j) - 6 * at(-i, -j) + 3 * f + 2 * at(i, j)
            plus = -at(2 * i, 2 * j) + 6 * at(i, j) - 3 * f - 2 * at(-i, -j)
            total = total + v[:, k].clamp(min=0) * minus + v[:, k].clamp(max=0) * plus
        return total / (6 * h)

    runs: dict[str, Op] = {
        "laplacian": run_laplacian,
        "gradient": run_gradient,
        "convection central": run_central,
        "convection upwind3": run_upwind3,
    }
    return runs[operator]


def _conv2d(operator: str, h: float) -> Op:
    """The derivatives that an operator needs as channels of one convolution."""
    size = 5 if operator.endswith("upwind3") else 3
    if operator == "laplacian":
        rows = {0: [(0, 1, 1.0), (0, -1, 1.0), (1, 0, 1.0), (-1, 0, 1.0), (0, 0, -4.0)]}
        scale = 1 / h**2
    elif size == 3:
        rows = {0: [(1, 0, 1.0), (-1, 0, -1.0)], 1: [(0, 1, 1.0), (0, -1, -1.0)]}
        scale = 1 / (2 * h)
    else:
        rows, scale = {}, 1 / (6 * h)
        for k, (i, j) in enumerate(((1, 0), (0, 1))):
            upwind = ((-2, 1.0), (-1, -6.0), (0, 3.0), (1, 2.0))
            rows[2 * k] = [(t * i, t * j, w) for t, w in upwind]
            rows[2 * k + 1] = [(-t * i, -t * j, -w) for t, w in upwind]
    kernel = torch.zeros(len(rows), 1, size, size)
    for k, taps in rows.items():
        for i, j, w in taps:
            kernel[k, 0, size // 2 + i, size // 2 + j] = w * scale
    moved: dict[torch.device, Tensor] = {}

    def derivatives(f: Tensor) -> Tensor:
        weight = moved.setdefault(f.device, kernel.to(f))
        wide = functional.pad(f.unsqueeze(1), (size // 2,) * 4, mode="circular")
        return functional.conv2d(wide, weight)

    def run(f: Tensor, *v: Tensor) -> Tensor:
        found = derivatives(f)
        if operator == "laplacian":
            return found.squeeze(1)
        if operator == "gradient":
            return found
        if size == 3:
            return (v[0] * found).sum(1)
        up, down = v[0].clamp(min=0), v[0].clamp(max=0)
        return up[:, 0] * found[:, 0] + down[:, 0] * found[:, 1] + up[:, 1] * found[:, 2] + down[:, 1] * found[:, 3]

    return run


def _fourier(operator: str, grid: Grid) -> Op:
    if operator == "laplacian":
        return lambda f: spectral.laplacian(f, grid)
    if operator == "gradient":
        return lambda f: spectral.gradient(f, grid)
    return lambda f, v: (v * spectral.gradient(f, grid)).sum(-3)
