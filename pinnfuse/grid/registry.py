"""Every operator in one table: what tests, `pinnfuse verify` and `pinnfuse bench ops` go through.

All backends and dtypes hold for all entries: "torch" anywhere, "triton" on a card; float16, bfloat16, float32, float64.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

from pinnfuse.grid.grid import Grid
from pinnfuse.grid.operators import biharmonic, curl, derivative, divergence, gradient, laplacian
from pinnfuse.grid.transport import FORMS, SCHEMES, convection, diffusion


@dataclass(frozen=True)
class Entry:
    """One operator.

    Attributes:
        inputs: per argument "scalar" `[..., *space]`, "vector" `[..., d, *space]` or "positive" (a scalar field > 0).
        run: `run(grid, *arguments, backend=...)`. exact: the same from derivatives of functions: `exact(D,
        *functions)`, where D(f, axes) differentiates; per output
            component. Functions are called as `f(x, y, ...)`, vectors are tuples of them.
        linear: in its only argument (but for walls' numbers); then the backward is differentiable by kernels too.
        least: number of axes that it needs.
        order: of accuracy in the interior, None for the grid's.
        lost: how many orders the rows at walls lose.
    """

    inputs: tuple[str, ...]
    run: Callable[..., Tensor]
    exact: Callable[..., list]
    linear: bool
    least: int = 1
    order: int | None = None
    lost: int = 0


def _convection(scheme: str, form: str) -> Entry:
    def run(grid: Grid, f: Tensor, v: Tensor, backend: str = "auto") -> Tensor:
        return convection(f, v, grid, scheme=scheme, form=form, backend=backend)

    def exact(D, f, v) -> list:
        along = sum(v[k] * D(f, (k,)) for k in range(len(v)))
        flux = sum(D(lambda *x, k=k: v[k](*x) * f(*x), (k,)) for k in range(len(v)))
        return [{"advective": along, "conservative": flux, "skew": _half(along, flux)}[form]]

    order = {"central": None, "upwind1": 1, "upwind3": 3, "van_leer": 2, "weno5": 5}[scheme]
    return Entry(("scalar", "vector"), run, exact, False, order=order)


def _half(a, b):
    return 0.5 * (a + b)


def _entries() -> dict[str, Entry]:
    def plain(function: Callable[..., Tensor]) -> Callable[..., Tensor]:
        return lambda grid, *arguments, backend="auto": function(*arguments, grid, backend=backend)

    def mixed(grid: Grid, u: Tensor, backend: str = "auto") -> Tensor:
        return derivative(u, grid, grid.axes[:2], backend=backend)

    found = {
        "gradient": Entry(("scalar",), plain(gradient), lambda D, u: [D(u, (k,)) for k in range(D.axes)], True),
        "divergence": Entry(
            ("vector",), plain(divergence), lambda D, v: [sum(D(v[k], (k,)) for k in range(D.axes))], True
        ),
        "curl": Entry(("vector",), plain(curl), _exact_curl, True, least=2),
        "laplacian": Entry(
            ("scalar",), plain(laplacian), lambda D, u: [sum(D(u, (k, k)) for k in range(D.axes))], True, lost=1
        ),
        "biharmonic": Entry(
            ("scalar",),
            plain(biharmonic),
            lambda D, u: [sum(D(u, (j, j, k, k)) for j in range(D.axes) for k in range(D.axes))],
            True,
            lost=1,
        ),
        "mixed": Entry(("scalar",), mixed, lambda D, u: [D(u, (0, 1))], True, least=2),
        "diffusion": Entry(
            ("scalar", "positive"),
            plain(diffusion),
            lambda D, u, k: [sum(D(lambda *x, a=a: k(*x) * D.at(u, (a,), x), (a,)) for a in range(D.axes))],
            False,
            lost=1,
        ),
    }
    for scheme in SCHEMES:
        for form in FORMS:
            found[f"convection {scheme} {form}"] = _convection(scheme, form)
    return found


def _exact_curl(D, v) -> list:
    if D.axes == 2:
        return [D(v[1], (0,)) - D(v[0], (1,))]
    return [D(v[(k + 2) % 3], ((k + 1) % 3,)) - D(v[(k + 1) % 3], ((k + 2) % 3,)) for k in range(3)]


OPERATORS: dict[str, Entry] = _entries()


def draw(entry: Entry, grid: Grid, batch: tuple[int, ...], space: tuple[int, ...], seed: int = 0) -> list[Tensor]:
    """Random float64 arguments of an operator, on the CPU."""
    generator = torch.Generator().manual_seed(seed)
    found = []
    for kind in entry.inputs:
        shape = (*batch, *((grid.dimension,) if kind == "vector" else ()), *space)
        values = torch.randn(shape, generator=generator, dtype=torch.float64)
        found.append(values.abs() + 0.5 if kind == "positive" else values)
    return found
