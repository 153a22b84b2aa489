"""Operators on grids: every backend and precision against plain torch in float64 on the same (rounded) inputs.

Compared are the values and the gradients of all arguments for a random upstream gradient. The bound is 30 roundings
of the dtype, relative to the largest magnitude; half precision rounds its results once.
"""

from __future__ import annotations

from collections.abc import Iterator
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
HALF = ("gradient", "sample bilinear", HEAT)
"""Operators that quick runs take in half precision: of each kind of kernel one."""
COMPILATION = {"diffusion": 10.0, "convection weno5": 10.0, "convection": 6.0}
"""Seconds to compile a kernel and its backward for a periodic axis, by the start of the operator's name."""


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


@dataclass(frozen=True)
class OperatorTask:
    """An operator by its name on a grid by its label, in one backend."""

    operator: str
    grid: str
    backend: str
    dtypes: tuple[str, ...]
    seconds: float

    @property
    def label(self) -> str:
        return f"{self.operator}, {self.grid}, {', '.join((self.backend, *self.dtypes))}"

    def rows(self, device: torch.device) -> list[OperatorRow]:
        entry, grid, space = cases()[self.operator, self.grid]
        inputs = [x.to(device) for x in draw(entry, grid, (2,), space)]
        found = []
        for text in self.dtypes:
            key, dtype = (self.operator, self.grid, self.backend, text), DTYPES[text]
            try:
                quantity, error = compare(entry, grid, inputs, self.backend, dtype)
            except BackendUnavailable as reason:
                found.append(OperatorRow(*key, "skipped", note=str(reason).partition(": ")[2][:200]))
                break
            bound = allowed(self.operator, dtype)
            found.append(OperatorRow(*key, "ok" if error <= bound else "failed", quantity, error, bound))
        return found

    def lost(self, why: str) -> OperatorRow:
        return OperatorRow(self.operator, self.grid, self.backend, " and ".join(self.dtypes), "failed", note=why)


def operator_tasks(device: torch.device, quick: bool = False) -> list[OperatorTask]:
    """Every operator on every grid; on a card a task for each precision of a kernel.

    With `quick`, two axes at most; convection in skew form, which holds both others; walls of convection and
    diffusion on one axis, as kernels repeat them for each; limiters on one axis alone; half precision of the operators
    in `HALF`.
    """
    found = []
    for name, label in cases():
        if quick and not _is_quick(name, label):
            continue
        found.append(OperatorTask(name, label, "torch", tuple(DTYPES), 1.0))
        kernels = tuple(DTYPES) if not quick or name in HALF else ("float32", "float64")
        seconds = next((s for start, s in COMPILATION.items() if name.startswith(start)), 4.0)
        seconds *= (4.0 if "walls" in label else 1.0) * (1.0 if "1-D" in label else 2.0)
        if device.type == "cuda":
            found += [OperatorTask(name, label, "triton", (dtype,), seconds) for dtype in kernels]
        else:
            found.append(OperatorTask(name, label, "triton", kernels, 0.0))
    return found


def _is_quick(name: str, label: str) -> bool:
    if name.startswith("convection") and not name.endswith("skew"):
        return False
    if "van_leer" in name or "weno5" in name:
        return label in ("1-D periodic", "1-D walls")
    if name == "diffusion" or name.startswith("convection"):
        return label in ("2-D periodic", "1-D walls")
    return label in ("2-D periodic", "2-D walls")


def cases() -> dict[tuple[str, str], tuple[Entry, Grid, tuple[int, ...]]]:
    """Of each operator and grid, by their names: what to run, on what grid, of how many points along each axis."""
    found: dict[tuple[str, str], tuple[Entry, Grid, tuple[int, ...]]] = {}
    sampled = {name: _sampled(name) for name in SAMPLES}
    for name, entry in (OPERATORS | sampled).items():
        spaces = ((300,), (20, 50), (8, 10, 12)) if name in sampled else ((300,), (20, 150), (8, 10, 40))
        for dimension in range(entry.least, 4 if entry.linear else 3):
            for label, grid in grids(dimension):
                found[name, f"{dimension}-D {label}"] = entry, grid, spaces[dimension - 1]
    heated = Entry(("scalar",), _heat, lambda *_: [], True)
    walls = {"x": (Dirichlet(0.3), Neumann(-0.2)), "y": "periodic"}
    for label, boundary in {"periodic": "periodic", "walls": walls}.items():
        grid = Grid("x y", (0.7, 0.9), boundary=boundary, centring="cell")
        found[HEAT, f"2-D {label}"] = heated, grid, (20, 150)  # in tiles with halos
        found[HEAT, f"2-D {label}, one tile"] = heated, grid, (20, 30)
    return found


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
