"""What a caller hands to a grid residual, checked before any work. Every message: argument, expected, got, remedy."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from pinnfuse.errors import nearest
from pinnfuse.grid.dispatch import transforming
from pinnfuse.grid.grid import Grid, check_real
from pinnfuse.grid.reference import Scheme
from pinnfuse.parameters import number
from pinnfuse.pde import PDE

CALLER = "FusedGridResidualLoss"


@dataclass(frozen=True)
class Inputs:
    """One call.

    Attributes:
        fields: [B, T, C, *space].
        parameters: per PDE parameter a number, a 0-d tensor or [B].
        data: per data column, broadcast to [B, T', *space].
        weights: broadcast to `shape`, or None.
        shape: of the residuals, [B, T', E, *space].
    """

    fields: Tensor
    parameters: dict[str, Tensor | float]
    data: dict[str, Tensor]
    weights: Tensor | None
    equation_weights: Tensor
    shape: tuple[int, ...]

    @property
    def dtype(self) -> torch.dtype:
        return compute_dtype(self.fields.dtype)

    def of(self, fields: Tensor) -> Inputs:
        """The same call of other fields."""
        return self if fields is self.fields else replace(self, fields=fields)

    def tensors(self) -> list[Tensor]:
        """All but the fields that may be differentiated."""
        given = (*self.parameters.values(), *self.data.values(), self.weights)
        return [value for value in given if isinstance(value, Tensor)]

    def parameter_tensors(self) -> dict[str, Tensor]:
        """All parameters as tensors; numbers stay on the CPU, which promotes and copies nothing."""
        return {
            name: value if isinstance(value, Tensor) else torch.tensor(value, dtype=torch.float64)
            for name, value in self.parameters.items()
        }


def compute_dtype(dtype: torch.dtype) -> torch.dtype:
    """Half precision is computed and summed in float32."""
    return torch.float32 if dtype in (torch.float16, torch.bfloat16) else dtype


def per_field(grid: Grid | Mapping[str, Grid], fields: Sequence[str]) -> tuple[Grid, ...]:
    """One grid per field, alike in all but their boundaries."""
    if isinstance(grid, Grid):
        return (grid,) * len(fields)
    if not isinstance(grid, Mapping) or not all(isinstance(g, Grid) for g in grid.values()):
        raise ValueError(f"{CALLER}: `grid` must be a Grid or {{field: Grid}}; got {type(grid).__name__}.")
    unknown = [name for name in grid if name not in fields]
    missing = [name for name in fields if name not in grid]
    if unknown or missing:
        raise ValueError(
            f"{CALLER}: `grid` must name every field of {list(fields)}; "
            + (f"unknown {unknown}" if unknown else f"missing {missing}")
            + ". Pass {field: Grid}, or one Grid for all."
        )
    found = tuple(grid[name] for name in fields)
    for name, other in zip(fields, found, strict=True):
        for what in ("axes", "spacing", "order", "centring", "periodic"):
            mine, theirs = getattr(found[0], what), getattr(other, what)
            if mine != theirs:
                raise ValueError(
                    f"{CALLER}: the grids in `grid` may differ in their walls only; {fields[0]!r} has {what} {mine} "
                    f"and {name!r} has {theirs}. Put all fields on the same points."
                )
    _same_points(found, fields)
    return found


def _same_points(grids: Sequence[Grid], fields: Sequence[str]) -> None:
    """Fields at different coordinates of the same index are refused: a node-centred Dirichlet wall moves the points."""
    one = [1] * grids[0].dimension
    first = grids[0].coordinates(one, dtype=torch.float64)
    for name, grid in zip(fields, grids, strict=True):
        for axis, x in grid.coordinates(one, dtype=torch.float64).items():
            if abs(float(x[0] - first[axis][0])) > 1e-6 * grid.spacing[grid.index(axis)]:
                raise ValueError(
                    f"{CALLER}: the grids in `grid` put {fields[0]!r} and {name!r} at different points: the first lies "
                    f"at {axis} = {float(first[axis][0]):g} and {float(x[0]):g}. Give each its `origin` (a "
                    "node-centred Dirichlet wall lies one spacing outside the first point, a Neumann wall on it), or "
                    "centring='cell'."
                )


def residual_shape(fields: Tensor, scheme: Scheme) -> tuple[int, ...]:
    """[B, T', E, *space]."""
    d, equations = scheme.grid.dimension, len(scheme.form.pde.equations)
    count = fields.shape[1] - scheme.form.scheme.levels + 1 if scheme.form.time else 1
    return (fields.shape[0], count, equations, *fields.shape[-d:])


def check_fields(fields: Tensor, scheme: Scheme, caller: str) -> tuple[int, ...]:
    """The shape of the residuals. Shapes and dtypes that were found to fit are not looked at again."""
    if not isinstance(fields, Tensor):
        return _check_fields(fields, scheme, caller)
    key = (fields.shape, fields.dtype, fields.layout)
    found = scheme.checked.get(key)
    if found is None:
        found = scheme.checked.keep(key, _check_fields(fields, scheme, caller))
    return found


def _check_fields(fields: Tensor, scheme: Scheme, caller: str) -> tuple[int, ...]:
    form, grid = scheme.form, scheme.grid
    names = ["B", *(["T"] if form.time else []), "C", *grid.axes]
    expected = f"[{', '.join(names)}] with C = {len(form.pde.fields)} fields ({', '.join(form.pde.fields)})"
    if not isinstance(fields, Tensor):
        raise ValueError(f"{caller}: `fields` must be a tensor {expected}; got {type(fields).__name__}.")
    check_real(fields, caller, "fields")
    if fields.dim() != len(names) or fields.shape[-grid.dimension - 1] != len(form.pde.fields):
        remedy = "Add a batch dimension with fields[None]." if fields.dim() == len(names) - 1 else "Reorder dimensions."
        raise ValueError(f"{caller}: `fields` must be {expected}; got {list(fields.shape)}. {remedy}")
    if fields.shape[0] == 0:
        raise ValueError(f"{caller}: `fields` must hold at least one sample; got {list(fields.shape)}.")
    levels = form.scheme.levels
    if form.time and fields.shape[1] < levels:
        raise ValueError(
            f"{caller}: `fields` must hold at least {levels} time levels for {form.scheme.name!r}; got "
            f"{fields.shape[1]}. Append levels, e.g. the initial field."
        )
    space = tuple(fields.shape[-grid.dimension :])
    for one, name in zip(scheme.grids, form.pde.fields, strict=True):
        one.check(fields, caller, f"fields ({name})")
    for axis, n, least in zip(grid.axes, space, scheme.minimum, strict=True):
        if n < least:
            raise ValueError(
                f"{caller}: `fields` must have at least {least} points along {axis!r} for these stencils; got {n}. "
                "Refine the grid or lower its order."
            )
    return residual_shape(fields, scheme)


def check_parameters(
    values: Mapping[str, Tensor | float], pde: PDE, fields: Tensor, caller: str
) -> dict[str, Tensor | float]:
    dtype = compute_dtype(fields.dtype)
    for name in values:
        if name not in pde.parameters:
            raise ValueError(
                f"{caller}: `parameters` holds the unknown {name!r}. {nearest(str(name), list(pde.parameters))}"
            )
    found: dict[str, Tensor | float] = {}
    for name in pde.parameters:
        value = values[name]
        if not isinstance(value, Tensor):
            found[name] = number(value, f"{caller}: parameter {name!r}")
            continue
        if value.dim() and tuple(value.shape) != (fields.shape[0],):
            raise ValueError(
                f"{caller}: `parameters[{name!r}]` must be a number or one per sample, [B] = [{fields.shape[0]}]; got "
                f"{list(value.shape)}. A value per point is a data column or a field."
            )
        _check_values(f"parameters[{name!r}]", value, fields, caller)
        found[name] = value.to(dtype)
    return found


def check_data(
    data: Mapping[str, Tensor] | None, pde: PDE, shape: tuple[int, ...], fields: Tensor, time: bool, caller: str
) -> dict[str, Tensor]:
    """Data columns as [B, T', *space] (expanded)."""
    given = dict(data or {})
    missing = [name for name in pde.data if name not in given]
    surplus = [name for name in given if name not in pde.data]
    if missing or surplus:
        raise ValueError(
            f"{caller}: `data` must hold the columns {list(pde.data)}; "
            + (f"missing {missing}" if missing else f"unknown {surplus}")
            + ". Pass data={name: tensor [B, *space]}."
        )
    return {
        name: _broadcast(f"data[{name!r}]", given[name], (*shape[:2], *shape[3:]), fields, time, caller, True)
        for name in pde.data
    }


def check_weights(
    weights: Tensor | None, shape: tuple[int, ...], fields: Tensor, time: bool, caller: str
) -> Tensor | None:
    if weights is None:
        return None
    found = _broadcast("point_weights", weights, shape, fields, time, caller)
    if weights.device.type == "cpu" and not transforming() and bool((weights < 0).any()):
        raise ValueError(
            f"{caller}: `point_weights` must be >= 0; got {float(weights.min()):.3g}. Clamp them with "
            "weights.clamp(min=0)."
        )
    return found


def _broadcast(
    name: str, tensor: Tensor, shape: tuple[int, ...], fields: Tensor, time: bool, caller: str, once: bool = False
) -> Tensor:
    """To [B, T', ...]; for a steady equation the caller's shape has no T'. `once`: [B, *space] holds at all times."""
    if not isinstance(tensor, Tensor):
        raise ValueError(f"{caller}: `{name}` must be a tensor; got {type(tensor).__name__}. Use torch.as_tensor.")
    _check_values(name, tensor, fields, caller)
    wanted = shape if time else (shape[0], *shape[2:])
    if once and time and tensor.dim() == len(shape) - 1:
        tensor = tensor.unsqueeze(1)
    try:
        expanded = tensor.to(compute_dtype(fields.dtype)).expand(wanted)
    except RuntimeError as error:
        raise ValueError(
            f"{caller}: `{name}` must broadcast to {list(wanted)}; got {list(tensor.shape)}. Align its last dimensions "
            "with the grid's axes."
        ) from error
    return expanded if time else expanded.unsqueeze(1)


def _check_values(name: str, tensor: Tensor, fields: Tensor, caller: str) -> None:
    """Real (of any type), dense, and on the device of the fields."""
    if tensor.is_complex() or tensor.layout is not torch.strided:
        check_real(tensor, caller, name)
    if tensor.device != fields.device and tensor.dim():
        raise ValueError(
            f"{caller}: `fields` and {name} must be on one device; got {fields.device} and {tensor.device}. Move one "
            "of them, e.g. fields.to(device) or loss_fn.to(device)."
        )


__all__ = ["Inputs", "check_fields", "compute_dtype", "residual_shape"]
