r"""A user's own operator from a stencil or a text: forward, adjoint and rows at walls, by the library's kernels.

A stencil is a linear operator like the library's,

    (L u)_i = sum_k w_k u_{i + o_k}.

Points outside walls are those of the polynomial through the `order + 1` numbers nearest the end, the wall's own among
them, along each axis in turn. The adjoint is the transposed operator. A text, pointwise or with derivatives, is the
residual of an equation: its kernels are those of `FusedGridResidualLoss`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import lru_cache

import torch
from torch import Tensor

from pinnfuse.grid import dispatch
from pinnfuse.grid.grid import Grid, check_grid
from pinnfuse.grid.linear import LinearOperator, Term
from pinnfuse.grid.residual import FusedGridResidualLoss
from pinnfuse.grid.stencils import AxisStencil, ghost_rows
from pinnfuse.parameters import number
from pinnfuse.pde import PDE

Stencil = Mapping[int | tuple[int, ...], float] | Sequence[tuple[tuple[int, ...], float]]
Entries = tuple[tuple[tuple[int, ...], float], ...]
Numbers = Mapping[str, float | Tensor]


class CustomOperator:
    """`operator(u, v, ...)`, each `[..., *space]`, to the same shape; made by `custom`.

    Parameters of a text may take other values in a call, numbers or scalar tensors, differentiable:
    `operator(u, k=0.3)`.
    """

    def __init__(
        self, name: str, fields: tuple[str, ...], grid: Grid, run: Callable[[Sequence[Tensor], Numbers], Tensor]
    ):
        self.name, self.fields, self.grid, self._run = name, fields, grid, run

    def __call__(self, *tensors: Tensor, **parameters: float | Tensor) -> Tensor:
        if len(tensors) != len(self.fields):
            raise ValueError(f"{self.name}: takes one tensor for each of {', '.join(self.fields)}; got {len(tensors)}.")
        for field, tensor in zip(self.fields, tensors, strict=True):
            self.grid.check(tensor, self.name, field)
        return self._run(tensors, parameters)


def custom(
    what: Stencil | str,
    grid: Grid,
    *,
    fields: str = "u",
    name: str = "custom",
    backend: str = "auto",
    **parameters: float,
) -> CustomOperator:
    """An operator from offsets and weights, or from a text.

        h = grid.spacing[0]
        sides, corners = ((1, 0), (-1, 0), (0, 1), (0, -1)), ((1, 1), (1, -1), (-1, 1), (-1, -1))
        nine_points = {(0, 0): -20.0} | dict.fromkeys(sides, 4.0) | dict.fromkeys(corners, 1.0)
        laplacian = custom({offset: weight / (6 * h**2) for offset, weight in nine_points.items()}, grid)
        swish = custom("u / (1 + exp(-u))", grid)
        transport = custom("k*(u_xx + u_yy) - u*u_x + sin(v)", grid, fields="u v", k=0.1)
        rate = transport(u, v)

    Args:
        what: `{offset: weight}`, offsets as tuples with one entry per axis (plain integers on one axis), weights with
            the division by spacings; or a text of the fields, the axes' names, `u_x`, `u_xy`, `D(u**2, x)`, functions
            and parameters, as in `PDE`.
        grid: gives axes and boundaries, those of every field.
        fields: of a text, in the order of the arguments.
        name: for error messages and `backends(name=...)`.
        backend: "auto", "torch" or "triton". An explicit choice never falls back.
        parameters: of a text, numbers.

    Returns:
        What to call with one `[..., *space]` per field. The backward of a stencil can be differentiated again; that of
        a text only with backend="torch".

    Raises:
        ValueError: no entries, offsets that do not fit the axes, or a text that `PDE` does not understand.
    """
    dispatch.check_name(backend, name)
    check_grid(grid, name)
    if isinstance(what, str):
        return _of_text(what, grid, tuple(fields.replace(",", " ").split()), name, backend, parameters)
    if parameters or fields != "u":
        raise ValueError(
            f"{name}: a stencil has neither `fields` nor parameters; got {[*parameters] or fields!r}. Write a text, "
            "e.g. custom('k*u_xx', grid, k=0.1), or multiply its weights."
        )
    operator = _linear(_entries(what, grid, name), grid, name)
    return CustomOperator(name, ("u",), grid, lambda u, _: operator(u[0], grid.axes, backend, (True, True)))


def _of_text(
    text: str, grid: Grid, fields: tuple[str, ...], name: str, backend: str, parameters: Mapping[str, float]
) -> CustomOperator:
    d = grid.dimension
    constants = tuple(sorted(parameters.items()))
    caller = f"{name} {text!r}" if name == "custom" else name
    _residual(text, fields, grid, constants, backend)  # now, not in the first call, complains about the text

    def run(tensors: Sequence[Tensor], given: Numbers) -> Tensor:
        for key in given:
            if key not in parameters:
                raise ValueError(f"{caller}: unknown parameter {key!r}; it has {sorted(parameters) or 'none'}.")
        residual = _residual(text, fields, grid, constants, dispatch.wanted(backend, name))
        try:
            first, *others = torch.broadcast_tensors(*tensors)
        except RuntimeError as error:
            shapes = [list(t.shape) for t in tensors]
            raise ValueError(f"{caller}: fields must broadcast to one shape; got {shapes}.") from error
        whole = torch.stack((first, *others), dim=-d - 1) if others else first.unsqueeze(-d - 1)
        flat = whole.reshape(-1, *whole.shape[-d - 1 :])
        found = residual.to(whole.device).residuals(flat, parameters=dict(given))
        return found.to(whole.dtype).reshape(first.shape)

    return CustomOperator(caller, fields, grid, run)


@lru_cache(maxsize=64)
def _residual(
    text: str, fields: tuple[str, ...], grid: Grid, parameters: tuple[tuple[str, float], ...], backend: str
) -> FusedGridResidualLoss:
    pde = PDE(fields, grid.axes, parameters=dict(parameters), equations={"value": text})
    return FusedGridResidualLoss(pde, grid, backend=backend)


def _entries(stencil: Stencil, grid: Grid, name: str) -> Entries:
    found: dict[tuple[int, ...], float] = {}
    if not isinstance(stencil, Iterable):
        raise ValueError(
            f"{name}: `what` must be {{offset: weight}} or a text; got {type(stencil).__name__}. Write e.g. {{0: 1.0}}."
        )
    for offset, weight in stencil.items() if isinstance(stencil, Mapping) else stencil:
        place = (offset,) if isinstance(offset, int) else tuple(offset)
        if len(place) != grid.dimension or not all(isinstance(o, int) for o in place):
            raise ValueError(
                f"{name}: offsets must be tuples of {grid.dimension} integers, one for each of {grid.axes}; got "
                f"{offset!r}."
            )
        found[place] = found.get(place, 0.0) + number(weight, f"{name}: the weight at {offset!r}")
    if not found:
        raise ValueError(f"{name}: `what` must hold at least one entry {{offset: weight}}; got none.")
    return tuple(sorted(found.items()))


@lru_cache(maxsize=256)
def _linear(entries: tuple[tuple[tuple[int, ...], float], ...], grid: Grid, name: str) -> LinearOperator:
    terms = []
    for offset, weight in entries:
        factors = tuple(
            (k, _shift(grid, axis, o)) for k, (axis, o) in enumerate(zip(grid.axes, offset, strict=True)) if o
        )
        terms.append(Term(weight, 0, factors))
    return LinearOperator(name, grid.dimension, 1, (tuple(terms),))


@lru_cache(maxsize=256)
def _shift(grid: Grid, axis: str, offset: int) -> AxisStencil:
    """u at another point of the axis; rows that would read outside read the ghost point."""
    count, reach = grid.order + 1, abs(offset)
    low, high = ghost_rows(grid, axis, count, reach)
    periodic = grid.periodic[axis]
    ends = (
        ((), ())
        if periodic
        else (tuple(reversed(low)) if offset < 0 else (), tuple(reversed(high)) if offset > 0 else ())
    )
    return AxisStencil((offset,), (1.0,), periodic, *ends, reach + 1 if periodic else max(count, reach + 1))
