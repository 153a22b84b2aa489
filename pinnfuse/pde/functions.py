"""The functions of the equation language: text name, sympy class, value for a number, torch operation."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import sympy
import torch

__all__ = ["CLASSES", "CONSTANTS", "FUNCTIONS", "Function", "apply"]


@dataclass(frozen=True)
class Function:
    """One row of the table."""

    name: str
    symbolic: Any
    """sympy class, or a callable that makes an expression (sqrt)"""
    number: Callable[..., float]
    """value in double precision; raises ValueError or OverflowError outside its domain"""
    torch: Callable[..., Any] | None
    """on tensors or fx proxies; None: lowered specially"""
    arguments: tuple[int, int] = (1, 1)
    """least and largest number of arguments"""
    smooth: bool = True
    """kinks and jumps are built without sympy's rewriting, which leaves the real numbers (conjugate, re, im)"""


def _heaviside(x: float, at_zero: float = 0.5) -> float:
    return at_zero if x == 0 else float(x > 0)


_ROWS = (
    Function("sin", sympy.sin, math.sin, torch.sin),
    Function("cos", sympy.cos, math.cos, torch.cos),
    Function("tan", sympy.tan, math.tan, torch.tan),
    Function("cot", sympy.cot, lambda x: 1 / math.tan(x), lambda x: 1 / torch.tan(x)),
    Function("asin", sympy.asin, math.asin, torch.asin),
    Function("acos", sympy.acos, math.acos, torch.acos),
    Function("atan", sympy.atan, math.atan, torch.atan),
    Function("atan2", sympy.atan2, math.atan2, torch.atan2, (2, 2), smooth=False),
    Function("sinh", sympy.sinh, math.sinh, torch.sinh),
    Function("cosh", sympy.cosh, math.cosh, torch.cosh),
    Function("tanh", sympy.tanh, math.tanh, torch.tanh),
    Function("sech", sympy.sech, lambda x: 1 / math.cosh(x), lambda x: 1 / torch.cosh(x)),
    Function("asinh", sympy.asinh, math.asinh, torch.asinh),
    Function("acosh", sympy.acosh, math.acosh, torch.acosh),
    Function("atanh", sympy.atanh, math.atanh, torch.atanh),
    Function("exp", sympy.exp, math.exp, torch.exp),
    Function("log", sympy.log, math.log, torch.log),
    Function("sqrt", sympy.sqrt, math.sqrt, torch.sqrt),
    Function("erf", sympy.erf, math.erf, torch.erf),
    Function("erfc", sympy.erfc, math.erfc, torch.erfc),
    Function("abs", sympy.Abs, abs, torch.abs, smooth=False),
    Function("sign", sympy.sign, lambda x: (x > 0) - (x < 0), torch.sign, smooth=False),
    Function("heaviside", sympy.Heaviside, _heaviside, None, (1, 2), smooth=False),
    Function("min", sympy.Min, min, None, (2, 16), smooth=False),
    Function("max", sympy.Max, max, None, (2, 16), smooth=False),
)

FUNCTIONS: dict[str, Function] = {row.name: row for row in _ROWS}
CLASSES: dict[Any, Function] = {row.symbolic: row for row in _ROWS if isinstance(row.symbolic, type)}
CONSTANTS: dict[str, tuple[sympy.Expr, float]] = {"pi": (sympy.pi, math.pi)}


def apply(row: Function, arguments: list[sympy.Expr]) -> sympy.Expr:
    """The sympy expression of a function at `arguments`, all taken to be real."""
    if row.smooth or not any(argument.free_symbols for argument in arguments):
        return row.symbolic(*arguments)
    if row.symbolic in (sympy.Max, sympy.Min):
        numbers = [argument for argument in arguments if not argument.free_symbols]
        others = [argument for argument in arguments if argument.free_symbols]
        arguments = [row.symbolic(*numbers), *others] if numbers else others
    if row.symbolic is sympy.Heaviside and len(arguments) == 1:
        arguments = [*arguments, sympy.Rational(1, 2)]
    return row.symbolic(*arguments, evaluate=False)
