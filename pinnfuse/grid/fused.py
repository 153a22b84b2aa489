"""Grid residuals through the generated kernels, as autograd functions. Imported when a Triton backend is first used."""

from __future__ import annotations

from functools import cache, lru_cache
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from pinnfuse.first_order import USE_TORCH, first_order_only
from pinnfuse.grid.codegen import generate
from pinnfuse.grid.codegen.functions import RECOMPUTED, SAVED, SEEDED
from pinnfuse.grid.inputs import Inputs
from pinnfuse.grid.reference import Scheme

if TYPE_CHECKING:
    from pinnfuse.kernels.grid.residual import Arguments


@cache
def _kernels() -> Any:
    from pinnfuse.kernels.grid import residual

    return residual


@lru_cache(maxsize=64)
def source(scheme: Scheme) -> str:
    return generate(scheme)


def obstacle(scheme: Scheme, fields: Tensor) -> str:
    """Why the kernels cannot run, beyond what holds for every operator; "" if they can."""
    from pinnfuse.kernels.jets.pointwise import NotGenerated

    try:
        source(scheme)
    except NotGenerated as reason:
        return str(reason)
    large = _kernels().too_large(fields.shape, fields.stride())
    return "a time level holds more than 2^31 values" if large else ""


def loss(scheme: Scheme, given: Inputs, keep: bool, recompute: bool) -> tuple[Tensor, Tensor, Tensor | None]:
    """Loss, per-equation means and, if `keep`, residuals [B, T', E, *space]."""
    parameters = _parameters(given)
    found = _Loss.apply(
        scheme,
        given.shape,
        keep,
        recompute or not torch.is_grad_enabled(),
        len(parameters),
        given.fields,
        given.equation_weights,
        given.weights,
        *parameters,
        *given.data.values(),
    )
    return found


def residuals(scheme: Scheme, given: Inputs) -> Tensor:
    """Residuals [B, T', E, *space], differentiable."""
    parameters = _parameters(given)
    return _Residuals.apply(
        scheme,
        given.shape,
        len(parameters),
        given.fields,
        given.equation_weights.detach(),
        *parameters,
        *given.data.values(),
    )


@lru_cache(maxsize=1024)
def _constant(value: float, dtype: torch.dtype, device: torch.device) -> Tensor:
    return torch.tensor(value, dtype=dtype, device=device)


def _parameters(given: Inputs) -> list[Tensor]:
    """On the device; constants are copied there once."""
    device = given.fields.device
    return [
        p.to(device, given.dtype) if isinstance(p, Tensor) else _constant(p, given.dtype, device)
        for p in given.parameters.values()
    ]


def _arguments(
    scheme: Scheme,
    shape: tuple[int, ...],
    fields: Tensor,
    equation_weights: Tensor,
    weights: Tensor | None,
    rest: Any,
    count: int,
) -> Arguments:
    if fields.stride(-1) != 1:
        fields = fields.contiguous()
    parameters, data = tuple(rest[:count]), tuple(rest[count:])
    return _kernels().Arguments(fields, parameters, data, weights, equation_weights, shape, scheme.walls)


def _coefficient_gradients(
    scheme: Scheme, a: Arguments, mode: int, upstream: Tensor, r: Tensor | None, need: tuple[bool, ...]
) -> list[Tensor | None]:
    if not any(need):
        return [None] * len(need)
    by_parameter, by_column = _kernels().coefficients(source(scheme), a, mode, upstream, r)
    found: list[Tensor | None] = [
        row if p.dim() else row.sum() for row, p in zip(by_parameter.unbind(0), a.parameters, strict=True)
    ]
    found += list(by_column.unbind(0))
    return [g if n else None for g, n in zip(found, need, strict=True)]


class _Loss(torch.autograd.Function):
    """(fields, equation weights, point weights, parameters, data) -> loss, per-equation means, residuals."""

    @staticmethod
    def forward(
        ctx: Any,
        scheme: Scheme,
        shape: tuple[int, ...],
        keep: bool,
        recompute: bool,
        count: int,
        fields: Tensor,
        equation_weights: Tensor,
        weights: Tensor | None,
        *rest: Tensor,
    ):
        ctx.set_materialize_grads(False)
        need = ctx.needs_input_grad[5:]
        store = any(need) and (not recompute or need[2])
        a = _arguments(scheme, shape, fields, equation_weights, weights, rest, count)
        loss, means, r = _kernels().loss(source(scheme), a, keep or store)
        ctx.scheme, ctx.shape, ctx.count, ctx.need = scheme, shape, count, need
        saved = (fields, equation_weights, weights, r if store else None, means if need[1] else None, *rest)
        ctx.save_for_backward(*saved)
        r = r if keep else None
        ctx.mark_non_differentiable(*(t for t in (means, r) if t is not None))
        return loss, means, r

    @staticmethod
    @first_order_only("FusedGridResidualLoss", USE_TORCH)
    def backward(ctx: Any, upstream: Tensor | None, *_unused: Tensor | None):
        nothing = (None,) * (5 + len(ctx.need))
        if upstream is None:
            return nothing
        fields, equation_weights, weights, r, means, *rest = ctx.saved_tensors
        a = _arguments(ctx.scheme, ctx.shape, fields, equation_weights, weights, rest, ctx.count)
        mode = RECOMPUTED if r is None else SAVED
        grad = _kernels().gradient(source(ctx.scheme), a, mode, upstream, r) if ctx.need[0] else None
        by_point = None
        if ctx.need[2]:
            scale = (equation_weights * upstream / a.count).reshape(-1, *(1,) * len(a.space))
            by_point = r.square() * scale
        others = _coefficient_gradients(ctx.scheme, a, mode, upstream, r, ctx.need[3:])
        return (*nothing[:5], grad, means * upstream if ctx.need[1] else None, by_point, *others)


class _Residuals(torch.autograd.Function):
    """(fields, parameters, data) -> residuals."""

    @staticmethod
    def forward(
        ctx: Any,
        scheme: Scheme,
        shape: tuple[int, ...],
        count: int,
        fields: Tensor,
        equation_weights: Tensor,
        *rest: Tensor,
    ):
        a = _arguments(scheme, shape, fields, equation_weights, None, rest, count)
        _, _, r = _kernels().loss(source(scheme), a, True)
        ctx.scheme, ctx.shape, ctx.count = scheme, shape, count
        ctx.save_for_backward(fields, equation_weights, *rest)
        return r

    @staticmethod
    @first_order_only("FusedGridResidualLoss", USE_TORCH)
    def backward(ctx: Any, upstream: Tensor):
        fields, equation_weights, *rest = ctx.saved_tensors
        a = _arguments(ctx.scheme, ctx.shape, fields, equation_weights, None, rest, ctx.count)
        need = ctx.needs_input_grad
        one = equation_weights  # not read
        grad = _kernels().gradient(source(ctx.scheme), a, SEEDED, one, upstream) if need[3] else None
        others = _coefficient_gradients(ctx.scheme, a, SEEDED, one, upstream, need[5:])
        return (None, None, None, grad, None, *others)
