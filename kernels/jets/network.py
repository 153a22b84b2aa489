"""A recognised network as the kernels see it: hidden layers of one padded width H, stacked weights, activations."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from pinnfuse.jets.program import Affine, Concatenate, Multiply, Operation, Program, Unary
from pinnfuse.kernels.jets.pointwise import NotGenerated
from pinnfuse.remembered import hashed_once


@dataclass(frozen=True)
class Tail:
    """What follows the stack: operations without operands on its output and on values that depend on the points alone.

    Attributes:
        operations: (value, operation) in order; the last one is the network's output.
        raw: the value that the stack's output is.
        given: the values of the points that are read, side by side, or None if there are none.
        columns: (value, first column of it in `given`).
        widths: number of columns of every value.
    """

    operations: tuple[tuple[int, Operation], ...]
    raw: int
    given: Program | None
    columns: tuple[tuple[int, int], ...]
    widths: tuple[int, ...]


@hashed_once
@dataclass(frozen=True)
class Stack:
    """`head (unary affine)+ tail`; the head is one affine layer of the points or any small program (an embedding).

    Attributes:
        layers: the affine operations, a plain head first; their operands are positions in the operand list.
        activations: name of the activation before each layer of the stack but a plain head.
        widths: of the points, of every hidden layer, and of the stack's output.
        head: None if plain; else the program whose output is the first hidden layer before its activation.
        tail: the output transform, if there is one.
    """

    layers: tuple[Affine, ...]
    activations: tuple[str, ...]
    widths: tuple[int, ...]
    head: Program | None = None
    tail: Tail | None = None

    @property
    def hidden(self) -> int:
        """Number of hidden-to-hidden layers."""
        return len(self.activations) - 1

    @property
    def hidden_layers(self) -> tuple[Affine, ...]:
        return self.layers[0 if self.head is not None else 1 : -1]

    @property
    def folds(self) -> bool:
        """Whether the head is an affine map of the points (scaled inputs, say), so that one layer can stand for it."""
        return self.head is not None and not any(isinstance(op, Unary | Multiply) for op in self.head.operations)

    def layer(self, i: int) -> Affine | None:
        """Layer i of 0 .. hidden + 1; None for a head that is not plain."""
        return self.layers[i] if self.head is None else self.layers[i - 1] if i else None


@lru_cache(maxsize=128)
def dense_stack(program: Program) -> Stack:
    """The stack of a program, with what stands before and behind it.

    Raises:
        NotGenerated: there is none, it is the smaller part of the network, or what is behind it is more than pointwise.
    """
    operations, widths = program.operations, program.widths
    readers = Counter(value for op in operations for value in op.inputs)
    layers: list[Affine] = []
    unaries: list[Unary] = []
    raw = bottom = 1 + max((i for i, op in enumerate(operations) if isinstance(op, Affine)), default=-1)
    hidden: list[int] = [widths[raw]]
    while bottom > 0:  # `bottom` is the output of the lowest layer so far
        affine = operations[bottom - 1]
        unary = operations[affine.inputs[0] - 1] if affine.inputs[0] > 0 else None
        if not (isinstance(affine, Affine) and isinstance(unary, Unary)):
            break
        if readers[affine.inputs[0]] > 1 or (bottom != raw and readers[bottom] > 1):
            break
        layers.insert(0, affine)
        unaries.insert(0, unary)
        bottom = unary.inputs[0]
        hidden.insert(0, widths[bottom])
    before = needed_by(program, bottom)
    if len(layers) < max(1, sum(isinstance(operations[i], Affine) for i in before)):
        names = sorted({type(op).__name__ for op in operations} - {"Affine", "Unary"})
        what = ", ".join(names) or "no hidden layer"
        raise NotGenerated(f"the network contains no plain stack of linear layers and activations ({what})")
    if any(u.exponent is not None for u in unaries):
        raise NotGenerated("a power as activation has no Triton code")
    activations, tail = tuple(u.name for u in unaries), tail_of(program, raw)
    lowest = operations[before[-1]] if before else None
    if len(before) == 1 and isinstance(lowest, Affine):
        return Stack((lowest, *layers), activations, (widths[0], *hidden), None, tail)
    return Stack(tuple(layers), activations, (widths[0], *hidden), _part(program, before, bottom), tail)


def needed_by(program: Program, value: int) -> list[int]:
    """Positions of the operations that a value is made of."""
    needed = {value}
    for i in reversed(range(value)):
        if i + 1 in needed:
            needed.update(program.operations[i].inputs)
    return [i for i in range(value) if i + 1 in needed]


def _part(program: Program, positions: Sequence[int], *results: int) -> Program:
    """The program of some operations, renumbered; several results, or one that is not the last, are concatenated."""
    number = {0: 0} | {position + 1: i + 1 for i, position in enumerate(positions)}
    operations: list[Operation] = []
    for i in positions:
        op = program.operations[i]
        inputs: Any = tuple(number[j] for j in op.inputs)
        operations.append(replace(op, inputs=inputs))
    widths = [program.widths[0], *(program.widths[i + 1] for i in positions)]
    if len(results) > 1 or number[results[0]] != len(positions):
        operations.append(Concatenate(tuple(number[value] for value in results)))
        widths.append(sum(program.widths[value] for value in results))
    return Program(tuple(operations), tuple(widths))


def tail_of(program: Program, raw: int) -> Tail | None:
    """The operations behind value `raw`."""
    if raw == len(program.operations):
        return None
    behind, operations = {raw}, []
    passive = {0}
    for value, op in enumerate(program.operations, start=1):
        if behind & set(op.inputs):
            behind.add(value)
            operations.append((value, op))
        elif not op.operands and passive >= set(op.inputs):
            passive.add(value)
    if any(op.operands for _, op in operations):
        raise NotGenerated("the operations behind the last layer contain trained or stored tensors")
    read = sorted({j for _, op in operations for j in op.inputs} - behind)
    if not passive >= set(read):
        raise NotGenerated("the operations behind the last layer read a hidden layer")
    columns, start = [], 0
    for value in read:
        columns.append((value, start))
        start += program.widths[value]
    needed = sorted({i for value in read for i in needed_by(program, value)})
    given = _part(program, needed, *read) if read else None
    return Tail(tuple(operations), raw, given, tuple(columns), program.widths)


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
    """A stack's operands, one copy each at most. Without a plain head, `first` has no columns."""
    like = operands[stack.layers[-1].operands[0]]
    last = stack.hidden + 1

    def weight(i: int) -> Tensor:
        layer = stack.layer(i)
        if layer is None:
            return like.new_empty(width, 0)
        w = operands[layer.operands[0]]
        return _pad(w, w.shape[0] if i == last else width, w.shape[1] if i == 0 else width)

    def bias(i: int) -> Tensor:
        layer = stack.layer(i)
        rows = stack.widths[-1] if i == last else width
        if layer is None:  # nobody reads it
            return like.new_empty(rows)
        if len(layer.operands) < 2:
            return like.new_zeros(rows)
        b = operands[layer.operands[1]]
        return functional.pad(b, (0, rows - b.shape[0])) if b.shape[0] < rows else b

    inner = range(1, last)
    hidden = torch.stack([weight(i) for i in inner]) if inner else like.new_empty(0, width, width)
    hidden_bias = torch.stack([bias(i) for i in inner]) if inner else like.new_empty(0, width)
    ends = [t.detach().contiguous() for t in (weight(0), bias(0), weight(last), bias(last))]
    return Operands(ends[0], ends[1], hidden, hidden_bias, ends[2], ends[3])


def _pad(w: Tensor, rows: int, columns: int) -> Tensor:
    if tuple(w.shape) == (rows, columns):
        return w
    return functional.pad(w, (0, columns - w.shape[1], 0, rows - w.shape[0]))
