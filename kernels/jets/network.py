"""A recognised network as the kernels see it: hidden layers of one padded width H, stacked weights, activations."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from pinnfuse.jets.program import Affine, Program
from pinnfuse.kernels.jets.pointwise import NotGenerated


@dataclass(frozen=True)
class Stack:
    """`affine (unary affine)+`.

    Attributes:
        layers: the affine operations, first to last; their operands are positions in the operand list.
        activations: name of the activation after each but the last layer.
        widths: of the points, every hidden layer, and the output.
    """

    layers: tuple[Affine, ...]
    activations: tuple[str, ...]
    widths: tuple[int, ...]

    @property
    def hidden(self) -> int:
        """Number of hidden-to-hidden layers."""
        return len(self.layers) - 2


def dense_stack(program: Program) -> Stack:
    """The stack of a program.

    Raises:
        NotGenerated: the program is something else.
    """
    found = program.dense_stack()
    if found is None:
        names = sorted({type(op).__name__ for op in program.operations} - {"Affine", "Unary"})
        what = ", ".join(names) or "another order"
        raise NotGenerated(f"the network is not a plain stack of linear layers and activations (it has {what})")
    layers, unary = found
    if not unary:
        raise NotGenerated("the network has no hidden layer")
    if any(u.exponent is not None for u in unary):
        raise NotGenerated("a power as activation has no Triton code")
    widths = (program.widths[0], *(program.widths[i + 1] for i in range(0, len(program.operations), 2)))
    return Stack(layers, tuple(u.name for u in unary), widths)


@dataclass(frozen=True)
class Operands:
    """Padded, contiguous: input weights [H, d] and bias [H], hidden [L, H, H] and [L, H], output [m, H], [m]."""

    first: Tensor
    first_bias: Tensor
    hidden: Tensor
    hidden_bias: Tensor
    last: Tensor
    last_bias: Tensor


def gather(stack: Stack, operands: Sequence[Tensor], width: int) -> Operands:
    """Collect a stack's operands; one copy each at most."""
    tensors = [[operands[i].detach() for i in layer.operands] for layer in stack.layers]
    like = tensors[0][0]

    def weight(i: int) -> Tensor:
        w = tensors[i][0]
        rows = w.shape[0] if i == len(tensors) - 1 else width
        columns = w.shape[1] if i == 0 else width
        return _pad(w, rows, columns)

    def bias(i: int) -> Tensor:
        rows = stack.widths[-1] if i == len(tensors) - 1 else width
        if len(tensors[i]) < 2:
            return like.new_zeros(rows)
        return (
            functional.pad(tensors[i][1], (0, rows - tensors[i][1].shape[0]))
            if tensors[i][1].shape[0] < rows
            else tensors[i][1]
        )

    inner = range(1, len(tensors) - 1)
    hidden = torch.stack([weight(i) for i in inner]) if inner else like.new_empty(0, width, width)
    hidden_bias = torch.stack([bias(i) for i in inner]) if inner else like.new_empty(0, width)
    last = len(tensors) - 1
    return Operands(
        weight(0).contiguous(),
        bias(0).contiguous(),
        hidden,
        hidden_bias,
        weight(last).contiguous(),
        bias(last).contiguous(),
    )


def _pad(w: Tensor, rows: int, columns: int) -> Tensor:
    if tuple(w.shape) == (rows, columns):
        return w
    return functional.pad(w, (0, columns - w.shape[1], 0, rows - w.shape[0]))
