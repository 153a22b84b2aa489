"""Every operator in one table: what tests, `pinnfuse verify` and `pinnfuse bench ops` go through.

All backends and dtypes hold for all entries: "torch" anywhere, "triton" on a card; float16, bfloat16, float32, float64.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor

from pinnfuse.grid.grid import Grid
from pinnfuse.grid.operators import biharmonic, curl, derivative, divergence, gradient, laplacian
from pinnfuse.grid.transport import FORMS, SCHEMES, convection, diffusion


@dataclass(frozen=True)
class Entry:
    """One operator.

    Attributes:
        inputs: per argument "scalar" `[..., *space]`, "vector" `[..., d, *space]`, "positive" (a scalar field > 0) or
            "points" `[500, d]` (coordinates between -3 and 30).
        run: `run(grid, *arguments, backend=...)`.
        exact: the same of sympy expressions: `exact(D, d, *arguments)` per output component, where D(e, axes)
            differentiates along axes counted from 0 and vectors are tuples of expressions.
        linear: in its only argument (but for walls' numbers); then the backward is differentiable by kernels too.
        least: number of axes that it needs.
        order: of accuracy in the interior, None for the grid's.
        lost: how many orders the rows at walls lose.
    """

    inputs: tuple[str, ...]
    run: Callable[..., Tensor]
    exact: Callable[..., list[Any]]
    linear: bool
    least: int = 1
    order: int | None = None
    lost: int = 0


def _convection(scheme: str, form: str) -> Entry:
    def run(grid: Grid, f: Tensor, v: Tensor, backend: str = "auto") -> Tensor:
        return convection(f, v, grid, scheme=scheme, form=form, backend=backend)

    def exact(D: Any, d: int, f: Any, v: Any) -> list[Any]:
        along = sum(v[k] * D(f, (k,)) for k in range(d))
        flux = sum(D(v[k] * f, (k,)) for k in range(d))
        return [{"advective": along, "conservative": flux, "skew": (along + flux) / 2}[form]]

    order = {"central": None, "upwind1": 1, "upwind3": 3, "van_leer": 2, "weno5": 5}[scheme]
    return Entry(("scalar", "vector"), run, exact, False, order=order)


def _entries() -> dict[str, Entry]:
    def plain(function: Callable[..., Tensor]) -> Callable[..., Tensor]:
        return lambda grid, *arguments, backend="auto": function(*arguments, grid, backend=backend)

    def mixed(grid: Grid, u: Tensor, backend: str = "auto") -> Tensor:
        return derivative(u, grid, grid.axes[:2], backend=backend)

    def diffused(D: Any, d: int, u: Any, k: Any) -> list[Any]:
        return [sum(D(k * D(u, (a,)), (a,)) for a in range(d))]

    def fourth(D: Any, d: int, u: Any) -> list[Any]:
        return [sum(D(u, (j, j, k, k)) for j in range(d) for k in range(d))]

    found = {
        "gradient": Entry(("scalar",), plain(gradient), lambda D, d, u: [D(u, (k,)) for k in range(d)], True),
        "divergence": Entry(
            ("vector",), plain(divergence), lambda D, d, v: [sum(D(v[k], (k,)) for k in range(d))], True
        ),
        "curl": Entry(("vector",), plain(curl), _exact_curl, True, least=2),
        "laplacian": Entry(
            ("scalar",), plain(laplacian), lambda D, d, u: [sum(D(u, (k, k)) for k in range(d))], True, lost=1
        ),
        "biharmonic": Entry(("scalar",), plain(biharmonic), fourth, True, lost=1),
        "mixed": Entry(("scalar",), mixed, lambda D, d, u: [D(u, (0, 1))], True, least=2),
        "diffusion": Entry(("scalar", "positive"), plain(diffusion), diffused, False, lost=1),
    }
    for scheme in SCHEMES:
        for form in FORMS:
            found[f"convection {scheme} {form}"] = _convection(scheme, form)
    return found


def _exact_curl(D: Any, d: int, v: Any) -> list[Any]:
    if d == 2:
        return [D(v[1], (0,)) - D(v[0], (1,))]
    return [D(v[(k + 2) % 3], ((k + 1) % 3,)) - D(v[(k + 1) % 3], ((k + 2) % 3,)) for k in range(3)]


OPERATORS: dict[str, Entry] = _entries()


def draw(entry: Entry, grid: Grid, batch: tuple[int, ...], space: tuple[int, ...], seed: int = 0) -> list[Tensor]:
    """Random float64 arguments of an operator, on the CPU."""
    generator = torch.Generator().manual_seed(seed)
    found = []
    for kind in entry.inputs:
        if kind == "points":
            found.append(33 * torch.rand(500, grid.dimension, generator=generator, dtype=torch.float64) - 3)
            continue
        shape = (*batch, *((grid.dimension,) if kind == "vector" else ()), *space)
        values = torch.randn(shape, generator=generator, dtype=torch.float64)
        found.append(values.abs() + 0.5 if kind == "positive" else values)
    return found
