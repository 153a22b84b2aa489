"""Write the Triton source of a discrete PDE: residuals with their loss, and the gradient by transposed stencils.

    jets                the stencils of all fields at one point
    residuals           the residuals there
    slopes              derivatives of the loss by every stencil's value there
    loss_kernel         residuals over tiles, partial sums, and their sum by the last program to finish
    gradient_kernel     per field value, slopes of the rows that read it times their weights (`gather`)
    coefficient_kernel  derivatives of the loss by parameters (partial sums) and by data columns

Positions are indices per axis, [BY, 1] and [1, BX] for the last two axes and scalars before. In tiles next to an end
(EDGE) they wrap along periodic axes and are clamped along others, so that no load needs a mask, and rows near walls
take their own weights. Elsewhere offsets are plain. Same discretisation, same text, in every process.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import sympy

from pinnfuse.grid.discretise import Composite, Leaf
from pinnfuse.grid.reference import Scheme
from pinnfuse.grid.stencils import AxisStencil
from pinnfuse.pde.calculus import differentiate

SEEDED, SAVED, RECOMPUTED = 0, 1, 2
"""Where `slopes` takes the residuals' derivatives from: given, from stored residuals, from residuals formed again."""

Place = Mapping[str, str]
"""Axis name -> code of the index."""


def shared_code(*arguments: Any) -> tuple[str, ...]:
    """`pinnfuse.kernels.jets.pointwise.shared_code`, whose package needs Triton."""
    from pinnfuse.kernels.jets import pointwise

    return pointwise.shared_code(*arguments)


def signed(value: float) -> str:
    return repr(value) if value >= 0 else f"({value!r})"


@dataclass(frozen=True)
class Names:
    """Identifiers of one scheme, and the argument lists that the generated functions share."""

    scheme: Scheme

    @property
    def axes(self) -> tuple[str, ...]:
        return self.scheme.grid.axes

    @property
    def equations(self) -> range:
        return range(len(self.scheme.form.residuals))

    @property
    def data(self) -> tuple[str, ...]:
        return self.scheme.form.pde.data

    @property
    def parameters(self) -> tuple[str, ...]:
        return self.scheme.form.parameters

    @property
    def field_strides(self) -> list[str]:
        """The last axis has stride 1."""
        return ["s_t", "s_c", *(f"s_{a}" for a in self.axes[:-1])]

    @property
    def sizes(self) -> list[str]:
        return [f"n_{a}" for a in self.axes]

    def strides(self, prefix: str) -> list[str]:
        """Of a tensor in any strides, behind batch and time."""
        return [f"{prefix}_{a}" for a in self.axes]

    @cached_property
    def point(self) -> list[str]:
        """Arguments of what is evaluated at a point."""
        data = [f"d_{name}" for name in self.data]
        strides = [s for name in self.data for s in self.strides(f"s_{name}")]
        parameters = [f"p_{name}" for name in self.parameters]
        return ["u", *data, *parameters, "t", *self.field_strides, *strides, *self.sizes]

    @cached_property
    def seeds(self) -> list[str]:
        """Further arguments of `slopes`."""
        scales = [f"scale{e}" for e in self.equations]
        return ["r", "w", *scales, "s_re", *self.strides("s_r"), "s_we", *self.strides("s_w")]

    @property
    def indices(self) -> list[str]:
        return [f"i_{a}" for a in self.axes]

    def place(self, place: Place | None = None) -> str:
        return ", ".join((place or {}).get(a, f"i_{a}") for a in self.axes)

    def call(self, function: str, place: Place | None, arguments: Sequence[str], *flags: str) -> str:
        return f"{function}({', '.join([self.place(place), *arguments, *flags])})"

    def define(self, function: str, arguments: Sequence[str], *flags: str) -> str:
        names = ", ".join([*self.indices, *arguments, *(f"{flag}: tl.constexpr" for flag in flags)])
        return f"@triton.jit\ndef {function}({names}):"

    def at(self, pointer: str, strides: Sequence[str], place: Place | None = None) -> str:
        """Load from a tensor with one stride per axis. The hint lays a warp along the last axis, also where indices
        wrap or are clamped; it cannot cause vectors, since strides have no known divisors."""
        index = [(place or {}).get(a, f"i_{a}") for a in self.axes]
        terms = [f"({i}) * {s}" for i, s in zip(index, strides, strict=True)]
        offset = " + ".join(terms)
        if len(self.axes) > 1:
            offset = f"tl.max_contiguous({offset}, [1, i_{self.axes[-1]}.shape[1]])"
        return f"tl.load({pointer} + {offset}).to(ACC)"

    def symbols(self) -> dict[sympy.Symbol, str]:
        """Code of the symbols in residuals."""
        form = self.scheme.form
        names = {part.symbol: f"j_{part.name}" for part in form.parts}
        names |= {form.pde.coordinate_symbols[a]: f"x_{a}" for a in self.axes}
        if form.time:
            names[form.pde.coordinate_symbols[form.time]] = "t"
        names |= {form.pde.parameter_symbols[p]: f"p_{p}" for p in self.parameters}
        return names | {form.pde.data_symbols[d]: f"f_{d}" for d in self.data}


def indented(lines: Sequence[str], levels: int = 1) -> str:
    return "\n".join("    " * levels + line for entry in lines for line in entry.split("\n"))


class Functions:
    """The functions below the kernels."""

    def __init__(self, scheme: Scheme) -> None:
        self.scheme, self.form, self.names = scheme, scheme.form, Names(scheme)
        self.derivatives: dict[tuple[tuple[int, AxisStencil], ...], str] = {}
        self.texts: list[str] = []

    def text(self) -> str:
        n = self.names
        value = [*(f"s_{a}" for a in n.axes[:-1])]
        self.field_arguments = ["f", *value, *n.sizes]
        load = n.at("f", [*value, "1"]).replace(" * 1,", ",").replace(" * 1)", ")")
        self.texts.append(
            n.define("value", self.field_arguments, "ACC", "EDGE") + f'\n    """A field\'s value"""\n    return {load}'
        )
        for leaf in self.form.leaves:
            self.derivative(self.scheme.stencils(leaf))
        for composite in self.form.composites:
            self.composite(composite)
        self.texts += [self.jets(), self.residuals(), self.slopes()]
        return "\n\n\n".join(self.texts)

    # -- stencils ------------------------------------------------------------------------------------------------

    def derivative(self, formulas: tuple[tuple[int, AxisStencil], ...]) -> str:
        """The name of the function that applies formulas, the first innermost, to a field."""
        if not formulas:
            return "value"
        if formulas not in self.derivatives:
            inner = self.derivative(formulas[:-1])
            axes = "".join(self.names.axes[k] for k, _ in formulas)
            name = f"d{len(self.derivatives)}_{axes}"
            self.derivatives[formulas] = name
            self.stencil(
                name, self.field_arguments, lambda p: self.names.call(inner, p, self.field_arguments, "ACC", "EDGE"),
                *formulas[-1],
            )  # fmt: skip
        return self.derivatives[formulas]

    def stencil(
        self, name: str, arguments: Sequence[str], inner: Callable[[Place], str], k: int, formula: AxisStencil
    ) -> None:
        axis = self.names.axes[k]
        i, n = f"i_{axis}", f"n_{axis}"
        pairs = list(zip(formula.offsets, formula.weights, strict=True))
        plain, edge = (
            [f"{signed(w)} * {inner(dict(shifted(axis, o, near, formula.periodic)))}" for o, w in pairs]
            for near in (False, True)
        )
        lines = ["if EDGE:", *(f"    {line}" for line in added("v", edge))]
        for rows, end in ((formula.low, False), (formula.high, True)):
            for r, row in enumerate(rows):
                terms = [
                    f"{signed(w)} * {inner(dict(shifted(axis, r - c if end else c - r, True, False)))}"
                    for c, w in zip(row.offsets_from_that_end, row.weights, strict=True)
                ]
                terms = terms or ["v * 0.0"]  # a bare number would be float32
                if row.constant:
                    terms.append(signed(row.constant))
                lines += [f"    {line}" for line in added("row", terms)]
                lines.append(f"    v = tl.where({i} == {row_index(n, r, end)}, row, v)")
        lines += ["else:", *(f"    {line}" for line in added("v", plain)), "return v"]
        self.texts.append(f"{self.names.define(name, arguments, 'ACC', 'EDGE')}\n{indented(lines)}")

    def composite(self, composite: Composite) -> None:
        """The expression at a point, then its stencils."""
        n, name = self.names, f"e_{composite.name}"
        symbols = n.symbols()
        lines = [f"{symbols[leaf.symbol]} = {self.leaf(leaf)}" for leaf in composite.arguments]
        lines += [*shared_code([composite.expression], symbols, "c", ["v"]), "return v"]
        self.texts.append(f"{n.define(name, n.point, 'ACC', 'EDGE')}\n{indented(lines)}")
        formulas = self.scheme.stencils(composite)
        for level, (k, formula) in enumerate(formulas):
            inner, name = name, f"{name}_{level}" if level + 1 < len(formulas) else composite.name

            def call(place: Place, inner: str = inner) -> str:
                return n.call(inner, place, n.point, "ACC", "EDGE")

            self.stencil(name, n.point, call, k, formula)

    def leaf(self, leaf: Leaf) -> str:
        """Code of a leaf's value at the current position."""
        channel = self.form.pde.fields.index(leaf.field)
        function = self.derivative(self.scheme.stencils(leaf))
        terms = []
        for level, c in leaf.levels:
            arguments = [f"u + {level} * s_t + {channel} * s_c", *self.field_arguments[1:]]
            call = self.names.call(function, None, arguments, "ACC", "EDGE")
            terms.append(call if c == 1 else f"{signed(c)} * {call}")
        return " + ".join(terms)

    # -- points --------------------------------------------------------------------------------------------------

    def jets(self) -> str:
        n = self.names
        lines = [f"j_{leaf.name} = {self.leaf(leaf)}" for leaf in self.form.leaves]
        lines += [f"j_{c.name} = {n.call(c.name, None, n.point, 'ACC', 'EDGE')}" for c in self.form.composites]
        return f"{n.define('jets', n.point, 'ACC', 'EDGE')}\n{indented([*lines, f'return {self.all_jets}'])}"

    @property
    def all_jets(self) -> str:
        return ", ".join(f"j_{part.name}" for part in self.form.parts) + ","

    def known(self, expressions: Sequence[sympy.Expr]) -> list[str]:
        """Lines that make jets, coordinates and data known at a point."""
        n = self.names
        free: set[sympy.Basic] = set().union(*(e.free_symbols for e in expressions))
        lines = []
        if self.form.leaves:
            lines.append(f"{self.all_jets} = {n.call('jets', None, n.point, 'ACC', 'EDGE')}")
        for a, h in zip(n.axes, self.scheme.grid.spacing, strict=True):
            if self.form.pde.coordinate_symbols[a] in free:
                lines.append(f"x_{a} = i_{a}.to(ACC) * {h!r} + {signed(self.scheme.first[a])}")
        for name in n.data:
            if self.form.pde.data_symbols[name] in free:
                lines.append(f"f_{name} = {n.at(f'd_{name}', n.strides(f's_{name}'))}")
        return lines

    def residuals(self) -> str:
        n = self.names
        results = [f"r{e}" for e in n.equations]
        lines = [*self.known(self.form.residuals), *shared_code(self.form.residuals, n.symbols(), "e", results)]
        lines.append(f"return {', '.join(results)},")
        return f"{n.define('residuals', n.point, 'ACC', 'EDGE')}\n{indented(lines)}"

    @cached_property
    def targets(self) -> list[tuple[str, sympy.Symbol]]:
        """What slopes are taken by: every stencil's value, parameter and data column, with the name of the slope."""
        form = self.form
        found = [(f"v_{part.name}", part.symbol) for part in form.parts]
        found += [(f"t_{name}", form.pde.parameter_symbols[name]) for name in form.parameters]
        return found + [(f"t_{name}", form.pde.data_symbols[name]) for name in form.pde.data]

    def slopes(self) -> str:
        n, form = self.names, self.form
        upstream = [sympy.Symbol(f"q{e}!", real=True) for e in n.equations]
        symbols = n.symbols() | {q: f"q{e}" for e, q in enumerate(upstream)}
        deltas = lambda e: e.replace(lambda part: isinstance(part, sympy.DiracDelta), lambda _: sympy.S.Zero)  # noqa: E731
        results = [
            sympy.Add(*(q * deltas(differentiate(r, s)) for q, r in zip(upstream, form.residuals, strict=True)))
            for _, s in self.targets
        ]
        code = shared_code(results, symbols, "d", [name for name, _ in self.targets])
        code = tuple(line if line.split(" = ")[1] != "0.0" else f"{line.split(' = ')[0]} = q0 * 0.0" for line in code)
        again = shared_code(form.residuals, symbols, "e", [f"q{e}" for e in n.equations])
        lines = self.known([*form.residuals, *results])
        lines += [f"if MODE == {RECOMPUTED}:", *(f"    {line}" for line in again), "else:"]
        for e in n.equations:
            lines.append(f"    q{e} = {n.at(f'r + {e} * s_re', n.strides('s_r'))}")
        lines.append(f"if MODE != {SEEDED}:")
        lines += [f"    q{e} = q{e} * scale{e}" for e in n.equations]
        lines.append("if WEIGHTED:")
        lines += [f"    q{e} = q{e} * {n.at(f'w + {e} * s_we', n.strides('s_w'))}" for e in n.equations]
        lines += [*code, "return " + ", ".join(name for name, _ in self.targets) + ","]
        head = n.define("slopes", [*n.point, *n.seeds], "MODE", "WEIGHTED", "ACC", "EDGE")
        return f"{head}\n{indented(lines)}"


def added(name: str, terms: Sequence[str]) -> list[str]:
    """A sum, one term a line."""
    return [f"{name} = {terms[0]}", *(f"{name} += {term}" for term in terms[1:])]


def shifted(axis: str, offset: int, edge: bool, periodic: bool) -> tuple[tuple[str, str], ...]:
    """(axis, code of the index `offset` further), nothing for 0; next to an end it wraps or is clamped."""
    if not offset:
        return ()
    code = f"i_{axis} {'+' if offset > 0 else '-'} {abs(offset)}"
    return ((axis, f"{'wrap' if periodic else 'clamp'}({code}, n_{axis})" if edge else code),)


def row_index(n: str, r: int, end: bool) -> str:
    return f"{n} - {1 + r}" if end else str(r)
