"""Operators on grids: every backend and precision against plain torch in float64 on the same (rounded) inputs.

Compared are the values and the gradients of all arguments for a random upstream gradient. The bound is 30 roundings
of the dtype, relative to the largest magnitude; half precision rounds its results once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

import torch
from torch import Tensor

from pinnfuse.errors import BackendUnavailable
from pinnfuse.grid import Dirichlet, Grid, Neumann
from pinnfuse.grid.registry import OPERATORS, Entry, draw

DTYPES = {"float32": torch.float32, "float64": torch.float64, "bfloat16": torch.bfloat16, "float16": torch.float16}
ROUNDINGS = 30.0
Found = tuple[str, str, str, str, str, str, float | None, float | None, str]
"""operator, grid, backend, dtype, status, quantity, error, bound, note"""


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


def rows(device: torch.device, quick: bool, report: Callable[[str], None]) -> Iterator[Found]:
    """Every operator on 2-D grids (1-D and 3-D for the linear ones too), in every backend and precision."""
    for name, entry in OPERATORS.items():
        for dimension in (2,) if quick or not entry.linear else (1, 2, 3):
            if dimension < entry.least:
                continue
            report(f"grid: {name}")
            for label, grid in grids(dimension):
                space = ((300,), (20, 150), (8, 10, 40))[dimension - 1]
                inputs = [x.to(device) for x in draw(entry, grid, (2,), space)]
                for backend in ("torch", "triton"):
                    for text, dtype in DTYPES.items():
                        key = (name, f"{dimension}-D {label}", backend, text)
                        try:
                            quantity, error = compare(entry, grid, inputs, backend, dtype)
                        except BackendUnavailable as reason:
                            yield (*key, "skipped", "", None, None, str(reason).partition(": ")[2][:200])
                            break
                        bound = allowed(name, dtype)
                        status = "ok" if error <= bound else "failed"
                        yield (*key, status, quantity, error, bound, "")


def allowed(name: str, dtype: torch.dtype) -> float:
    """The bound on an operator's error. WENO's weights multiply roundings of sums by up to 100 where its smoothness
    indicators nearly vanish."""
    half = dtype in (torch.float16, torch.bfloat16)
    sums = ROUNDINGS * torch.finfo(torch.float32 if half else dtype).eps * (100.0 if "weno5" in name else 1.0)
    return sums + (torch.finfo(dtype).eps if half else 0.0)
