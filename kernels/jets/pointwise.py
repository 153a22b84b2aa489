"""Residuals and their derivatives as lines of Triton code, from the sympy expressions of a plan."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import sympy

from pinnfuse.jets.plan import JetPlan


class NotGenerated(Exception):
    """No kernel can be generated for this; the message is the reason."""


@dataclass(frozen=True)
class Pointwise:
    """Code of one plan. Names: outputs `o0`.., coordinates `x0`.., constants `c0`.., trained `p0`.., data `f0`..

    Attributes:
        residuals: lines that end with `r0`..`rE` known.
        seeds: lines from `q0`..`qE` (derivatives of the loss by residual) to `v0`.. (by output, or another name) and
        `t0`.. (by trained parameter).
    """

    residuals: tuple[str, ...]
    seeds: tuple[str, ...]
    equations: int
    constants: int
    trained: int
    data: int


def pointwise(plan: JetPlan, seed: str = "v") -> Pointwise:
    """Residuals, and the reverse sweep through them, with common subexpressions shared."""
    pde = plan.pde
    names: dict[sympy.Symbol, str] = {s: f"o{i}" for i, s in enumerate(plan.output_symbols)}
    names |= {pde.coordinate_symbols[n]: f"x{i}" for i, n in enumerate(pde.coordinates)}
    names |= {pde.parameter_symbols[n]: f"c{i}" for i, n in enumerate(plan.constants)}
    names |= {pde.parameter_symbols[n]: f"p{i}" for i, n in enumerate(plan.trained)}
    names |= {pde.data_symbols[n]: f"f{i}" for i, n in enumerate(pde.data)}
    names |= {q: f"q{e}" for e, q in enumerate(plan.upstream_symbols)}
    forward = shared_code(plan.residuals, names, "e", [f"r{i}" for i in range(len(plan.residuals))])
    outputs = [f"{seed}{i}" for i in range(len(plan.outputs))] + [f"t{i}" for i in range(len(plan.trained))]
    backward = shared_code(plan.adjoint, names, "d", outputs)
    return Pointwise(forward, backward, len(plan.residuals), len(plan.constants), len(plan.trained), len(plan.pde.data))


def shared_code(
    expressions: Sequence[sympy.Expr], names: dict[sympy.Symbol, str], prefix: str, results: Sequence[str]
) -> tuple[str, ...]:
    temporaries = (sympy.Symbol(f"{prefix}{i}", real=True) for i in range(10**6))
    shared, reduced = sympy.cse(list(expressions), symbols=temporaries, order="canonical")
    shared, reduced = _numbers_in_place(shared, reduced)
    names = names | {s: s.name for s, _ in shared}
    lines = [f"{s.name} = {triton_code(e, names)}" for s, e in shared]
    return (*lines, *(f"{name} = {triton_code(e, names)}" for name, e in zip(results, reduced, strict=True)))


def _numbers_in_place(
    shared: Sequence[tuple[sympy.Symbol, sympy.Expr]], reduced: Sequence[sympy.Expr]
) -> tuple[list[tuple[sympy.Symbol, sympy.Expr]], list[sympy.Expr]]:
    """Temporaries that are numbers put back in place: a Python float that has a name is float32 to Triton."""
    numbers: dict[sympy.Symbol, sympy.Expr] = {}
    kept = []
    for symbol, expression in shared:
        expression = expression.xreplace(numbers)
        if expression.is_number:
            numbers[symbol] = expression
        else:
            kept.append((symbol, expression))
    return kept, [expression.xreplace(numbers) for expression in reduced]


_CALLS = {
    sympy.sin: "tl.sin({0})",
    sympy.cos: "tl.cos({0})",
    sympy.tan: "(tl.sin({0}) / tl.cos({0}))",
    sympy.cot: "(tl.cos({0}) / tl.sin({0}))",
    sympy.exp: "tl.exp({0})",
    sympy.log: "tl.log({0})",
    sympy.tanh: "tanh({0})",
    sympy.sinh: "(0.5 * (tl.exp({0}) - tl.exp(-({0}))))",
    sympy.cosh: "(0.5 * (tl.exp({0}) + tl.exp(-({0}))))",
    sympy.sech: "(2.0 / (tl.exp({0}) + tl.exp(-({0}))))",
    sympy.erf: "tl.erf({0})",
    sympy.erfc: "(1.0 - tl.erf({0}))",
    sympy.Abs: "tl.abs({0})",
    sympy.sign: "tl.where({0} > 0, 1.0, tl.where({0} < 0, -1.0, {0}))",
}


def triton_code(e: sympy.Expr, names: dict[sympy.Symbol, str]) -> str:
    """One expression, fully parenthesised where precedence matters.

    Every result has the dtype of its arguments: two numbers in `tl.where` are float32, as one is in `tl.minimum` of
    Triton 3.6, and neither would know a NaN.
    """
    if isinstance(e, sympy.Symbol):
        return names[e]
    if e.is_number and not e.atoms(sympy.Symbol):
        value = float(e)
        return repr(value) if value >= 0 else f"({value!r})"
    arguments = [triton_code(a, names) for a in e.args]
    if isinstance(e, sympy.Add):
        return "(" + " + ".join(arguments) + ")"
    if isinstance(e, sympy.Mul):
        return "(" + " * ".join(arguments) + ")"
    if isinstance(e, sympy.Pow):
        return _power(arguments[0], e.exp)
    if isinstance(e, sympy.Heaviside):
        x, at_zero = arguments
        return f"tl.where({x} > 0, 1.0, tl.where({x} < 0, 0.0, {x} + {at_zero}))"
    if isinstance(e, sympy.Min | sympy.Max):
        better = "<" if isinstance(e, sympy.Min) else ">"
        code, *others = arguments  # a number is the first
        for other in others:
            code = f"tl.where({code} {better} {other}, {code}, {other})"
        return code
    if e.func in _CALLS:
        return _CALLS[e.func].format(*arguments)
    raise NotGenerated(f"the equations contain {e.func.__name__}, which has no Triton code")


def _power(base: str, exponent: sympy.Expr) -> str:
    if not exponent.is_number:
        raise NotGenerated(f"the equations contain a power with the variable exponent {exponent}")
    n = float(exponent)
    if n == int(n) and abs(n) <= 16:
        product = "(" + " * ".join([base] * abs(int(n))) + ")"
        return product if n > 0 else f"(1.0 / {product})"
    if n == int(n):  # the logarithm knows no negative numbers
        even = f"tl.exp({n - n % 2!r} * tl.log(tl.abs({base})))"
        return f"({base} * {even})" if n % 2 else even
    if abs(n) == 0.5:
        return f"tl.sqrt({base})" if n > 0 else f"(1.0 / tl.sqrt({base}))"
    return f"tl.exp({n!r} * tl.log({base}))"
