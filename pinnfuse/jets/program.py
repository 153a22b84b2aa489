"""A recognised network as a short list of operations on jets.

Every operation names its inputs (values of earlier operations, 0 is the points) and its operands (tensors that do not
depend on the points: weights, biases, scales). Operands are computed by ordinary autograd before the program runs, so
that weight normalisation, factorisation, `parametrize` or a hypernetwork need no rule of their own.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from pinnfuse.remembered import hashed_once


@dataclass(frozen=True)
class Affine:
    """`y = x W^T + b`; operands: W [out, in] and, if `bias`, b [out]."""

    inputs: tuple[int]
    operands: tuple[int, ...]


@dataclass(frozen=True)
class Scale:
    """`y = x * c`, c a number or an operand that broadcasts over the points ([in], [1, in] or a scalar)."""

    inputs: tuple[int]
    operands: tuple[int, ...] = ()
    factor: float = 1.0


@dataclass(frozen=True)
class Shift:
    """`y = x + c`, as `Scale`."""

    inputs: tuple[int]
    operands: tuple[int, ...] = ()
    amount: float = 0.0


@dataclass(frozen=True)
class Unary:
    """`y = s(x)` elementwise, s a name in `pinnfuse.jets.unary` or the power `exponent`."""

    inputs: tuple[int]
    name: str
    exponent: float | None = None
    operands: tuple[int, ...] = ()


@dataclass(frozen=True)
class Add:
    """`y = a + sign * b`; one of the two may have width 1."""

    inputs: tuple[int, int]
    sign: int = 1
    operands: tuple[int, ...] = ()


@dataclass(frozen=True)
class Multiply:
    """`y = a * b` elementwise; one of the two may have width 1."""

    inputs: tuple[int, int]
    operands: tuple[int, ...] = ()


@dataclass(frozen=True)
class Concatenate:
    """Columns side by side."""

    inputs: tuple[int, ...]
    operands: tuple[int, ...] = ()


@dataclass(frozen=True)
class Select:
    """Some columns, in order."""

    inputs: tuple[int]
    columns: tuple[int, ...] = ()
    operands: tuple[int, ...] = ()


Operation = Affine | Scale | Shift | Unary | Add | Multiply | Concatenate | Select


@hashed_once
@dataclass(frozen=True)
class Program:
    """Operations in order; value 0 is the points, value i the result of operation i - 1; the last one is the output.

    `widths[i]` is the number of columns of value i.
    """

    operations: tuple[Operation, ...]
    widths: tuple[int, ...] = field(default=())

    @property
    def output_width(self) -> int:
        return self.widths[-1]

    def last_use(self) -> dict[int, int]:
        """Value -> position of the operation that reads it last."""
        return {value: i for i, op in enumerate(self.operations) for value in op.inputs}

    def dense_stack(self) -> tuple[tuple[Affine, ...], tuple[Unary, ...]] | None:
        """Layers and activations if this is `affine (unary affine)*`, else None."""
        for i, op in enumerate(self.operations):
            expected = Affine if i % 2 == 0 else Unary
            if not isinstance(op, expected) or op.inputs != (i,):
                return None
        if len(self.operations) % 2 == 0:
            return None
        layers = tuple(op for op in self.operations if isinstance(op, Affine))
        return layers, tuple(op for op in self.operations if isinstance(op, Unary))
