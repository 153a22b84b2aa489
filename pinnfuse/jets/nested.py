"""Derivatives by nested `torch.autograd.grad`: what most PINN code does, and the baseline of every quoted speed-up.

Each first derivative of a field is one reverse pass that gives all coordinates at once; higher ones differentiate the
result again. Nothing is recomputed that was asked for already.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from torch import Tensor, nn

from pinnfuse.jets.decomposed import Decomposed
from pinnfuse.jets.space import MultiIndex


def nested_outputs(
    net: nn.Module,
    points: Tensor,
    requests: Sequence[tuple[MultiIndex, int]],
    check: Callable[[Tensor, int], None],
) -> Tensor:
    """[R, N]: column `c` of `d^alpha net` for each request (alpha, c), with a graph that can be differentiated again.

    `check` sees the value of the network first.
    """
    with torch.inference_mode(False), torch.enable_grad(), Decomposed():
        # inside inference_mode nothing would be recorded, and every derivative would be zero
        own = points.clone() if points.is_inference() else points
        x = own if own.requires_grad else own.detach().requires_grad_(True)
        value = call(net, x)
        check(value, points.shape[0])
        known: dict[tuple[MultiIndex, int], Tensor] = {}
        zero = (0,) * points.shape[1]
        for alpha, column in requests:
            _derivative(alpha, column, zero, value, x, known)
        return torch.stack([known[request] for request in requests])


def call(net: nn.Module, points: Tensor) -> Tensor:
    """`net(points)`, with a clearer error where its layers do not fit the points."""
    try:
        return net(points)
    except RuntimeError as error:
        if "cannot be multiplied" not in str(error):
            raise
        raise ValueError(
            f"`net` must run on points [N, {points.shape[1]}], one column per coordinate; its layers do not fit: "
            f"{error}. Change its first layer, or the coordinates."
        ) from error


def _derivative(
    alpha: MultiIndex,
    column: int,
    zero: MultiIndex,
    value: Tensor,
    x: Tensor,
    known: dict[tuple[MultiIndex, int], Tensor],
) -> Tensor:
    if (alpha, column) not in known:
        if alpha == zero:
            known[alpha, column] = value[:, column]
        else:
            last = max(i for i, a in enumerate(alpha) if a)
            lower = tuple(a - (i == last) for i, a in enumerate(alpha))
            below = _derivative(lower, column, zero, value, x, known)
            gradient = _gradient(below, x)
            for i in range(len(alpha)):
                raised = tuple(a + (i == j) for j, a in enumerate(lower))
                known.setdefault((raised, column), gradient[:, i])
    return known[alpha, column]


def _gradient(y: Tensor, x: Tensor) -> Tensor:
    if not y.requires_grad:  # a constant derivative, of a linear network say
        return torch.zeros_like(x)
    (gradient,) = torch.autograd.grad(y, x, torch.ones_like(y), create_graph=True, allow_unused=True)
    return torch.zeros_like(x) if gradient is None else gradient
