"""Sympy expressions as one Python function on tensors: a flat list of torch operations without repeats.

Equal subexpressions are computed once. Constants stay Python floats with all digits of double precision, which torch
takes into the dtype of the tensor beside them: no constant is rounded to float32 on its way into a float64 residual,
and no float32 tensor is promoted. Nothing reads a value back from the device, and nothing depends on the values, so the
function can be traced by torch.fx and compiled.
"""

from __future__ import annotations

import itertools
import math
import operator
from collections.abc import Callable, Sequence
from typing import Any

import sympy
import torch
from torch import Tensor

from pinnfuse.pde.functions import CLASSES

__all__ = ["torch_function"]

_SMALL_POWER = 8  # integer powers up to here are products; torch.pow is slower and less exact


def _maximum_number(x: Any, c: float) -> Any:
    return torch.clamp(x, min=c)


def _minimum_number(x: Any, c: float) -> Any:
    return torch.clamp(x, max=c)


def _heaviside(x: Any, at_zero: float) -> Any:
    """0, `at_zero` or 1; torch.heaviside has no derivative, sign has the derivative zero."""
    sign = torch.sign(x)
    step = 0.5 * sign + 0.5
    return step if at_zero == 0.5 else step + (at_zero - 0.5) * (1.0 - sign * sign)


def _number_power(x: Any, c: float) -> Any:
    return torch.pow(c, x)


def _over(x: Any, c: float) -> Any:
    return c / x


def _fill(x: Any, c: float) -> Any:
    return x.new_full((), c)


Instruction = tuple[Callable[..., Any], tuple[int, ...], tuple[float, ...]]


def torch_function(
    expressions: Sequence[sympy.Expr], arguments: Sequence[sympy.Symbol]
) -> Callable[..., tuple[Tensor, ...]]:
    """One function that evaluates several expressions.

    Args:
        expressions: in the language of `PDE.jet_equations`; only `arguments` may be free.
        arguments: symbols, in the order of the function's arguments.

    Returns:
        f(*tensors) -> one tensor per expression. The tensors are broadcast against each other and share a dtype and
        device; an expression without symbols comes back as a 0-d tensor like the first argument. With tensors
        replaced by torch.fx proxies the call is traced.

    Raises:
        ValueError: a symbol that is no argument, a function outside the language, a constant that is not finite, no
            arguments, or (from f) another number of tensors.
    """
    program = _Program(arguments)
    outputs = tuple(program.output(sympy.sympify(expression)) for expression in expressions)
    code, names = tuple(program.code), ", ".join(map(str, arguments))
    count = len(arguments)

    def evaluate(*tensors: Tensor) -> tuple[Tensor, ...]:
        if len(tensors) != count:
            raise ValueError(f"this torch_function takes {count} tensors ({names}); got {len(tensors)}.")
        values: list[Any] = list(tensors)
        for function, slots, constants in code:
            values.append(function(*[values[slot] for slot in slots], *constants))
        return tuple([values[slot] for slot in outputs])

    return evaluate


class _Program:
    """Slots 0..n-1 hold the arguments, each instruction fills the next one. An operand is a slot or a number."""

    def __init__(self, arguments: Sequence[sympy.Symbol]) -> None:
        if not arguments:
            raise ValueError("torch_function: `arguments` is empty; a tensor is needed for dtype and device.")
        if len(set(arguments)) != len(arguments):
            raise ValueError(f"torch_function: `arguments` repeats a symbol: {list(arguments)}.")
        self.arguments = tuple(arguments)
        self.code: list[Instruction] = []
        self.slots: dict[Instruction, int] = {}
        self.operands: dict[sympy.Expr, int | float] = {s: i for i, s in enumerate(arguments)}

    def emit(self, function: Callable[..., Any], *operands: int, constants: tuple[float, ...] = ()) -> int:
        instruction = (function, operands, constants)
        if instruction not in self.slots:
            self.slots[instruction] = len(self.arguments) + len(self.code)
            self.code.append(instruction)
        return self.slots[instruction]

    def output(self, expression: sympy.Expr) -> int:
        operand = self.operand(expression)
        return self.emit(_fill, 0, constants=(operand,)) if isinstance(operand, float) else operand

    def operand(self, expression: sympy.Expr) -> int | float:
        if expression not in self.operands:
            self.operands[expression] = self.lower(expression)
        return self.operands[expression]

    def lower(self, expression: sympy.Expr) -> int | float:
        if not expression.free_symbols:
            return _number(expression)
        if expression.is_Symbol:
            raise ValueError(
                f"torch_function: {expression} is free in an expression but not among `arguments` "
                f"({', '.join(map(str, self.arguments))})."
            )
        if expression.is_Add:
            return self.sum(expression)
        if expression.is_Mul:
            return self.product(expression)
        if expression.is_Pow:
            return self.power(*expression.args)
        return self.function(expression)

    def slot(self, expression: sympy.Expr) -> int:
        """The slot of an expression that has free symbols."""
        operand = self.operand(expression)
        return self.output(expression) if isinstance(operand, float) else operand

    def sum(self, expression: sympy.Expr) -> int:
        constants, terms = _split(expression)
        plus: list[int] = []
        minus: list[int] = []
        for term in terms:
            negative = term.is_Mul and term.args[0].is_number and term.args[0].is_negative
            (minus if negative else plus).append(self.slot(-term if negative else term))
        total = plus[0] if plus else self.emit(operator.neg, minus.pop(0))
        for slot in plus[1:]:
            total = self.emit(operator.add, total, slot)
        for slot in minus:
            total = self.emit(operator.sub, total, slot)
        number = _number(sympy.Add(*constants))
        return self.emit(operator.add, total, constants=(number,)) if number else total

    def product(self, expression: sympy.Expr) -> int | float:
        constants, factors = _split(expression)
        above: list[int] = []
        below: list[int] = []
        for factor in factors:
            base, exponent = factor.as_base_exp()
            inverse = factor.is_Pow and exponent.is_number and exponent.is_negative
            (below if inverse else above).append(self.slot(base**-exponent if inverse else factor))
        number = _number(sympy.Mul(*constants))
        if above:
            total = self.multiply(above)
            if below:
                total = self.emit(operator.truediv, total, self.multiply(below))
            if number == 1.0:
                return total
            if number == -1.0:
                return self.emit(operator.neg, total)
            return self.emit(operator.mul, total, constants=(number,))
        return self.emit(_over, self.multiply(below), constants=(number,))

    def multiply(self, slots: list[int]) -> int:
        """Their product; a pair that was multiplied before is taken first."""
        slots = sorted(slots)
        while len(slots) > 1:
            pairs = itertools.combinations(slots, 2)
            a, b = next((pair for pair in pairs if (operator.mul, pair, ()) in self.slots), (slots[0], slots[1]))
            slots.remove(a)
            slots.remove(b)
            slots = sorted([*slots, self.emit(operator.mul, a, b)])
        return slots[0]

    def power(self, base: sympy.Expr, exponent: sympy.Expr) -> int:
        if not base.free_symbols:
            return self.emit(_number_power, self.slot(exponent), constants=(_number(base),))
        if exponent.free_symbols:
            return self.emit(operator.pow, self.slot(base), self.slot(exponent))
        number, slot = _number(exponent), self.slot(base)
        if number < 0:
            return self.emit(_over, self.slot(base**-exponent), constants=(1.0,))
        if number == 0.5:
            return self.emit(torch.sqrt, slot)
        if number == int(number) and number <= _SMALL_POWER:
            return self.integer_power(slot, int(number))
        return self.emit(operator.pow, slot, constants=(number,))

    def integer_power(self, slot: int, exponent: int) -> int:
        if exponent == 1:
            return slot
        half = self.integer_power(slot, exponent // 2)
        square = self.emit(operator.mul, half, half)
        return square if exponent % 2 == 0 else self.emit(operator.mul, square, slot)

    def function(self, expression: sympy.Expr) -> int | float:
        arguments = list(expression.args)
        if isinstance(expression, sympy.DiracDelta):
            return 0.0  # almost everywhere; it comes only from differentiating a jump, where autograd gives zero too
        if isinstance(expression, sympy.Heaviside):
            return self.emit(_heaviside, self.slot(arguments[0]), constants=(_number(arguments[1]),))
        if isinstance(expression, sympy.Max | sympy.Min):
            largest = isinstance(expression, sympy.Max)
            return self.extremum(arguments, largest)
        row = CLASSES.get(expression.func)
        if row is None or row.torch is None:
            raise ValueError(
                f"torch_function: {expression.func.__name__} is not a function of the equation language; "
                f"known: {', '.join(sorted(known.name for known in CLASSES.values()))}."
            )
        return self.emit(row.torch, *map(self.slot, arguments))

    def extremum(self, arguments: list[sympy.Expr], largest: bool) -> int:
        numbers = [_number(argument) for argument in arguments if not argument.free_symbols]
        slots = [self.slot(argument) for argument in arguments if argument.free_symbols]
        total = slots[0]
        for slot in slots[1:]:
            total = self.emit(torch.maximum if largest else torch.minimum, total, slot)
        if not numbers:
            return total
        bound = max(numbers) if largest else min(numbers)
        return self.emit(_maximum_number if largest else _minimum_number, total, constants=(bound,))


def _split(expression: sympy.Expr) -> tuple[list[sympy.Expr], list[sympy.Expr]]:
    """The arguments of a sum or product without and with free symbols."""
    constants = [argument for argument in expression.args if not argument.free_symbols]
    return constants, [argument for argument in expression.args if argument.free_symbols]


def _number(expression: sympy.Expr) -> float:
    """A constant expression in double precision."""
    try:
        value = float(expression) if expression.is_Rational or expression.is_Float else float(expression.evalf(25))
    except (TypeError, OverflowError):
        value = math.nan
    if not math.isfinite(value):
        raise ValueError(f"torch_function: the constant {str(expression)[:60]} is not a finite real number.")
    return value
