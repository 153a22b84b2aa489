"""Engines as autograd functions: a loss whose gradients are complete when the forward pass ends, and outputs."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from pinnfuse import precision
from pinnfuse.first_order import first_order_only
from pinnfuse.jets.engine import JetEngine, LossTask

_first_order_only = first_order_only(
    "a fused residual",
    "Use backend='autograd' for second derivatives, or ask for a higher jet instead of differentiating twice.",
)


class FusedLoss(torch.autograd.Function):
    """(equation weights, point weights, trained parameters, operands) -> loss, per-equation means, residuals."""

    @staticmethod
    def forward(ctx: Any, engine: JetEngine, task: LossTask, differentiate: bool, *tensors: Tensor | None):
        ctx.set_materialize_grads(False)
        trained = len(task.trained)
        need_equation, need_point, *others = ctx.need = ctx.needs_input_grad[3:]
        need_trained, need_operands = others[:trained], others[trained:]
        wanted = [differentiate and n for n in need_operands]
        result = engine.loss(task, wanted, differentiate and any(need_trained))
        ctx.gradients = (*result.trained_gradients, *result.operand_gradients) if differentiate else ()
        squares = None
        if differentiate and need_point:
            assert result.residuals is not None
            squares = result.residuals.square() * task.equation_weights / task.points.shape[0]
        ctx.save_for_backward(result.per_equation if differentiate and need_equation else None, squares)
        residuals = result.residuals if task.keep_residuals else None
        ctx.mark_non_differentiable(*(t for t in (result.per_equation, residuals) if t is not None))
        return result.loss, result.per_equation, residuals

    @staticmethod
    @_first_order_only
    def backward(ctx: Any, grad_loss: Tensor | None, *_unused: Tensor | None):
        if grad_loss is None:
            return (None,) * (3 + len(ctx.need))
        per_equation, squares = ctx.saved_tensors
        scaled = [g if n else None for g, n in zip(ctx.gradients, ctx.need[2:], strict=True)]
        present = [g for g in scaled if g is not None]
        products = iter(torch._foreach_mul(present, grad_loss) if present else ())
        scaled = [None if g is None else next(products) for g in scaled]
        return (
            None,
            None,
            None,
            None if per_equation is None else per_equation * grad_loss,
            None if squares is None else squares * grad_loss,
            *scaled,
        )


class FusedJets(torch.autograd.Function):
    """Operands -> requested channels [R, N]. The backward recomputes: nothing of size points x width is kept.

    It does so in the precision of the forward, wherever `backward()` is called.
    """

    @staticmethod
    def forward(ctx: Any, engine: JetEngine, points: Tensor, *operands: Tensor) -> Tensor:
        ctx.engine, ctx.precision = engine, precision.resolve(None, points.dtype)
        ctx.save_for_backward(points, *operands)  # operands: so that autograd notices when one was changed in place
        return engine.outputs(points)

    @staticmethod
    @_first_order_only
    def backward(ctx: Any, gradient: Tensor):
        points = ctx.saved_tensors[0]
        with precision.no_autocast(points.device.type), precision.torch_matmul(ctx.precision):
            return None, None, *ctx.engine.adjoint(points, gradient, ctx.needs_input_grad[2:])
