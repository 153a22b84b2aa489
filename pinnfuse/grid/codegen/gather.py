"""The gradient as a gather: per field value, which rows of the discrete equations read it, and with which weight.

A residual row i that reads u_j with weight W_ij gives du_j the share W_ij v_i, v_i the slope of the loss by that
stencil's value at row i. For the interior formula i = j - offset, where that row is an interior one; a row r near a
wall adds its own weights at the points it reads. Products of formulas along several axes transpose axis by axis.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import sympy

from pinnfuse.grid.codegen.functions import Functions, indented, row_index, shared_code, shifted, signed
from pinnfuse.grid.discretise import Composite, Leaf
from pinnfuse.grid.stencils import AxisStencil
from pinnfuse.pde.calculus import differentiate


@dataclass(frozen=True)
class Tap:
    """One row that reads the value: where it is, its weight, and the conditions under which it exists."""

    place: tuple[tuple[str, str], ...] = ()
    weight: float = 1.0
    conditions: tuple[str, ...] = field(default=())


def taps(axes: tuple[str, ...], formulas: tuple[tuple[int, AxisStencil], ...], edge: bool) -> list[Tap]:
    """All rows that read the value at the current position, through a product of formulas."""
    found = [Tap()]
    for k, formula in formulas:
        along = _along(axes[k], formula, edge)
        found = [
            Tap((*a.place, *b.place), a.weight * b.weight, (*a.conditions, *b.conditions)) for a in found for b in along
        ]
    return found


def _along(axis: str, formula: AxisStencil, edge: bool) -> list[Tap]:
    i, n = f"i_{axis}", f"n_{axis}"
    pairs = list(zip(formula.offsets, formula.weights, strict=True))
    found = []
    low, high = len(formula.low), len(formula.high)
    for o, w in pairs:
        inside = (f"({i} >= {low + o})", f"({i} < {n} - {signed(high - o)})") if edge and not formula.periodic else ()
        found.append(Tap(shifted(axis, -o, edge, formula.periodic), w, inside))
    if formula.periodic or not edge:
        return found
    for rows, end in ((formula.low, False), (formula.high, True)):
        for r, row in enumerate(rows):
            for c, w in zip(row.offsets_from_that_end, row.weights, strict=True):
                there = shifted(axis, c - r if end else r - c, True, False)
                found.append(Tap(there, w, (f"({i} == {row_index(n, c, end)})",)))
    return found


class Gather:
    """`gather_<level>`: the share of the residuals at one time in the gradient of level number `level` of theirs."""

    def __init__(self, functions: Functions) -> None:
        self.functions, self.scheme, self.form, self.names = (
            functions,
            functions.scheme,
            functions.form,
            functions.names,
        )

    def fields(self, level: int) -> list[str]:
        """Fields that the level enters with."""
        leaves = [leaf for leaf in self.form.leaves if dict(leaf.levels).get(level)]
        return [name for name in self.form.pde.fields if any(leaf.field == name for leaf in leaves)]

    def text(self, level: int) -> str:
        n = self.names
        head = n.define(f"gather_{level}", [*n.point, *n.seeds], "MODE", "WEIGHTED", "ACC", "EDGE")
        lines = ["if EDGE:", indented(self.block(level, True)), "else:", indented(self.block(level, False))]
        returned = ", ".join(f"g_{name}" for name in self.fields(level))
        return f"{head}\n{indented([*lines, f'return {returned},'])}"

    def block(self, level: int, edge: bool) -> list[str]:
        """Slopes at every row once, then the sums."""
        n, axes = self.names, self.names.axes
        leaves = [leaf for leaf in self.form.leaves if dict(leaf.levels).get(level)]
        composites = [c for c in self.form.composites if any(leaf in leaves for leaf in c.arguments)]
        sums: dict[str, list[str]] = {}
        calls: dict[tuple[tuple[str, str], ...], set[str]] = {}
        rows: list[str] = []
        parts: list[Leaf | Composite] = [*leaves, *composites]
        for part in parts:
            target = f"g_{part.field}" if isinstance(part, Leaf) else f"h_{part.name}"
            scale = dict(part.levels)[level] if isinstance(part, Leaf) else 1.0
            for tap in taps(axes, self.scheme.stencils(part), edge):
                place = tuple(sorted(tap.place))
                calls.setdefault(place, set()).add(f"v_{part.name}")
                term = f"{signed(scale * tap.weight)} * v_{part.name}_{list(calls).index(place)}"
                if tap.conditions:
                    term = f"tl.where({' & '.join(tap.conditions)}, {term}, 0.0)"
                sums.setdefault(target, []).append(term)
        order = [name for name, _ in self.functions.targets]
        for number, (place, wanted) in enumerate(calls.items()):
            left = ", ".join(f"{name}_{number}" if name in wanted else "_" for name in order)
            call = n.call("slopes", dict(place), [*n.point, *n.seeds], "MODE", "WEIGHTED", "ACC", "EDGE")
            rows.append(f"{left}, = {call}")
        for target, terms in sums.items():
            rows += [f"{target} = {terms[0]}", *(f"{target} += {term}" for term in terms[1:])]
        started = set(sums)
        for composite in composites:
            rows += self.chain(composite, level, started)
        return rows

    def chain(self, composite: Composite, level: int, started: set[str]) -> list[str]:
        """From the slope of an expression's value to those of the fields in it."""
        symbols = self.names.symbols()
        lines = [f"{symbols[leaf.symbol]} = {self.functions.leaf(leaf)}" for leaf in composite.arguments]
        leaves = [leaf for leaf in composite.arguments if dict(leaf.levels).get(level)]
        upstream = sympy.Symbol("h!", real=True)
        results = [
            upstream * differentiate(composite.expression, leaf.symbol) * sympy.Float(dict(leaf.levels)[level], 17)
            for leaf in leaves
        ]
        names = symbols | {upstream: f"h_{composite.name}"}
        lines += shared_code(results, names, "c", [f"k_{leaf.name}" for leaf in leaves])
        for leaf in leaves:
            target = f"g_{leaf.field}"
            lines.append(f"{target} {'+=' if target in started else '='} k_{leaf.name}")
            started.add(target)
        return lines
