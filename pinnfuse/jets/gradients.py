"""Gradients of a network's operands, added up while the adjoint runs: over all points, or point by point."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

from pinnfuse.jets.values import AffineJet, DenseJet, JetValue


@dataclass
class Gradients:
    """Accumulated gradients of the operands; None where none is wanted."""

    wanted: Sequence[bool]
    operands: list[Tensor | None] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.operands = [None] * len(self.wanted)

    def add(self, position: int, gradient: Tensor) -> None:
        current = self.operands[position]
        self.operands[position] = gradient if current is None else current.add_(gradient)

    def merge(self, other: Gradients) -> None:
        for position, gradient in enumerate(other.operands):
            if gradient is not None:
                self.add(position, gradient)

    def add_weight(self, position: int, grad: DenseJet, x: JetValue) -> None:
        """Of `y = x W^T`, for the gradient [K, n, out] of y."""
        self.add(position, _weight_gradient(grad, x))

    def add_points(self, position: int, gradient: Tensor, operand: Tensor) -> None:
        """A gradient [n, width] for each point, of an operand that was broadcast over the points."""
        self.add(position, fit(gradient.sum(0), operand))


class PointGradients(Gradients):
    """Gradients that are not summed over the points: [n, *shape of the operand]."""

    def add_weight(self, position: int, grad: DenseJet, x: JetValue) -> None:
        by_point = grad.data.permute(1, 2, 0)
        if isinstance(x, DenseJet):
            self.add(position, by_point @ x.data.transpose(0, 1))
        else:
            value = by_point[..., :1] * x.value.unsqueeze(1)
            self.add(position, value + by_point[..., 1:] @ x.rows)

    def add_points(self, position: int, gradient: Tensor, operand: Tensor) -> None:
        n = len(gradient)
        total = gradient.sum_to_size(n, operand.numel()).reshape(n, *operand.shape)
        self.add(position, total.clone())  # not the memory of `gradient`, which is used again


def _weight_gradient(grad: DenseJet, x: JetValue) -> Tensor:
    """sum over channels and points of grad^T a, [out, in]."""
    if isinstance(x, AffineJet):
        return torch.addmm(grad.block(1, len(grad.data)).sum(1).t() @ x.rows, grad.channels[0].t(), x.value)
    # channel by channel: one product over all rows loses a digit in float32 where there are very many
    return torch.bmm(grad.transposed, x.data).sum(0)


def fit(gradient: Tensor, operand: Tensor) -> Tensor:
    """Sum a gradient [width] to the shape of the operand that was broadcast."""
    return (
        gradient.sum_to_size(operand.shape) if operand.dim() <= 1 else gradient.unsqueeze(0).sum_to_size(operand.shape)
    )
