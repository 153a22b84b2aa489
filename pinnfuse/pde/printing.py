"""Equations as text in the library's own language, and as LaTeX. The text parses back to the same equation."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import sympy
from sympy.core.function import AppliedUndef
from sympy.printing.latex import LatexPrinter
from sympy.printing.precedence import PRECEDENCE
from sympy.printing.str import StrPrinter

from pinnfuse.pde.functions import CLASSES
from pinnfuse.pde.jet import Jet

__all__ = ["to_latex", "to_text"]


def to_text(expression: sympy.Expr, coordinates: Sequence[str] = ()) -> str:
    """E.g. "u_t + D(u**2/2, x) - nu*u_xx": time derivatives first, then by order of derivative, sources last."""
    return _TextPrinter(coordinates).doprint(expression)


def to_latex(expression: sympy.Expr, coordinates: Sequence[str] = ()) -> str:
    r"""E.g. "u_{t} + \partial_{x}\left(\frac{u^{2}}{2}\right) - \nu u_{xx}"."""
    return _TexPrinter(coordinates).doprint(expression)


def _counts(derivative: sympy.Derivative) -> list[tuple[str, int]]:
    return [(variable.name, int(count)) for variable, count in derivative.variable_count]


def _jet(derivative: sympy.Derivative, coordinates: Sequence[str]) -> Jet:
    counts = dict(_counts(derivative))
    names = tuple(coordinates) or tuple(x.name for x in derivative.expr.args)
    return Jet(str(derivative.expr.func), tuple(counts.get(name, 0) for name in names), names)


def _rank(term: sympy.Expr) -> int:
    """Where a term stands in a sum."""
    orders = [sum(n for _, n in _counts(d)) for d in term.atoms(sympy.Derivative)]
    if any(name == "t" for d in term.atoms(sympy.Derivative) for name, _ in _counts(d)):
        return 0
    if orders:
        return 1 + max(orders)
    return 1 if term.atoms(AppliedUndef) else 1000


class _Ordered:
    """Sums in the order of `_rank`, ties by text: the same in every process."""

    coordinates: Sequence[str]

    def _as_ordered_terms(self, expression: sympy.Expr, order: Any = None) -> list[sympy.Expr]:
        text = _TextPrinter(self.coordinates)
        keys = [(_rank(term), text.doprint(term).lstrip("-")) for term in expression.args]
        return [term for _, term in sorted(zip(keys, expression.args, strict=True), key=lambda pair: pair[0])]


class _TextPrinter(_Ordered, StrPrinter):
    def __init__(self, coordinates: Sequence[str]) -> None:
        super().__init__()
        self.coordinates = coordinates

    def _print_AppliedUndef(self, expression: AppliedUndef) -> str:  # noqa: N802 - sympy's dispatch
        return str(expression.func)

    def _print_Derivative(self, expression: sympy.Derivative) -> str:  # noqa: N802
        if isinstance(expression.expr, AppliedUndef):
            return str(_jet(expression, self.coordinates))
        counts = [f"{name}, {n}" if n > 1 else name for name, n in _counts(expression)]
        return f"D({self._print(expression.expr)}, {', '.join(counts)})"

    def _print_Function(self, expression: Any) -> str:  # noqa: N802
        row = CLASSES.get(expression.func)
        if row is None:
            raise ValueError(f"{expression.func.__name__} is not a function of the equation language.")
        arguments = list(expression.args)
        if isinstance(expression, sympy.Heaviside) and arguments[1] == sympy.Rational(1, 2):
            arguments.pop()
        return f"{row.name}({', '.join(map(self._print, arguments))})"

    _print_Heaviside = _print_Abs = _print_Max = _print_Min = _print_LatticeOp = _print_Function

    def _print_Mul(self, expression: sympy.Mul) -> str:  # noqa: N802
        """One "/" for each denominator: 7*(u + v) in a denominator would read back as 7*u + 7*v."""
        number, rest = expression.as_coeff_Mul()
        sign, number = ("-", -number) if number.is_negative else ("", number)
        above = (
            [] if number.is_Rational and number.p == 1 else [sympy.Integer(number.p) if number.is_Rational else number]
        )
        below = [sympy.Integer(number.q)] if number.is_Rational and number.q != 1 else []
        for factor in rest.as_ordered_factors():
            inverse = factor.is_Pow and factor.exp.is_Number and factor.exp.is_negative
            (below if inverse else above).append(1 / factor if inverse else factor)
        level = PRECEDENCE["Mul"]
        text = "*".join(self.parenthesize(factor, level) for factor in above) or "1"
        return sign + text + "".join(f"/{self.parenthesize(factor, level, strict=True)}" for factor in below)

    def _print_Exp1(self, expression: Any) -> str:  # noqa: N802
        return "exp(1)"

    def _print_Float(self, expression: sympy.Float) -> str:  # noqa: N802
        return repr(float(expression))


class _TexPrinter(_Ordered, LatexPrinter):
    def __init__(self, coordinates: Sequence[str]) -> None:
        super().__init__()
        self.coordinates = coordinates

    def _print_AppliedUndef(self, expression: AppliedUndef, exp: str | None = None) -> str:  # noqa: N802
        name = self._print(sympy.Symbol(str(expression.func)))
        return name if exp is None else f"{name}^{{{exp}}}"

    def _print_Function(self, expression: Any, exp: str | None = None) -> str:  # noqa: N802
        if isinstance(expression, AppliedUndef):
            return self._print_AppliedUndef(expression, exp)
        return super()._print_Function(expression, exp)

    def _print_Derivative(self, expression: sympy.Derivative) -> str:  # noqa: N802
        suffix = " ".join(self._print(sympy.Symbol(name)) for name, n in _counts(expression) for _ in range(n))
        suffix = (
            suffix
            if "\\" in suffix or any(len(name) > 1 for name, _ in _counts(expression))
            else suffix.replace(" ", "")
        )
        inner = self._print(expression.expr)
        if isinstance(expression.expr, AppliedUndef):
            return f"{{{inner}}}_{{{suffix}}}" if "_" in inner else f"{inner}_{{{suffix}}}"
        return rf"\partial_{{{suffix}}}\left({inner}\right)"

    def _print_Float(self, expression: sympy.Float) -> str:  # noqa: N802
        mantissa, _, exponent = repr(float(expression)).partition("e")
        power = f"10^{{{int(exponent or 0)}}}"
        return mantissa if not exponent else power if mantissa == "1" else rf"{mantissa} \cdot {power}"
