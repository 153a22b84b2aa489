"""Linear differential operators on fields `[..., *space]`: each one kernel forward and one backward on a card.

All take tensors of any strides and leading dimensions, in float16, bfloat16, float32 or float64; sums are formed in
float32 at least. Boundaries and order come from the grid. The tables of a formula's order at walls stand in
`pinnfuse.grid.stencils`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache

from torch import Tensor

from pinnfuse.grid.grid import Grid, check_grid, check_order
from pinnfuse.grid.linear import LinearOperator, Term
from pinnfuse.grid.stencils import axis_stencil


def derivative(u: Tensor, grid: Grid, axes: str | Sequence[str], *, order: int | None = None, backend: str = "auto"):
    r"""A partial derivative, e.g. $u_{xy}$ for `axes="xy"` or `("x", "y")`; shape of `u`.

    Args:
        u: `[..., *space]`.
        axes: names of axes, one per derivative: "x", "xx", "xxyy", ...
        order: order of accuracy, 2, 4 or 6; the grid's own by default.
        backend: "auto", "torch" or "triton".

    Raises:
        ValueError: an unknown axis, or a field with fewer points than the formula needs.
        BackendUnavailable: an explicit `backend` cannot run here.
    """
    order = check_order(grid, order, "derivative")
    return _scalar(_derivative(grid, _split(axes, grid), order), u, grid, backend)


def laplacian(u: Tensor, grid: Grid, *, order: int | None = None, backend: str = "auto") -> Tensor:
    r"""$\sum_a \partial^2 u / \partial x_a^2$ of `[..., *space]`, same shape."""
    return _scalar(_laplacian(grid, check_order(grid, order, "laplacian")), u, grid, backend)


def biharmonic(u: Tensor, grid: Grid, *, order: int | None = None, backend: str = "auto") -> Tensor:
    r"""$\nabla^4 u = \sum_{a,b} \partial_a^2 \partial_b^2 u$ of `[..., *space]`, same shape, in one pass (not two
    Laplacians)."""
    return _scalar(_biharmonic(grid, check_order(grid, order, "biharmonic")), u, grid, backend)


def gradient(u: Tensor, grid: Grid, *, order: int | None = None, backend: str = "auto") -> Tensor:
    r"""$(\partial u / \partial x_a)_a$: `[..., *space]` to `[..., d, *space]`."""
    operator = _gradient(grid, check_order(grid, order, "gradient"))
    grid.check(u, "gradient")
    return operator(u, grid.axes, backend, (True, False))


def divergence(v: Tensor, grid: Grid | Sequence[Grid], *, order: int | None = None, backend: str = "auto") -> Tensor:
    r"""$\sum_a \partial v_a / \partial x_a$: `[..., d, *space]` to `[..., *space]`.

    Args:
        grid: one grid, or one for each component where their walls differ.
    """
    grids = _component_grids(grid, "divergence")
    _check_vector(v, grids[0], "divergence")
    operator = _divergence(grids, check_order(grids[0], order, "divergence"))
    return operator(v, grids[0].axes, backend, (False, True))


def curl(v: Tensor, grid: Grid | Sequence[Grid], *, order: int | None = None, backend: str = "auto") -> Tensor:
    r"""Curl of a vector field: 2-D `[..., 2, *space]` to $\partial_x v_y - \partial_y v_x$ `[..., *space]`; 3-D
    `[..., 3, *space]` to the same shape. `grid`: one, or one per component."""
    grids = _component_grids(grid, "curl")
    _check_vector(v, grids[0], "curl")
    d = grids[0].dimension
    if d == 1:
        raise ValueError("curl: `grid` must have two or three axes; got one.")
    return _curl(grids, check_order(grids[0], order, "curl"))(v, grids[0].axes, backend, (False, d == 2))


def _scalar(operator: LinearOperator, u: Tensor, grid: Grid, backend: str) -> Tensor:
    grid.check(u, operator.name)
    return operator(u, grid.axes, backend, (True, True))


def _check_vector(v: Tensor, grid: Grid, caller: str) -> None:
    grid.check(v, caller, "v", leading=1)
    d = grid.dimension
    if v.shape[-d - 1] != d:
        raise ValueError(
            f"{caller}: `v` must be [..., {d}, {', '.join(grid.axes)}], one component per axis; got {list(v.shape)}. "
            "Stack the components with torch.stack((...), dim=-3) for two axes."
        )


def _component_grids(grid: Grid | Sequence[Grid], caller: str) -> tuple[Grid, ...]:
    grids = tuple(grid) if isinstance(grid, list | tuple) and grid else (grid,)
    first = [check_grid(g, caller) for g in grids][0]
    if len(grids) == 1:
        return grids * first.dimension
    if len(grids) != first.dimension or any((g.axes, g.spacing) != (first.axes, first.spacing) for g in grids):
        raise ValueError(
            f"{caller}: `grid` must be one grid, or one per component with the same axes and spacing; got "
            f"{[(g.axes, g.spacing) for g in grids]}."
        )
    return grids


def _split(axes: str | Sequence[str], grid: Grid) -> tuple[str, ...]:
    """Names of axes from a text such as "xxy"; the longest name first."""
    if not isinstance(axes, str):
        names = tuple(axes) if isinstance(axes, Iterable) else (axes,)
    else:
        rest, found = axes, []
        known = sorted(grid.axes, key=len, reverse=True)
        while rest:
            name = next((name for name in known if rest.startswith(name)), None)
            if name is None:
                raise ValueError(
                    f"derivative: `axes` must be made of the axes {grid.axes}; got {axes!r}, unknown from {rest!r} on."
                )
            found.append(name)
            rest = rest[len(name) :]
        names = tuple(found)
    if not names:
        raise ValueError("derivative: `axes` must name at least one axis, e.g. 'x' or 'xy'; got none.")
    for name in names:
        grid.index(name)
    return names


@lru_cache(maxsize=256)
def _derivative(grid: Grid, names: tuple[str, ...], order: int) -> LinearOperator:
    factors = tuple(
        (k, axis_stencil(grid, axis, names.count(axis), order)) for k, axis in enumerate(grid.axes) if axis in names
    )
    return LinearOperator("derivative", grid.dimension, 1, ((Term(1.0, 0, factors),),))


@lru_cache(maxsize=256)
def _laplacian(grid: Grid, order: int) -> LinearOperator:
    terms = tuple(Term(1.0, 0, ((k, axis_stencil(grid, axis, 2, order)),)) for k, axis in enumerate(grid.axes))
    return LinearOperator("laplacian", grid.dimension, 1, (terms,))


@lru_cache(maxsize=256)
def _biharmonic(grid: Grid, order: int) -> LinearOperator:
    terms = [Term(1.0, 0, ((k, axis_stencil(grid, axis, 4, order)),)) for k, axis in enumerate(grid.axes)]
    second = [(k, axis_stencil(grid, axis, 2, order)) for k, axis in enumerate(grid.axes)]
    terms += [Term(2.0, 0, (a, b)) for i, a in enumerate(second) for b in second[i + 1 :]]
    return LinearOperator("biharmonic", grid.dimension, 1, (tuple(terms),))


@lru_cache(maxsize=256)
def _gradient(grid: Grid, order: int) -> LinearOperator:
    outputs = tuple((Term(1.0, 0, ((k, axis_stencil(grid, axis, 1, order)),)),) for k, axis in enumerate(grid.axes))
    return LinearOperator("gradient", grid.dimension, 1, outputs)


@lru_cache(maxsize=256)
def _divergence(grids: tuple[Grid, ...], order: int) -> LinearOperator:
    terms = tuple(Term(1.0, k, ((k, axis_stencil(g, g.axes[k], 1, order)),)) for k, g in enumerate(grids))
    return LinearOperator("divergence", len(grids), len(grids), (terms,))


@lru_cache(maxsize=256)
def _curl(grids: tuple[Grid, ...], order: int) -> LinearOperator:
    def part(sign: float, axis: int, component: int) -> Term:
        grid = grids[component]
        return Term(sign, component, ((axis, axis_stencil(grid, grid.axes[axis], 1, order)),))

    pairs = [(0, 1)] if len(grids) == 2 else [(1, 2), (2, 0), (0, 1)]
    outputs = tuple((part(1.0, a, b), part(-1.0, b, a)) for a, b in pairs)
    return LinearOperator("curl", len(grids), len(grids), outputs)
