r"""Product and chain rule: from equations with derivatives of expressions to equations in jets.

The total derivative along a coordinate x of an expression f in coordinates and jets is

    D_x f  =  df/dx  +  sum_J  df/dJ  J_x,          J_x the jet J differentiated once more.

Everything is real, so |f|' = sign(f) f' and no conjugates appear. The derivative of a jump (sign, heaviside) is a delta
function: sympy's DiracDelta here, refused in an equation and zero almost everywhere for an optimiser.
"""

from __future__ import annotations

from collections.abc import Callable

import sympy
from sympy.core.function import AppliedUndef

from pinnfuse.pde.functions import CLASSES, apply
from pinnfuse.pde.jet import MAX_ORDER, Jet
from pinnfuse.pde.namespace import Namespace
from pinnfuse.pde.symbols import refuse_data, symbol

__all__ = ["JetSpace", "differentiate", "rebuild"]

MAX_SIZE = 50_000  # parts of an expanded equation


def rebuild(expression: sympy.Expr, arguments: list[sympy.Expr]) -> sympy.Expr:
    """The same operation on other arguments."""
    row = CLASSES.get(expression.func)
    return apply(row, arguments) if row else expression.func(*arguments)


def differentiate(expression: sympy.Expr, leaf: sympy.Symbol | Callable[[sympy.Symbol], sympy.Expr]) -> sympy.Expr:
    """Derivative of an expression in real symbols.

    Args:
        expression: as in `PDE.jet_equations`.
        leaf: the symbol to differentiate by, or a function that gives the derivative of each symbol.

    Raises:
        ValueError: a function outside the language.
    """
    rule = leaf if not isinstance(leaf, sympy.Symbol) else (lambda s: sympy.Integer(int(s == leaf)))
    return _Derivative(rule).of(expression)


class _Derivative:
    def __init__(self, leaf: Callable[[sympy.Symbol], sympy.Expr]) -> None:
        self.leaf = leaf
        self.known: dict[sympy.Expr, sympy.Expr] = {}

    def of(self, expression: sympy.Expr) -> sympy.Expr:
        if expression not in self.known:
            self.known[expression] = self.rule(expression)
        return self.known[expression]

    def rule(self, f: sympy.Expr) -> sympy.Expr:
        if f.is_Symbol:
            return self.leaf(f)
        if not f.free_symbols:
            return sympy.S.Zero
        if f.is_Add:
            return sympy.Add(*map(self.of, f.args))
        if f.is_Mul:
            slopes = [self.of(factor) for factor in f.args]
            terms = (
                sympy.Mul(*f.args[:i], slope, *f.args[i + 1 :]) for i, slope in enumerate(slopes) if not slope.is_zero
            )
            return sympy.Add(*terms)
        if f.is_Pow:
            base, exponent = f.args
            power_rule = exponent * base ** (exponent - 1) * self.of(base)
            slope = self.of(exponent)
            return power_rule if slope.is_zero else power_rule + f * sympy.log(base) * slope
        return sympy.Add(
            *(self.partial(f, i) * slope for i, g in enumerate(f.args) if not (slope := self.of(g)).is_zero)
        )

    def partial(self, f: sympy.Expr, i: int) -> sympy.Expr:
        """Derivative of a function by its argument number i."""
        arguments = list(f.args)
        if isinstance(f, sympy.Abs):
            return apply(CLASSES[sympy.sign], arguments)
        if isinstance(f, sympy.sign):
            return 2 * sympy.DiracDelta(arguments[0])
        if isinstance(f, sympy.Heaviside):
            return sympy.DiracDelta(arguments[0])
        if isinstance(f, sympy.atan2):
            y, x = arguments
            return (x, -y)[i] / (x**2 + y**2)
        if isinstance(f, sympy.Max | sympy.Min):
            others = arguments[:i] + arguments[i + 1 :]
            rest = others[0] if len(others) == 1 else rebuild(f, others)
            gap = arguments[i] - rest if isinstance(f, sympy.Max) else rest - arguments[i]
            return apply(CLASSES[sympy.Heaviside], [gap])
        if f.func in CLASSES:
            return f.fdiff(i + 1)
        raise ValueError(f"{f.func.__name__} is not a function of the equation language.")


class JetSpace:
    """Jets as symbols, made on demand."""

    def __init__(self, names: Namespace) -> None:
        self.names = names
        self.jets: dict[sympy.Symbol, Jet] = {}
        self.sizes: dict[sympy.Expr, int] = {}
        self.expanded: dict[
            sympy.Expr, sympy.Expr
        ] = {}  # laplacian(laplacian(u)) holds the inner one once a coordinate

    def symbol(self, jet: Jet) -> sympy.Symbol:
        """The symbol of a jet, named like it."""
        if jet.order > MAX_ORDER:
            raise ValueError(
                f"the derivative of {jet.field!r} has order {jet.order}; at most {MAX_ORDER} are supported."
            )
        found = symbol(str(jet))
        self.jets[found] = jet
        return found

    def jet(self, derivative: sympy.Expr) -> Jet:
        """The jet of `u(t, x)` or of a derivative of it."""
        function = derivative.expr if isinstance(derivative, sympy.Derivative) else derivative
        counts = dict(derivative.variable_count) if isinstance(derivative, sympy.Derivative) else {}
        index = tuple(int(counts.get(x, 0)) for x in self.names.coordinate_symbols.values())
        return Jet(str(function.func), index, self.names.coordinates)

    def expand(self, expression: sympy.Expr) -> sympy.Expr:
        """An equation with all derivatives carried out, in jet symbols.

        Raises:
            ValueError: the derivative of a jump or of a data column, an order above 8, or a result too large.
        """
        if expression not in self.expanded:
            self.expanded[expression] = self._expand(expression)
        return self.expanded[expression]

    def _expand(self, expression: sympy.Expr) -> sympy.Expr:
        if isinstance(expression, AppliedUndef):
            return self.symbol(self.jet(expression))
        if isinstance(expression, sympy.Derivative):
            if isinstance(expression.expr, AppliedUndef):
                return self.symbol(self.jet(expression))
            result = self.expand(expression.expr)
            for variable, count in expression.variable_count:
                for _ in range(int(count)):
                    result = self.total(result, variable)
            return result
        if not expression.args:
            return expression
        return rebuild(expression, [self.expand(argument) for argument in expression.args])

    def total(self, expression: sympy.Expr, variable: sympy.Symbol) -> sympy.Expr:
        """D_x of an expression in jets."""
        refuse_data(expression)
        axis = self.names.coordinates.index(variable.name)

        def leaf(s: sympy.Symbol) -> sympy.Expr:
            return self.symbol(self.jets[s].shifted(axis)) if s in self.jets else sympy.Integer(int(s == variable))

        result = differentiate(expression, leaf)
        if result.has(sympy.DiracDelta):
            raise ValueError(
                "the derivative of a jump (heaviside, sign, or the second derivative of abs, min, max) is a delta "
                "function, which points cannot see. Move the jump out of the derivative, or smooth it with tanh."
            )
        if self.size(result) > MAX_SIZE:
            raise ValueError(f"carrying out the derivatives gives more than {MAX_SIZE} parts. Introduce another field.")
        return result

    def size(self, expression: sympy.Expr) -> int:
        """Number of parts of the expression."""
        if expression not in self.sizes:
            self.sizes[expression] = 1 + sum(map(self.size, expression.args))
        return self.sizes[expression]
