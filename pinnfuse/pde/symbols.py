"""What an equation is written with: coordinates, fields, parameters, data columns, and the derivative operators."""

from __future__ import annotations

import math
import numbers
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import sympy
from sympy.core.function import AppliedUndef

from pinnfuse.pde.jet import MAX_ORDER, split_names

__all__ = ["D", "Data", "Parameter", "biharmonic", "coordinates", "field", "laplacian", "symbol"]


def symbol(name: str) -> sympy.Symbol:
    """The sympy symbol of a coordinate, parameter, data column or jet; all are real numbers."""
    return sympy.Symbol(name, real=True)


class DataSymbol(sympy.Symbol):
    """The symbol of a data column. Sympy takes it for a constant; `D` refuses to differentiate it."""


def refuse_data(expression: sympy.Expr) -> None:
    """A data column is known only at the points.

    Raises:
        ValueError: one occurs in `expression`, which is to be differentiated.
    """
    for column in sorted(expression.atoms(DataSymbol), key=str):
        raise ValueError(
            f"data column {column.name!r} has no known derivative, so it cannot stand inside a derivative. Apply the "
            "product rule yourself and give its derivative as another data column."
        )


class _Named:
    """Arithmetic with sympy expressions, as if the object were its symbol."""

    name: str

    @property
    def symbol(self) -> sympy.Symbol:
        """The sympy symbol of this name."""
        return symbol(self.name)

    def _sympy_(self) -> sympy.Symbol:
        return self.symbol

    def __add__(self, other: Any) -> Any:
        return self.symbol + other

    def __radd__(self, other: Any) -> Any:
        return other + self.symbol

    def __sub__(self, other: Any) -> Any:
        return self.symbol - other

    def __rsub__(self, other: Any) -> Any:
        return other - self.symbol

    def __mul__(self, other: Any) -> Any:
        return self.symbol * other

    def __rmul__(self, other: Any) -> Any:
        return other * self.symbol

    def __truediv__(self, other: Any) -> Any:
        return self.symbol / other

    def __rtruediv__(self, other: Any) -> Any:
        return other / self.symbol

    def __pow__(self, other: Any) -> Any:
        return self.symbol**other

    def __rpow__(self, other: Any) -> Any:
        return other**self.symbol

    def __neg__(self) -> Any:
        return -self.symbol


@dataclass(frozen=True)
class Parameter(_Named):
    """A number in the equations: a constant, or trained with the network (an inverse problem).

    Args:
        name: how the equations call it.
        value: the constant, or where training starts.
        trainable: the loss module then holds it as an `nn.Parameter`.
        positive: training keeps it > 0.

    Raises:
        ValueError: the value is not a finite real number, or not > 0 although `positive`.
    """

    name: str
    value: float
    trainable: bool = False
    positive: bool = False

    def __post_init__(self) -> None:
        value = self.value
        real = isinstance(value, numbers.Real) or (isinstance(value, sympy.Expr) and value.is_real and value.is_number)
        if not real or isinstance(value, bool):
            raise ValueError(
                f"Parameter: `value` of {self.name!r} must be a real number; got {value!r} ({type(value).__name__})."
            )
        object.__setattr__(self, "value", float(value))
        if not math.isfinite(self.value):
            raise ValueError(f"Parameter: `value` of {self.name!r} must be finite; got {self.value}.")
        if self.positive and self.value <= 0:
            raise ValueError(
                f"Parameter: {self.name!r} is declared positive but its value is {self.value}. "
                "Start from a value > 0, or leave positive=False."
            )


@dataclass(frozen=True)
class Data(_Named):
    """A column of numbers that comes with the points of a batch, one per point; it has no known derivatives.

    Args:
        name: how the equations call it, and the key in the loss's `data`.
    """

    name: str

    @property
    def symbol(self) -> sympy.Symbol:
        """The sympy symbol of this column."""
        return DataSymbol(self.name, real=True)


def coordinates(names: str | Sequence[str]) -> tuple[sympy.Symbol, ...]:
    """Coordinate symbols: `t, x = coordinates("t x")`. Always a tuple: `(x,) = coordinates("x")`."""
    return tuple(symbol(name) for name in split_names(names))


def field(name: str, *arguments: sympy.Symbol) -> AppliedUndef:
    """A field for equations in sympy: `u = field("u", t, x)`, then `u.diff(t)` or `D(u**2 / 2, x)`.

    Raises:
        ValueError: an argument is not a coordinate symbol.
    """
    if not arguments or not all(isinstance(argument, sympy.Symbol) for argument in arguments):
        raise ValueError(
            f'field: {name!r} needs its coordinates, e.g. t, x = coordinates("t x"); field({name!r}, t, x); '
            f"got {arguments!r}."
        )
    return sympy.Function(name, real=True)(*arguments)


def D(expression: Any, *variables: Any) -> sympy.Expr:  # noqa: N802 - the name in the equation language
    """Derivative that stays as written: D(u, x), D(u, x, 2), D(u, x, y), D(u**2 / 2, x).

    Args:
        expression: what is differentiated: a field, or any expression (a conservative form).
        variables: coordinates, each optionally followed by how often.

    Raises:
        ValueError: no variable, something else than a coordinate, a count outside 1..8, or a data column inside.
    """
    expression = sympy.sympify(expression)
    refuse_data(expression)
    counts: list[tuple[sympy.Symbol, int]] = []
    if isinstance(expression, sympy.Derivative):  # D(D(u, x), t) is D(u, t, x)
        expression, inner = expression.expr, expression.variable_count
    else:
        inner = ()
    for variable in map(sympy.sympify, variables):
        if isinstance(variable, sympy.Symbol):
            counts.append((variable, 1))
        elif isinstance(variable, sympy.Integer) and counts and 1 <= variable <= MAX_ORDER:
            counts[-1] = (counts[-1][0], int(variable))
        else:
            raise ValueError(
                f"D takes an expression and coordinates, each followed by an optional count from 1 to {MAX_ORDER}: "
                f"D(u, x, 2); {str(variable)[:40]!r} is neither."
            )
    if not counts:
        raise ValueError("D needs a coordinate: D(u, x).")
    total: dict[sympy.Symbol, int] = {}
    for variable, count in (*inner, *counts):
        total[variable] = total.get(variable, 0) + int(count)
    if sum(total.values()) > MAX_ORDER:
        raise ValueError(f"D: the order is {sum(total.values())}; at most {MAX_ORDER} is supported.")
    # sympy does not sort what it does not carry out, and u_xt must be u_tx
    return sympy.Derivative(expression, *sorted(total.items(), key=lambda pair: pair[0].name), evaluate=False)


def laplacian(expression: Any, *variables: sympy.Symbol) -> sympy.Expr:
    """Sum of second derivatives, each kept as written.

    Args:
        expression: a field applied to its coordinates, or any expression.
        variables: the coordinates; without any, all those the expression depends on but one named "t" (time).
    """
    expression = sympy.sympify(expression)
    return sympy.Add(*(D(expression, x, 2) for x in _space(expression, variables)))


def biharmonic(expression: Any, *variables: sympy.Symbol) -> sympy.Expr:
    """The Laplacian of the Laplacian, sum_ij d_ii d_jj, over the same coordinates as `laplacian`."""
    expression = sympy.sympify(expression)
    space = _space(expression, variables)
    mixed = (2 * D(expression, x, 2, y, 2) for i, x in enumerate(space) for y in space[i + 1 :])
    return sympy.Add(*(D(expression, x, 4) for x in space), *mixed)


def _space(expression: sympy.Expr, variables: Sequence[sympy.Symbol]) -> Sequence[sympy.Symbol]:
    if not variables:
        arguments = {x: None for f in expression.atoms(AppliedUndef) for x in f.args}
        variables = sorted((x for x in arguments if str(x) != "t"), key=str)
    if not variables or not all(isinstance(variable, sympy.Symbol) for variable in variables):
        raise ValueError("laplacian and biharmonic need space coordinates: laplacian(u), laplacian(u, x, y).")
    if len(set(variables)) != len(variables):
        raise ValueError("laplacian and biharmonic: a coordinate is named twice.")
    return variables
