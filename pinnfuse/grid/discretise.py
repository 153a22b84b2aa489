r"""From a PDE to its discrete form: stencils of fields at time levels, and the residual in terms of them.

A derivative of a field becomes the stencil of its grid. A derivative that the author left around an expression is
discretised as written where that conserves something:

    D(g(u, v), x)        the stencil of the first derivative applied to g at the neighbours (conservative)
    D(g D(f, x), x)      1/2 [ L(g f) + g L f - f L g ],  L the stencil of the second derivative

The second is the compact flux form, for order 2 exactly
[ (g_i + g_{i+1}) (f_{i+1} - f_i) - (g_{i-1} + g_i) (f_i - f_{i-1}) ] / 2 h^2, whose sum over a period vanishes at every
order. g may hold fields, and parameters as factors. With coordinates inside, with a time derivative, or with other
derivatives inside, the product rule is carried out instead, as for networks. The value of g at a wall does not follow
from what is known of its fields there, so next to walls its stencils are one-sided.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property

import sympy
from sympy.core.function import AppliedUndef

from pinnfuse.grid.schemes import SCHEMES, STEADY, Levels, Stage, TimeScheme
from pinnfuse.pde import PDE, torch_function
from pinnfuse.pde.calculus import JetSpace, rebuild
from pinnfuse.pde.namespace import Namespace

Index = tuple[int, ...]
"""How often a derivative is taken along each axis of the grid."""


@dataclass(frozen=True)
class Leaf:
    """A stencil of one field: sum over levels of coefficient * (derivative `index` of the field at that level)."""

    name: str
    symbol: sympy.Symbol
    field: str
    index: Index
    levels: Levels


@dataclass(frozen=True)
class Composite:
    """A stencil of an expression: derivative `index` of `expression`, which holds value leaves only."""

    name: str
    symbol: sympy.Symbol
    expression: sympy.Expr
    index: Index
    arguments: tuple[Leaf, ...]


@dataclass(frozen=True)
class Discretisation:
    """What a residual reads and how it is formed.

    Attributes:
        axes: coordinates of the grid, in its order.
        time: the time coordinate, None for a steady equation.
        leaves, composites: what stencils are applied to.
        residuals: per equation, in symbols of leaves, composites, coordinates, parameters and data; the time symbol
            stands for t_n, that of the first level a residual reads.
    """

    pde: PDE
    axes: tuple[str, ...]
    time: str | None
    scheme: TimeScheme
    leaves: tuple[Leaf, ...]
    composites: tuple[Composite, ...]
    residuals: tuple[sympy.Expr, ...] = field(repr=False)

    @property
    def parts(self) -> tuple[Leaf | Composite, ...]:
        return (*self.leaves, *self.composites)

    @property
    def parameters(self) -> tuple[str, ...]:
        return tuple(self.pde.parameters)

    @cached_property
    def arguments(self) -> tuple[sympy.Symbol, ...]:
        """Of `residual_function`: leaves, composites, coordinates (axes, then time), parameters, data."""
        coordinates = (*self.axes, *((self.time,) if self.time else ()))
        return (
            *(leaf.symbol for leaf in self.leaves),
            *(composite.symbol for composite in self.composites),
            *(self.pde.coordinate_symbols[name] for name in coordinates),
            *(self.pde.parameter_symbols[name] for name in self.parameters),
            *(self.pde.data_symbols[name] for name in self.pde.data),
        )

    @cached_property
    def residual_function(self):
        """`f(*arguments) -> (r_1, ..., r_E)` in torch."""
        return torch_function(self.residuals, self.arguments)

    @cached_property
    def composite_functions(self):
        """Per composite, `f(*values of its leaves) -> (expression,)` in torch."""
        return tuple(torch_function((c.expression,), [leaf.symbol for leaf in c.arguments]) for c in self.composites)


def discretise(pde: PDE, axes: Sequence[str], scheme: TimeScheme | None, time_step: float | None) -> Discretisation:
    """The discrete form of `pde` on a grid of `axes`.

    Args:
        scheme, time_step: None for a steady equation.

    Raises:
        ValueError: coordinates that do not match, or a time derivative that the scheme does not have.
    """
    time = check_coordinates(pde, axes, scheme)
    builder = _Builder(pde, tuple(axes), time, scheme or STEADY, time_step)
    residuals = tuple(builder.residual(name) for name in pde.equations)
    used: set[sympy.Symbol] = set().union(*(r.free_symbols for r in residuals))
    composites = tuple(c for c in builder.composites.values() if c.symbol in used)
    used |= {leaf.symbol for c in composites for leaf in c.arguments}
    leaves = [leaf for leaf in builder.leaves.values() if leaf.symbol in used]
    leaves.sort(key=lambda leaf: (pde.fields.index(leaf.field), sum(leaf.index), leaf.name))
    return Discretisation(pde, tuple(axes), time, scheme or STEADY, tuple(leaves), composites, residuals)


def check_coordinates(pde: PDE, axes: Sequence[str], scheme: TimeScheme | None) -> str | None:
    """The time coordinate of the PDE: the one that is no axis of the grid; None if there is none."""
    caller = "FusedGridResidualLoss"
    missing = [axis for axis in axes if axis not in pde.coordinates]
    others = [name for name in pde.coordinates if name not in axes]
    if missing or len(others) > 1:
        raise ValueError(
            f"{caller}: the axes of `grid` must be the PDE's coordinates {list(pde.coordinates)}, all or all but one "
            f"(time); got {list(axes)}. Name the grid's axes after the space coordinates."
        )
    if others and scheme is None:
        raise ValueError(
            f"{caller}: the PDE has the time coordinate {others[0]!r}; give `time_step` and `time_scheme`, one of "
            f"{list(SCHEMES)}. (For a steady equation leave {others[0]!r} out of the PDE's coordinates.)"
        )
    if not others and scheme is not None:
        raise ValueError(
            f"{caller}: `time_step` and `time_scheme` need a time coordinate, but all of {list(pde.coordinates)} are "
            "axes of the grid. Leave them out for a steady equation."
        )
    return others[0] if others else None


class _Builder:
    def __init__(
        self, pde: PDE, axes: tuple[str, ...], time: str | None, scheme: TimeScheme, step: float | None
    ) -> None:
        self.pde, self.axes, self.time, self.scheme, self.step = pde, axes, time, scheme, step
        self.space = JetSpace(Namespace(pde.fields, pde.coordinates, tuple(pde.parameters), pde.data))
        self.leaves: dict[tuple[str, Index, Levels], Leaf] = {}
        self.composites: dict[tuple[sympy.Expr, Index], Composite] = {}
        self.constants = set(pde.parameter_symbols.values())
        self.axis_symbols = {pde.coordinate_symbols[name]: i for i, name in enumerate(axes)}

    def residual(self, name: str) -> sympy.Expr:
        equation = self.pde.equations[name]
        terms = []
        for number, stage in enumerate(self.scheme.stages):
            expression = _Stage(self, stage, number).convert(equation, f"equation {name!r}")
            terms.append(sympy.Rational(stage.weight) * expression)
        return sympy.Add(*terms)

    def leaf(self, field: str, index: Index, levels: Levels, times: str = "", suffix: str = "") -> Leaf:
        key = (field, index, levels)
        if key not in self.leaves:
            letters = times + "".join(axis * n for axis, n in zip(self.axes, index, strict=True))
            name = f"{field}_{letters}{suffix}" if letters else field + suffix
            self.leaves[key] = Leaf(name, sympy.Symbol(f"{name}!", real=True), field, index, levels)
        return self.leaves[key]


class _Stage:
    """Conversion at one stage of the scheme."""

    def __init__(self, builder: _Builder, stage: Stage, number: int) -> None:
        self.builder, self.stage = builder, stage
        self.suffix = f"__{number}" if len(builder.scheme.stages) > 1 else ""

    def convert(self, expression: sympy.Expr, where: str) -> sympy.Expr:
        b = self.builder
        if isinstance(expression, AppliedUndef):
            return self.jet(expression, where)
        if isinstance(expression, sympy.Derivative):
            if isinstance(expression.expr, AppliedUndef):
                return self.jet(expression, where)
            return self.derivative(expression, where)
        if b.time and expression == b.pde.coordinate_symbols[b.time]:
            assert b.step is not None
            return expression + _number(self.stage.time * b.step)
        if not expression.args:
            return expression
        return rebuild(expression, [self.convert(argument, where) for argument in expression.args])

    def jet(self, derivative: sympy.Expr, where: str) -> sympy.Expr:
        b = self.builder
        jet = b.space.jet(derivative)
        counts = dict(zip(b.pde.coordinates, jet.index, strict=True))
        order = counts.pop(b.time, 0) if b.time else 0
        index = tuple(counts[axis] for axis in b.axes)
        if not order:
            return b.leaf(jet.field, index, self.stage.values, suffix=self.suffix).symbol
        levels = b.scheme.difference(order)
        if levels is None:
            raise ValueError(
                f"FusedGridResidualLoss: {where} holds the time derivative {jet} of order {order}, which the scheme "
                f"{b.scheme.name!r} does not have. "
                + ("Use time_scheme='central'." if order == 2 else "Write it as a system of first order in time.")
            )
        assert b.step is not None
        scaled = tuple((level, c / b.step**order) for level, c in levels)
        return b.leaf(jet.field, index, scaled, times=(b.time or "") * order).symbol

    def derivative(self, derivative: sympy.Derivative, where: str) -> sympy.Expr:
        """A derivative of an expression, term by term."""
        counts = {x: int(n) for x, n in derivative.variable_count}
        inner = derivative.expr
        if all(x in self.builder.axis_symbols for x in counts):
            terms = sympy.Add.make_args(inner.expand(mul=True, power_base=False, power_exp=False, log=False))
        else:
            terms = (inner,)
        return sympy.Add(*(self.term(term, counts, where) for term in terms))

    def term(self, term: sympy.Expr, counts: dict[sympy.Symbol, int], where: str) -> sympy.Expr:
        factors = sympy.Mul.make_args(term)
        number = sympy.Mul(*(f for f in factors if f.free_symbols <= self.builder.constants))
        rest = [f for f in factors if not f.free_symbols <= self.builder.constants]
        if all(x in self.builder.axis_symbols for x in counts):
            if self.pointwise(sympy.Mul(*rest)):
                return number * self.stencil(sympy.Mul(*rest), counts, where)
            slopes = [f for f in rest if isinstance(f, sympy.Derivative)]
            others = [f for f in rest if not isinstance(f, sympy.Derivative)]
            if len(slopes) == 1 and sum(counts.values()) == 1 and self.pointwise(sympy.Mul(*others)):
                (slope,) = slopes
                same = {x: int(n) for x, n in slope.variable_count} == counts
                if same and self.pointwise(slope.expr):
                    return number * self.flux(sympy.Mul(*others), slope.expr, next(iter(counts)), where)
        whole = sympy.Derivative(term, *counts.items(), evaluate=False)
        return self.carried_out(whole, where)

    def pointwise(self, expression: sympy.Expr) -> bool:
        """Only fields."""
        if expression.atoms(sympy.Derivative):
            return False
        functions = {f: sympy.Dummy() for f in expression.atoms(AppliedUndef)}
        return expression.xreplace(functions).free_symbols <= set(functions.values())

    def stencil(self, expression: sympy.Expr, counts: dict[sympy.Symbol, int], where: str) -> sympy.Expr:
        """A stencil of an expression in fields."""
        b = self.builder
        if not expression.atoms(AppliedUndef):
            return sympy.S.Zero
        if isinstance(expression, AppliedUndef):
            return self.jet(sympy.Derivative(expression, *counts.items(), evaluate=False), where)
        index = tuple(counts.get(b.pde.coordinate_symbols[axis], 0) for axis in b.axes)
        values = self.convert(expression, where)
        key = (values, index)
        if key not in b.composites:
            name = f"q{len(b.composites)}_{''.join(axis * n for axis, n in zip(b.axes, index, strict=True))}"
            leaves = [leaf for leaf in b.leaves.values() if leaf.symbol in values.free_symbols]
            b.composites[key] = Composite(name, sympy.Symbol(f"{name}!", real=True), values, index, tuple(leaves))
        return b.composites[key].symbol

    def flux(self, g: sympy.Expr, f: sympy.Expr, x: sympy.Symbol, where: str) -> sympy.Expr:
        """D(g D(f, x), x) in the compact form."""
        second = {x: 2}
        if not g.atoms(AppliedUndef):
            return g * self.stencil(f, second, where)
        one, other = self.convert(g, where), self.convert(f, where)
        both = self.stencil(g * f, second, where)
        return (both + one * self.stencil(f, second, where) - other * self.stencil(g, second, where)) / 2

    def carried_out(self, derivative: sympy.Derivative, where: str) -> sympy.Expr:
        """By product and chain rule, then converted."""
        b = self.builder
        expanded = b.space.expand(derivative)
        jets = {s: b.space.names.derivative_of(jet) for s, jet in b.space.jets.items() if s in expanded.free_symbols}
        return self.convert(expanded.xreplace(jets), where)


def _number(value: float) -> sympy.Expr:
    return sympy.Integer(int(value)) if value == int(value) else sympy.Float(value, 17)
