"""The names of one PDE and what each stands for; every clash is refused here."""

from __future__ import annotations

import keyword
import re
from collections.abc import Sequence

import sympy

from pinnfuse.pde.functions import CONSTANTS, FUNCTIONS
from pinnfuse.pde.jet import Jet, find_jet, why_no_jet
from pinnfuse.pde.symbols import D, Data, biharmonic, field, laplacian, symbol

__all__ = ["OPERATORS", "Namespace"]

OPERATORS = ("D", "laplacian", "biharmonic")
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9_]{0,63}")


class Namespace:
    """Fields, coordinates, parameters and data columns of a PDE, as names and as sympy symbols."""

    def __init__(
        self, fields: Sequence[str], coordinates: Sequence[str], parameters: Sequence[str], data: Sequence[str]
    ) -> None:
        _check(fields, coordinates, parameters, data)
        self.fields, self.coordinates = tuple(fields), tuple(coordinates)
        self.coordinate_symbols = {name: symbol(name) for name in coordinates}
        self.parameter_symbols = {name: symbol(name) for name in parameters}
        self.data_symbols = {name: Data(name).symbol for name in data}
        self.functions = {name: field(name, *self.coordinate_symbols.values()) for name in fields}
        self.operators = {"D": self.derivative, "laplacian": self.laplacian, "biharmonic": self.biharmonic}
        self.known: dict[str, sympy.Expr] = {
            **self.functions,
            **self.coordinate_symbols,
            **self.parameter_symbols,
            **self.data_symbols,
        }

    def resolve(self, name: str) -> sympy.Expr | None:
        """The expression that a name in an equation stands for; None if unknown."""
        if name in self.known:
            return self.known[name]
        jet = find_jet(name, self.fields, self.coordinates)
        return None if jet is None else self.derivative_of(jet)

    def explain(self, name: str) -> str:
        """Why `name` is not known, where it looks like a derivative."""
        return why_no_jet(name, self.fields, self.coordinates)

    def derivative_of(self, jet: Jet) -> sympy.Expr:
        """`u_xx` as Derivative(u(t, x), (x, 2))."""
        function = self.functions[jet.field]
        counts = [
            part for x, n in zip(self.coordinate_symbols.values(), jet.index, strict=True) if n for part in (x, n)
        ]
        return D(function, *counts) if counts else function

    def derivative(self, arguments: Sequence[sympy.Expr]) -> sympy.Expr:
        """`D(...)` in text."""
        for variable in arguments[1:]:
            if variable.is_Symbol and variable not in self.coordinate_symbols.values():
                raise ValueError(
                    f"D: {str(variable)!r} is not a coordinate; the coordinates are {', '.join(self.coordinates)}."
                )
        if not arguments:
            raise ValueError("D needs an expression and a coordinate: D(u, x).")
        return D(*arguments)

    def laplacian(self, arguments: Sequence[sympy.Expr]) -> sympy.Expr:
        """`laplacian(...)` in text."""
        space = self.space("laplacian", arguments)
        return laplacian(arguments[0], *space)

    def biharmonic(self, arguments: Sequence[sympy.Expr]) -> sympy.Expr:
        """`biharmonic(...)` in text."""
        space = self.space("biharmonic", arguments)
        return biharmonic(arguments[0], *space)

    def space(self, operator: str, arguments: Sequence[sympy.Expr]) -> list[sympy.Expr]:
        """The coordinates of a Laplacian: those named in the call, else all but one called "t"."""
        if not arguments:
            raise ValueError(f"{operator} needs an expression: {operator}(u).")
        known = self.coordinate_symbols.values()
        space = list(arguments[1:]) or [x for x in known if x.name != "t"]
        if not space or any(x not in known for x in space):
            raise ValueError(
                f"{operator} takes an expression and space coordinates, out of {', '.join(self.coordinates)}; without "
                f"any it takes all but 't'."
            )
        return space


def _check(fields: Sequence[str], coordinates: Sequence[str], parameters: Sequence[str], data: Sequence[str]) -> None:
    kinds = {"field": fields, "coordinate": coordinates, "parameter": parameters, "data column": data}
    for kind, argument in (("field", "fields"), ("coordinate", "coordinates")):
        if not kinds[kind]:
            raise ValueError(f'PDE: `{argument}` is empty; give at least one name, e.g. {argument}="u".')
    taken: dict[str, str] = {}
    for kind, names in kinds.items():
        for name in names:
            if not isinstance(name, str) or not _NAME.fullmatch(name):
                raise ValueError(
                    f"PDE: {name!r} is not a name for a {kind}: expected a letter, then letters, digits or _ (ASCII, "
                    "at most 64)."
                )
            if keyword.iskeyword(name):
                raise ValueError(f"PDE: {kind} {name!r} is a word of Python. Call it {name[:3]!r} or {name + '_'!r}.")
            if name in FUNCTIONS or name in CONSTANTS or name in OPERATORS:
                meaning = "the derivative D(expression, coordinate)" if name == "D" else f"the known {name}"
                raise ValueError(
                    f"PDE: {kind} {name!r} has the name of {meaning} in equations. Call it {name + '_'!r}, say."
                )
            if name in taken:
                both = f"twice as a {kind}" if taken[name] == kind else f"both as a {taken[name]} and as a {kind}"
                raise ValueError(f"PDE: {name!r} is declared {both}. Rename one.")
            taken[name] = kind
    for name, kind in taken.items():
        others = [other for other in fields if other != name]
        if "_" in name and find_jet(name, others, coordinates) is not None:
            raise ValueError(f"PDE: {kind} {name!r} reads as a derivative of a field. Rename it.")
