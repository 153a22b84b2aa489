"""PDE: fields, coordinates, parameters and equations, as one symbolic value."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

import sympy
from sympy.core.function import AppliedUndef

from pinnfuse.errors import nearest
from pinnfuse.pde.calculus import JetSpace, rebuild
from pinnfuse.pde.functions import CLASSES
from pinnfuse.pde.jet import Jet, split_names
from pinnfuse.pde.namespace import Namespace
from pinnfuse.pde.parser import check_numbers, parse
from pinnfuse.pde.printing import to_latex, to_text
from pinnfuse.pde.symbols import D, Data, Parameter

__all__ = ["PDE"]


class PDE:
    """A system of partial differential equations, each "expression = 0". Immutable; knows no grid, network or device.

        pde = PDE(
            fields="u", coordinates="t x", parameters={"nu": 0.01},
            equations={"burgers": "u_t + D(u**2/2, x) - nu*u_xx"},
        )

    Text may hold derivatives by suffix (`u_txx`), `D(expression, x, 2)`, `laplacian(u)` (all coordinates but one
    named `t`, or those listed: `laplacian(u, x, y)`), `biharmonic(u)`, functions of coordinates, and one "=".

    Args:
        fields: unknown functions, names in one string or a sequence; their order is the network's column order.
            Functions of sympy (`field("u", t, x)`) are accepted too.
        coordinates: their names, in the order of the columns of the points. May be left out if fields are functions.
        parameters: {"nu": 0.01} for constants, {"nu": Parameter(...)} or [Parameter(...), ...] for trained ones.
        equations: {name: text or sympy expression or sympy.Eq}; a single equation is called "equation".
        data: names of per-point data columns, or `Data` objects.
        name: for printing.

    Attributes:
        equations: as the author wrote them; D(u**2/2, x) is not carried out, so a grid can conserve it.
        jet_equations: with all derivatives carried out, in jet symbols, coordinates, parameters and data columns.
        derivatives: the jets that occur in `jet_equations`, values included, by field, order and coordinate.
        jet_symbols, coordinate_symbols, parameter_symbols, data_symbols: the symbols in `jet_equations`.
        field_functions: the fields as sympy functions, as they occur in `equations`.

    Raises:
        ValueError: a name that clashes or is unknown, text outside the language (with its position), a derivative of
            a data column or of a jump, an equation that holds no field (nor a trained parameter) or is always zero.
    """

    def __init__(
        self,
        fields: str | Sequence[Any],
        coordinates: str | Sequence[Any] | None = None,
        parameters: Mapping[str, float | Parameter] | Sequence[Parameter] | None = None,
        equations: Mapping[str, Any] | str | sympy.Basic | None = None,
        data: str | Sequence[str | Data] | Data = (),
        name: str | None = None,
    ) -> None:
        if coordinates is None:
            coordinates = _common_arguments(fields)
        self.fields: tuple[str, ...] = _names("fields", fields)
        self.coordinates: tuple[str, ...] = _names("coordinates", coordinates)
        self.parameters: dict[str, Parameter] = _parameters(parameters)
        self.data: tuple[str, ...] = _names("data", data)
        if name is not None and not isinstance(name, str):
            raise ValueError(f"PDE: `name` must be text; got {name!r}.")
        self.name = name

        names = Namespace(self.fields, self.coordinates, tuple(self.parameters), self.data)
        self.coordinate_symbols: dict[str, sympy.Symbol] = names.coordinate_symbols
        self.parameter_symbols: dict[str, sympy.Symbol] = names.parameter_symbols
        self.data_symbols: dict[str, sympy.Symbol] = names.data_symbols
        self.field_functions: dict[str, AppliedUndef] = names.functions

        self.equations: dict[str, sympy.Expr] = {}
        self.jet_equations: dict[str, sympy.Expr] = {}
        space = JetSpace(names)
        for key, written in _named(equations).items():
            where = f"PDE: equation {key!r}"
            try:
                equation = _read(written, where, names)
                expanded = space.expand(equation)
            except ValueError as error:
                raise error if str(error).startswith(where) else ValueError(f"{where}: {error}") from error
            self._check_content(where, expanded, space)
            self.equations[key], self.jet_equations[key] = equation, expanded
        free: set[Any] = set().union(*(expression.free_symbols for expression in self.jet_equations.values()))
        used = [(jet, jet_symbol) for jet_symbol, jet in space.jets.items() if jet_symbol in free]
        used.sort(key=lambda pair: (self.fields.index(pair[0].field), pair[0].order, [-n for n in pair[0].index]))
        self.jet_symbols: dict[Jet, sympy.Symbol] = dict(used)

    def _check_content(self, where: str, expanded: sympy.Expr, space: JetSpace) -> None:
        trained = {self.parameter_symbols[p.name] for p in self.parameters.values() if p.trainable}
        if expanded.is_zero:
            raise ValueError(f"{where} is zero whatever the fields are; its derivatives cancel.")
        if not expanded.free_symbols & (space.jets.keys() | trained):
            raise ValueError(
                f"{where} holds none of the fields {', '.join(self.fields)} and no trained parameter, so nothing can "
                "make it smaller."
            )

    @property
    def derivatives(self) -> tuple[Jet, ...]:
        """The jets that occur, values included."""
        return tuple(self.jet_symbols)

    @property
    def order(self) -> int:
        """The highest order of a derivative."""
        return max((jet.order for jet in self.derivatives), default=0)

    def to_text(self) -> dict[str, str]:
        """{name: equation} in the text language; `PDE` reads it back to an equal PDE."""
        return {key: to_text(equation, self.coordinates) for key, equation in self.equations.items()}

    def to_latex(self) -> str:
        r"""All equations in one `aligned` environment, for display mathematics."""
        rows = [f"{to_latex(equation, self.coordinates)} &= 0" for equation in self.equations.values()]
        return "\\begin{aligned}\n" + " \\\\\n".join(rows) + "\n\\end{aligned}"

    def replace(self, **changes: Any) -> PDE:
        """The same PDE with other constructor arguments, e.g. `pde.replace(parameters={"nu": 0.1})`."""
        arguments = self._arguments()
        for name in changes:
            if name not in arguments:
                raise ValueError(f"PDE.replace: unknown argument {name!r}. {nearest(name, arguments)}")
        return PDE(**{**arguments, **changes})

    def _arguments(self) -> dict[str, Any]:
        return {
            "fields": self.fields,
            "coordinates": self.coordinates,
            "parameters": tuple(self.parameters.values()),
            "equations": self.equations,
            "data": self.data,
            "name": self.name,
        }

    def __repr__(self) -> str:
        lines = [f"PDE {self.name}" if self.name else "PDE"]
        lines[0] += f" of {', '.join(self.fields)} in {', '.join(self.coordinates)}"
        if self.parameters:
            lines[0] += "; " + ", ".join(_describe(parameter) for parameter in self.parameters.values())
        if self.data:
            lines[0] += f"; data {', '.join(self.data)}"
        return "\n".join(lines + [f"  {key}: {text} = 0" for key, text in self.to_text().items()])

    def __eq__(self, other: object) -> bool:
        return self._key() == other._key() if isinstance(other, PDE) else NotImplemented

    def __hash__(self) -> int:
        return hash(self._key())

    def _key(self) -> tuple[Any, ...]:
        parameters, equations = tuple(self.parameters.values()), tuple(self.equations.items())
        return self.fields, self.coordinates, parameters, self.data, self.name, equations

    def __reduce__(self) -> tuple[Any, ...]:
        # as text: sympy evaluates what it unpickles, and before 1.14 cannot pickle an undefined function
        equations = {key: _Printed(text) for key, text in self.to_text().items()}
        return _restore, ({**self._arguments(), "equations": equations},)

    def __copy__(self) -> PDE:
        return self

    def __deepcopy__(self, memo: dict[int, Any]) -> PDE:
        return self


class _Printed(str):
    """Text that a PDE has printed: free of the limits on what a user may write."""


def _restore(arguments: dict[str, Any]) -> PDE:
    return PDE(**arguments)


def _describe(parameter: Parameter) -> str:
    kinds = [kind for kind, is_so in (("trained", parameter.trainable), ("positive", parameter.positive)) if is_so]
    return f"{parameter.name} = {parameter.value!r}" + (f" ({', '.join(kinds)})" if kinds else "")


def _names(argument: str, names: Any) -> tuple[str, ...]:
    """Names from text, from a sequence of text, symbols, functions or Data, or from one of these."""
    if isinstance(names, str):
        return split_names(names)
    if isinstance(names, Data | sympy.Basic):
        names = (names,)
    if not isinstance(names, Sequence):
        raise ValueError(f'PDE: `{argument}` must be text like "u v p" or a sequence of names; got {names!r}.')
    return tuple(
        str(name.func)
        if isinstance(name, AppliedUndef)
        else name.name
        if isinstance(name, Data | sympy.Symbol)
        else name
        for name in names
    )


def _common_arguments(fields: Any) -> tuple[Any, ...]:
    functions = (fields,) if isinstance(fields, sympy.Basic) else fields
    arguments = {f.args if isinstance(f, AppliedUndef) else None for f in functions}
    if len(arguments) != 1 or None in arguments:
        raise ValueError(
            'PDE: `coordinates` is missing; give their names, e.g. coordinates="t x" (only where all fields are sympy '
            "functions of the same coordinates can it be left out)."
        )
    return arguments.pop() or ()


def _parameters(parameters: Any) -> dict[str, Parameter]:
    if parameters is None:
        return {}
    if isinstance(parameters, Parameter):
        parameters = [parameters]
    if not isinstance(parameters, Mapping):
        if not isinstance(parameters, Sequence) or not all(isinstance(p, Parameter) for p in parameters):
            raise ValueError(
                'PDE: `parameters` must be a mapping like {"nu": 0.01} or a sequence of Parameter; '
                f"got {parameters!r}."
            )
        names = [parameter.name for parameter in parameters]
        if len(set(names)) != len(names):
            raise ValueError(f"PDE: `parameters` declares a name twice: {', '.join(names)}.")
        parameters = dict(zip(names, parameters, strict=True))
    made = {name: p if isinstance(p, Parameter) else Parameter(name, p) for name, p in parameters.items()}
    for name, parameter in made.items():
        if parameter.name != name:
            raise ValueError(f"PDE: `parameters` has Parameter({parameter.name!r}) under the name {name!r}.")
    return made


def _named(equations: Any) -> dict[str, Any]:
    if isinstance(equations, str | sympy.Basic):
        equations = {"equation": equations}
    if not isinstance(equations, Mapping) or not equations:
        raise ValueError(
            f'PDE: `equations` must be a non-empty mapping like {{"heat": "u_t - u_xx"}}; got {equations!r}.'
        )
    for key in equations:
        if not isinstance(key, str) or not re.fullmatch(r"[A-Za-z][A-Za-z0-9_]{0,63}", key):
            raise ValueError(
                f"PDE: the equation name {key!r} must be a letter, then letters, digits or _ (at most 64): losses are "
                "logged under it."
            )
    return dict(equations)


def _read(written: Any, where: str, names: Namespace) -> sympy.Expr:
    if isinstance(written, str):
        limited = not isinstance(written, _Printed)
        return parse(
            written, where, names.resolve, names.known, names.operators, names.explain, equation=True, limited=limited
        )
    if isinstance(written, sympy.Eq):
        written = written.lhs - written.rhs
    if not isinstance(written, sympy.Expr):
        raise ValueError(f"{where} must be text or a sympy expression; got {type(written).__name__}.")
    equation = _adopt(written, names)
    check_numbers(equation)
    return equation


def _adopt(expression: sympy.Expr, names: Namespace) -> sympy.Expr:
    """An author's sympy expression with our real symbols; nothing is carried out."""
    if isinstance(expression, sympy.Symbol):
        found = names.resolve(expression.name)
        if found is None:
            raise ValueError(
                f"unknown symbol {expression.name!r}. {names.explain(expression.name)}"
                f"{nearest(expression.name, names.known)}"
            )
        return found
    if isinstance(expression, AppliedUndef):
        function = names.functions.get(str(expression.func))
        arguments = sorted(str(argument) for argument in expression.args)
        if function is None or arguments != sorted(names.coordinates):
            raise ValueError(
                f"{expression} is not a field of this PDE; the fields are "
                f"{', '.join(map(str, names.functions.values()))}."
            )
        return function
    if isinstance(expression, sympy.Derivative):
        counts = [part for x, n in expression.variable_count for part in (_adopt(x, names), n)]
        return D(_adopt(expression.expr, names), *counts)
    if isinstance(expression, sympy.Float):
        return sympy.Float(float(expression))
    if expression.is_Number or expression.is_NumberSymbol:
        if not (expression.is_finite and expression.is_real):
            raise ValueError(f"{expression} is not a finite real number.")
        return expression
    if not isinstance(expression, sympy.Add | sympy.Mul | sympy.Pow) and expression.func not in CLASSES:
        known = ", ".join(row.name for row in CLASSES.values())
        raise ValueError(
            f"{str(expression)[:60]!r} ({type(expression).__name__}) is outside the equation language. It has sums, "
            f"products, powers, derivatives of fields and the functions {known}."
        )
    return rebuild(expression, [_adopt(argument, names) for argument in expression.args])
