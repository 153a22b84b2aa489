"""A recognised network as the kernels see it: hidden layers of one padded width H, stacked weights, activations."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from pinnfuse.jets.program import Affine, Program, Unary
from pinnfuse.kernels.jets.pointwise import NotGenerated


@dataclass(frozen=True)
class Stack:
    """`head (unary affine)+`, where the head is one affine layer of the points, or any small program (an embedding).

    Attributes:
        layers: the affine operations, a plain head first; their operands are positions in the operand list.
        activations: name of the activation before each layer of the stack but a plain head.
        widths: of the points, of every hidden layer, and of the output.
        head: None if plain; else the program whose output is the first hidden layer before its activation.
    """

    layers: tuple[Affine, ...]
    activations: tuple[str, ...]
    widths: tuple[int, ...]
    head: Program | None = None

    @property
    def hidden(self) -> int:
        """Number of hidden-to-hidden layers."""
        return len(self.activations) - 1

    def layer(self, i: int) -> Affine | None:
        """Layer i of 0 .. hidden + 1; None for a head that is not plain."""
        return self.layers[i] if self.head is None else self.layers[i - 1] if i else None


def dense_stack(program: Program) -> Stack:
    """The stack at the end of a program.

    Raises:
        NotGenerated: there is none, or it is the smaller part of the network.
    """
    operations = program.operations
    start = len(operations)
    while start >= 2:
        unary, affine = operations[start - 2], operations[start - 1]
        chained = unary.inputs == (start - 2,) and affine.inputs == (start - 1,)
        if not (isinstance(affine, Affine) and isinstance(unary, Unary) and chained):
            break
        start -= 2
    tail, before = operations[start:], operations[:start]
    layers = tuple(op for op in tail if isinstance(op, Affine))
    unaries = tuple(op for op in tail if isinstance(op, Unary))
    if len(layers) < max(1, sum(isinstance(op, Affine) for op in before)):
        names = sorted({type(op).__name__ for op in operations} - {"Affine", "Unary"})
        what = ", ".join(names) or "no hidden layer"
        raise NotGenerated(f"the network does not end in a plain stack of linear layers and activations ({what})")
    if any(u.exponent is not None for u in unaries):
        raise NotGenerated("a power as activation has no Triton code")
    widths = (program.widths[0], *(program.widths[i] for i in range(start, len(operations) + 1, 2)))
    names_ = tuple(u.name for u in unaries)
    if len(before) == 1 and isinstance(before[0], Affine):
        return Stack((before[0], *layers), names_, widths)
    return Stack(layers, names_, widths, Program(before, program.widths[: start + 1]))


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
    """Collect a stack's operands; one copy each at most. Without a plain head, `first` has no columns."""
    like = operands[stack.layers[-1].operands[0]]
    last = stack.hidden + 1

    def weight(i: int) -> Tensor:
        layer = stack.layer(i)
        if layer is None:
            return like.new_empty(width, 0)
        w = operands[layer.operands[0]].detach()
        return _pad(w, w.shape[0] if i == last else width, w.shape[1] if i == 0 else width)

    def bias(i: int) -> Tensor:
        layer = stack.layer(i)
        rows = stack.widths[-1] if i == last else width
        if layer is None or len(layer.operands) < 2:
            return like.new_zeros(rows)
        b = operands[layer.operands[1]].detach()
        return functional.pad(b, (0, rows - b.shape[0])) if b.shape[0] < rows else b

    inner = range(1, last)
    hidden = torch.stack([weight(i) for i in inner]) if inner else like.new_empty(0, width, width)
    hidden_bias = torch.stack([bias(i) for i in inner]) if inner else like.new_empty(0, width)
    ends = [t.contiguous() for t in (weight(0), bias(0), weight(last), bias(last))]
    return Operands(ends[0], ends[1], hidden, hidden_bias, ends[2], ends[3])


def _pad(w: Tensor, rows: int, columns: int) -> Tensor:
    if tuple(w.shape) == (rows, columns):
        return w
    return functional.pad(w, (0, columns - w.shape[1], 0, rows - w.shape[0]))
