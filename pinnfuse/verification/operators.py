"""Operators on grids: every backend and precision against plain torch in float64 on the same (rounded) inputs.

Compared are the values and the gradients of all arguments for a random upstream gradient. The bound is 30 roundings
of the dtype, relative to the largest magnitude; half precision rounds its results once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor

from pinnfuse.errors import BackendUnavailable
from pinnfuse.grid import Dirichlet, Grid, Neumann, sample
from pinnfuse.grid.registry import OPERATORS, Entry, draw
from pinnfuse.simulation import heat

DTYPES = {"float32": torch.float32, "float64": torch.float64, "bfloat16": torch.bfloat16, "float16": torch.float16}
ROUNDINGS = 30.0
HEAT = "heat, 9 steps"
SAMPLES = tuple(f"sample {mode}" for mode in ("nearest", "bilinear", "bicubic"))


@dataclass(frozen=True)
class OperatorRow:
    """One comparison. `status`: "ok", "failed", or "skipped" with the reason in `note`."""

    operator: str
    grid: str
    backend: str
    dtype: str
    status: str
    quantity: str = ""
    error: float | None = None
    bound: float | None = None
    note: str = ""

    @property
    def path(self) -> str:
        return self.backend

    @property
    def case(self) -> str:
        return f"{self.operator}, {self.grid}"

    @property
    def group(self) -> str:
        """First word of the operator."""
        return self.operator.replace(",", " ").split()[0]

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


def grids(dimension: int) -> Iterator[tuple[str, Grid]]:
    """Periodic, and every kind of wall; order 4, unequal spacings."""
    axes, spacing = ("x", "y", "z")[:dimension], (0.7, 0.9, 1.1)[:dimension]
    yield "periodic", Grid(axes, spacing, boundary="periodic", order=4)
    walls = [(Dirichlet(0.3), Neumann(-0.2)), "one-sided", "periodic"][:dimension]
    yield "walls", Grid(axes, spacing, boundary=dict(zip(axes, walls, strict=True)), order=4, centring="cell")


def compare(entry: Entry, grid: Grid, inputs: list[Tensor], backend: str, dtype: torch.dtype) -> tuple[str, float]:
    """The quantity with the largest error, and that error relative to the quantity's largest magnitude.

    Raises:
        BackendUnavailable: the backend cannot run here.
    """
    rounded = [x.to(dtype) for x in inputs]
    exact = [x.double().requires_grad_() for x in rounded]
    given = [x.clone().requires_grad_() for x in rounded]
    truth, found = entry.run(grid, *exact, backend="torch"), entry.run(grid, *given, backend=backend)
    upstream = torch.randn(truth.shape, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    upstream = upstream.to(truth.device).to(dtype)
    truths = [truth, *torch.autograd.grad(truth, exact, upstream.double())]
    founds = [found, *torch.autograd.grad(found, given, upstream)]
    names = ["value", *(f"gradient {k}" for k in range(len(inputs)))]
    errors = {
        name: float((a.detach().double() - b.detach()).abs().max() / b.detach().abs().max())
        for name, a, b in zip(names, founds, truths, strict=True)
    }
    worst = max(errors, key=lambda name: errors[name] if errors[name] == errors[name] else float("inf"))
    return worst, errors[worst]


def run_operators(
    device: torch.device, quick: bool = False, report: Callable[[str], None] = lambda text: None
) -> list[OperatorRow]:
    """Every operator on 2-D grids (linear ones on 1-D and 3-D too, without `quick`), in every backend and precision."""
    return list(_rows(device, quick, report))


def _rows(device: torch.device, quick: bool, report: Callable[[str], None]) -> Iterator[OperatorRow]:
    for name, entry, label, grid, space in _cases(quick):
        report(f"grid: {name}")
        inputs = [x.to(device) for x in draw(entry, grid, (2,), space)]
        for backend in ("torch", "triton"):
            for text, dtype in DTYPES.items():
                key = (name, label, backend, text)
                try:
                    quantity, error = compare(entry, grid, inputs, backend, dtype)
                except BackendUnavailable as reason:
                    yield OperatorRow(*key, "skipped", note=str(reason).partition(": ")[2][:200])
                    break
                bound = allowed(name, dtype)
                status = "ok" if error <= bound else "failed"
                yield OperatorRow(*key, status, quantity, error, bound)


def _cases(quick: bool) -> Iterator[tuple[str, Entry, str, Grid, tuple[int, ...]]]:
    """Operator, its name, grid, its label, points per axis."""
    for name, entry in OPERATORS.items():
        for dimension in (2,) if quick or not entry.linear else (1, 2, 3):
            if dimension >= entry.least:
                for label, grid in grids(dimension):
                    space = ((300,), (20, 150), (8, 10, 40))[dimension - 1]
                    yield name, entry, f"{dimension}-D {label}", grid, space
    for name in SAMPLES:
        for dimension in (2,) if quick else (1, 2, 3):
            for label, grid in grids(dimension):
                yield (
                    name,
                    _sampled(name),
                    f"{dimension}-D {label}",
                    grid,
                    ((300,), (20, 50), (8, 10, 12))[dimension - 1],
                )
    walls = {"x": (Dirichlet(0.3), Neumann(-0.2)), "y": "periodic"}
    for label, boundary in {"periodic": "periodic", "walls": walls}.items():  # in tiles with halos, and in one tile
        grid = Grid("x y", (0.7, 0.9), boundary=boundary, centring="cell")
        for space in ((20, 150),) if quick else ((20, 150), (20, 30)):
            yield HEAT, Entry(("scalar",), _heat, lambda *_: [], True), f"2-D {label}", grid, space


def _heat(grid: Grid, u: Tensor, backend: str = "auto") -> Tensor:
    return heat(u, grid, diffusivity=0.1, dt=0.5, steps=9, backend=backend)


def _sampled(name: str) -> Entry:
    """Of a field at 500 points within 30 length units, beyond some ends too, and their gradient but for "nearest"."""
    mode = name.split()[1]

    def run(grid: Grid, u: Tensor, points: Tensor | None = None, backend: str = "auto") -> Tensor:
        if points is None:
            points = draw(Entry(("points",), run, lambda *_: [], True), grid, (), ())[0].to(u.device)
        return sample(u, points, grid, mode=mode, backend=backend)

    return Entry(("scalar",) if mode == "nearest" else ("scalar", "points"), run, lambda *_: [], True)


def allowed(name: str, dtype: torch.dtype) -> float:
    """The bound on an operator's error. WENO's weights multiply roundings of sums by up to 100 where its smoothness
    indicators nearly vanish, positions of 30 spacings those of weights; plain torch rounds every step of heat."""
    half = dtype in (torch.float16, torch.bfloat16)
    roundings = 9 if name == HEAT else 1
    sums = ROUNDINGS * torch.finfo(torch.float32 if half else dtype).eps * (100.0 if "weno5" in name else 1.0)
    return sums + (roundings * torch.finfo(dtype).eps if half else 0.0)
