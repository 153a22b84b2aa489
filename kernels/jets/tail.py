r"""An output transform u = g(x, raw) as lines of Triton code: jets of u from those of the stack's output, and back.

Jets of what depends on the points alone (d and g of u = g + d raw) are given at run time; they are symbols here, and so
are the raw jets. The rules of jets are applied once to symbols, and the adjoint is the derivative of what comes out:

    o_i = F_i(raw, given),      v_j = sum_i up_i dF_i / draw_j.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

import sympy

from pinnfuse.jets.plan import Output
from pinnfuse.jets.program import Add, Concatenate, Multiply, Scale, Select, Shift, Unary
from pinnfuse.jets.space import ChannelSpace, Term
from pinnfuse.kernels.jets.network import Tail
from pinnfuse.kernels.jets.pointwise import NotGenerated, shared_code

Jet = list[list[sympy.Expr]]  # [channel][column]

_FUNCTIONS = {
    "tanh": sympy.tanh,
    "sin": sympy.sin,
    "cos": sympy.cos,
    "exp": sympy.exp,
    "log": sympy.log,
    "sqrt": sympy.sqrt,
    "erf": sympy.erf,
    "erfc": sympy.erfc,
    "reciprocal": lambda z: 1 / z,
    "sigmoid": lambda z: (1 + sympy.tanh(z / 2)) / 2,
    "silu": lambda z: z * (1 + sympy.tanh(z / 2)) / 2,
}


@dataclass(frozen=True)
class TailCode:
    """Attributes:
    reads: what is read of the stack's output, `raw0`.. in the code.
    loads: (channel, column) of the given jets, `given<channel>_<column>` in the code.
    forward: lines that make `o0`.. known.
    adjoint: lines from `up0`.. to `v0`..
    """

    reads: tuple[Output, ...]
    loads: tuple[tuple[int, int], ...]
    forward: tuple[str, ...]
    adjoint: tuple[str, ...]


@lru_cache(maxsize=128)
def tail_code(tail: Tail, space: ChannelSpace, outputs: tuple[Output, ...]) -> TailCode:
    """Raises NotGenerated for a function without Triton code."""
    channels = range(len(space))
    coefficients = sympy.symbols(f"coefficient:{max(1, len(space.coefficients))}", real=True)
    raw: dict[sympy.Symbol, Output] = {}
    given: dict[sympy.Symbol, tuple[int, int]] = {}

    def symbol(name: str, k: int, c: int) -> sympy.Symbol:
        return sympy.Symbol(f"{name}{k:03d}_{c:03d}", real=True)

    values: dict[int, Jet] = {tail.raw: [[symbol("raw", k, c) for c in range(tail.widths[tail.raw])] for k in channels]}
    raw.update((s, Output(c, k)) for k, row in enumerate(values[tail.raw]) for c, s in enumerate(row))
    for value, start in tail.columns:
        values[value] = [[symbol("given", k, start + c) for c in range(tail.widths[value])] for k in channels]
        given.update((s, (k, start + c)) for k, row in enumerate(values[value]) for c, s in enumerate(row))
    rules = _Rules(space, coefficients)
    for value, op in tail.operations:
        values[value] = rules.apply(op, [values[j] for j in op.inputs])
    result = values[len(tail.widths) - 1]
    expressions = [result[o.channel][o.column] for o in outputs]
    free = set().union(*(e.free_symbols for e in expressions))
    # the bias of an output reaches the loss only through its value, which is therefore read in any case
    reads = sorted((s for s in raw if s in free), key=lambda s: (raw[s].column, raw[s].channel))
    loads = sorted((s for s in given if s in free), key=str)
    names = {s: f"raw{i}" for i, s in enumerate(reads)} | {s: "given{}_{}".format(*given[s]) for s in loads}
    names |= {s: f"k{i}" for i, s in enumerate(coefficients)}
    upstream = sympy.symbols(f"up:{len(outputs)}", real=True, seq=True)
    names |= {s: s.name for s in upstream}
    back = [sympy.Add(*(u * sympy.diff(e, s) for u, e in zip(upstream, expressions, strict=True))) for s in reads]
    forward = shared_code(expressions, names, "te", [f"o{i}" for i in range(len(outputs))])
    adjoint = shared_code(back, names, "td", [f"v{i}" for i in range(len(reads))])
    return TailCode(tuple(raw[s] for s in reads), tuple(given[s] for s in loads), forward, adjoint)


class _Rules:
    """The rules of jets, on symbols."""

    def __init__(self, space: ChannelSpace, coefficients: Sequence[sympy.Symbol]):
        self.space, self.coefficients = space, coefficients

    def apply(self, op: object, x: Sequence[Jet]) -> Jet:
        match op:
            case Scale():
                return [[_number(op.factor) * c for c in row] for row in x[0]]
            case Shift():
                return [[c + _number(op.amount) for c in x[0][0]], *x[0][1:]]
            case Select():
                return [[row[c] for c in op.columns] for row in x[0]]
            case Concatenate():
                return [[c for row in rows for c in row] for rows in zip(*x, strict=True)]
            case Add():
                return [[a + op.sign * b for a, b in _pairs(*rows)] for rows in zip(*x, strict=True)]
            case Multiply():
                return [[self._product(k, a, b) for a, b in self._columns(*x)] for k in range(len(self.space))]
            case Unary():
                columns = [self._compose(op, list(z)) for z in zip(*x[0], strict=True)]
                return [list(row) for row in zip(*columns, strict=True)]
        raise NotGenerated(f"{type(op).__name__} behind the last layer has no Triton code")

    def _columns(self, x: Jet, y: Jet) -> list[tuple[list[sympy.Expr], list[sympy.Expr]]]:
        """Jets of the columns of two factors, in pairs."""
        return _pairs([list(c) for c in zip(*x, strict=True)], [list(c) for c in zip(*y, strict=True)])

    def _weight(self, term: Term) -> sympy.Expr:
        return term.count * (sympy.Integer(1) if term.coefficient is None else self.coefficients[term.coefficient])

    def _product(self, k: int, a: Sequence[sympy.Expr], b: Sequence[sympy.Expr]) -> sympy.Expr:
        if k == 0:
            return a[0] * b[0]
        terms = (self._weight(t) * a[t.factors[0]] * b[t.factors[1]] for t in self.space.product[k])
        return sympy.Add(a[0] * b[k], a[k] * b[0], *terms)

    def _compose(self, op: Unary, z: Sequence[sympy.Expr]) -> list[sympy.Expr]:
        argument = sympy.Dummy(real=True)
        if op.exponent is None and op.name not in _FUNCTIONS:
            raise NotGenerated(f"{op.name} behind the last layer has no Triton code")
        s = argument ** _number(op.exponent) if op.exponent is not None else _FUNCTIONS[op.name](argument)
        derivatives = [s]
        for _ in range(max(1, self.space.order)):
            derivatives.append(sympy.diff(derivatives[-1], argument))
        s_ = [d.xreplace({argument: z[0]}) for d in derivatives]
        result = [s_[0]]
        for k in range(1, len(self.space)):
            terms = (
                self._weight(t) * s_[len(t.factors)] * sympy.Mul(*(z[j] for j in t.factors))
                for t in self.space.composition[k]
            )
            result.append(sympy.Add(s_[1] * z[k], *terms))
        return result


def _pairs(x: list, y: list) -> list[tuple]:
    """Columns of two operands in pairs; one of them may have a single column."""
    count = max(len(x), len(y))
    return list(zip(x * (count // len(x)), y * (count // len(y)), strict=True))


def _number(value: float) -> sympy.Expr:
    return sympy.Integer(int(value)) if math.isfinite(value) and value == int(value) else sympy.Float(value, 17)
