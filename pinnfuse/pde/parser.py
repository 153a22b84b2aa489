"""Text to sympy, by a whitelist over Python's `ast`. Nothing in the text is ever executed.

The language: numbers, names, + - * / **, parentheses, and calls of the functions in `functions.py` (and, inside a PDE,
of D, laplacian and biharmonic). A constant part is also followed in double precision: it is refused before sympy
would compute an integer of a billion digits.
"""

from __future__ import annotations

import ast
import operator
import re
from collections.abc import Callable, Mapping, Sequence
from typing import NoReturn

import sympy

from pinnfuse.errors import nearest
from pinnfuse.pde.functions import CONSTANTS, FUNCTIONS, apply

__all__ = ["parse", "parse_expression"]

MAX_CHARACTERS = 20_000
MAX_NODES = 5_000
MAX_DEPTH = 50
MAX_EXPONENT = 100
MAX_BITS = 1000  # of an exact number's numerator or denominator; it then fits a double

Operator = Callable[[Sequence[sympy.Expr]], sympy.Expr]
Value = tuple[sympy.Expr, "float | None"]  # the expression, and its value where it is a constant

_ALLOWED = "numbers, names, + - * / **, parentheses and the functions "
_FORBIDDEN = re.compile(r"[^A-Za-z0-9_+\-*/()., \t\r\n]")
_HINTS = {"^": " For a power write **.", "=": " Write an equation as one `left = right`."}
_NODES = {
    ast.Compare: "a comparison",
    ast.BoolOp: "and/or",
    ast.IfExp: "if/else",
    ast.Tuple: "a tuple",
    ast.Starred: "unpacking",
}


def parse_expression(text: str, symbols: Mapping[str, sympy.Symbol]) -> sympy.Expr:
    """A function of `symbols`, e.g. "sin(pi*x)*exp(-t)", as a sympy expression.

    Args:
        text: the expression; no derivatives and no "=".
        symbols: name -> symbol (coordinates, parameters, network outputs ...).

    Raises:
        ValueError: not in the language (with its position), an unknown name, or a name that shadows a function.
    """
    for name in symbols:
        if name in FUNCTIONS or name in CONSTANTS:
            raise ValueError(f"parse_expression: `symbols` redefines {name!r}, which the language owns. Rename it.")
    return parse(text, "parse_expression: `text`", symbols.get, symbols)


def parse(
    text: str,
    where: str,
    resolve: Callable[[str], sympy.Expr | None],
    known: Mapping[str, object],
    operators: Mapping[str, Operator] | None = None,
    explain: Callable[[str], str] = lambda name: "",
    equation: bool = False,
    limited: bool = True,
) -> sympy.Expr:
    """Parse `text`.

    Args:
        text: the expression.
        where: how an error message starts, e.g. "PDE: equation 'heat'".
        resolve: name -> expression, or None for an unknown one; may raise ValueError with its own reason.
        known: the names to list for an unknown one.
        operators: functions of this caller, beside the common ones; they may raise ValueError.
        explain: more to say about an unknown name.
        equation: whether "left = right" is accepted; it gives left - right.
        limited: whether the limits on length and number of parts apply.
    """
    return _Parser(text, where, resolve, known, operators or {}, explain, limited).run(equation)


class _Parser:
    def __init__(
        self,
        text: str,
        where: str,
        resolve: Callable[[str], sympy.Expr | None],
        known: Mapping[str, object],
        operators: Mapping[str, Operator],
        explain: Callable[[str], str],
        limited: bool,
    ) -> None:
        self.text, self.where, self.resolve, self.known = text, where, resolve, known
        self.operators, self.explain, self.limited = operators, explain, limited
        self.start = 0  # offset in `text` of the piece that ast sees
        self.nodes = 0

    def fail(self, message: str, offset: int) -> NoReturn:
        """Raise with the line, the column and a caret."""
        before = self.text[:offset]
        line, column = before.count("\n") + 1, offset - (before.rfind("\n") + 1)
        shown = self.text.split("\n")[line - 1]
        left = max(0, column - 50)
        excerpt = shown[left : left + 100].replace("\t", " ").replace("\r", " ")
        raise ValueError(
            f"{self.where}, line {line}, column {column + 1}: {message}\n    {excerpt}\n    {' ' * (column - left)}^"
        )

    def fail_at(self, message: str, node: ast.AST) -> NoReturn:
        self.fail(message, self.start + getattr(node, "col_offset", 0))

    def end(self, node: ast.expr) -> int:
        return self.start + (node.end_col_offset or 0)

    def allowed(self) -> str:
        return f"Allowed: {_ALLOWED}{', '.join([*FUNCTIONS, *self.operators])}."

    def run(self, equation: bool) -> sympy.Expr:
        text = self.text
        if not isinstance(text, str):
            raise ValueError(f"{self.where}: expected text, got {type(text).__name__}.")
        if self.limited and len(text) > MAX_CHARACTERS:
            self.fail(f"the text has {len(text)} characters, more than {MAX_CHARACTERS}.", MAX_CHARACTERS)
        equals = text.find("=") if equation else -1
        for match in _FORBIDDEN.finditer(text):
            if match.start() != equals:
                hint = _HINTS.get(match.group(), "")
                self.fail(f"{match.group()!r} is not allowed.{hint} {self.allowed()}", match.start())
        if equals < 0:
            return self.side(0, len(text))
        return self.side(0, equals) - self.side(equals + 1, len(text))

    def side(self, start: int, stop: int) -> sympy.Expr:
        """Parse text[start:stop]."""
        piece = re.sub(r"\s", " ", self.text[start:stop])
        self.start = start + len(piece) - len(piece.lstrip())
        piece = piece.strip()
        if not piece:
            self.fail(f"the expression is empty. {self.allowed()}", min(start, max(len(self.text) - 1, 0)))
        depth = 0
        for offset, character in enumerate(piece):
            depth += (character == "(") - (character == ")")
            if depth > MAX_DEPTH:
                self.fail(f"parentheses are nested more than {MAX_DEPTH} deep.", self.start + offset)
        try:
            tree = ast.parse(piece, mode="eval")
        except SyntaxError as error:
            offset = min(error.offset or len(piece), len(piece)) - 1  # Python says 0 for an unexpected end
            self.fail(f"{error.msg or 'invalid syntax'}. {self.allowed()}", self.start + offset)
        except (RecursionError, MemoryError, ValueError):
            self.fail("the expression is nested too deep.", self.start)
        expression, _ = self.visit(tree.body, 0)
        try:
            check_numbers(expression)
        except ValueError as error:
            self.fail(str(error), self.start)
        return expression

    def visit(self, node: ast.expr, depth: int) -> Value:
        self.nodes += 1
        if self.limited and self.nodes > MAX_NODES:
            self.fail_at(f"the expression has more than {MAX_NODES} parts.", node)
        if depth > MAX_DEPTH:
            self.fail_at(f"the expression is nested more than {MAX_DEPTH} deep.", node)
        if isinstance(node, ast.Constant):
            return self.number(node)
        if isinstance(node, ast.Name):
            return self.name(node)
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub | ast.UAdd):
            expression, value = self.visit(node.operand, depth + 1)
            if isinstance(node.op, ast.UAdd):
                return expression, value
            return -expression, None if value is None else -value
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add | ast.Sub):
            return self.chain(node, (ast.Add, ast.Sub), depth)
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Mult | ast.Div):
            return self.chain(node, (ast.Mult, ast.Div), depth)
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Pow):
            return self.power(node, depth)
        if isinstance(node, ast.Call):
            return self.call(node, depth)
        if isinstance(node, ast.Attribute):
            self.fail(f"attribute access is not allowed. {self.allowed()}", self.end(node.value))
        what = _NODES.get(type(node), "this")
        if isinstance(node, ast.BinOp | ast.UnaryOp):
            what = "this operator"
        self.fail_at(f"{what} is not allowed. {self.allowed()}", node)

    def number(self, node: ast.Constant) -> Value:
        number = node.value
        if isinstance(number, bool) or not isinstance(number, int | float):
            self.fail_at(f"{number!r} is not a real number. {self.allowed()}", node)
        value = self.evaluate(lambda: float(number), node)
        return sympy.Integer(number) if isinstance(number, int) else sympy.Float(number), value

    def name(self, node: ast.Name) -> Value:
        if node.id in CONSTANTS:
            return CONSTANTS[node.id]
        if node.id in FUNCTIONS or node.id in self.operators:
            self.fail_at(f"{node.id!r} is a function and needs its arguments: {node.id}(...).", node)
        try:
            expression = self.resolve(node.id)
        except ValueError as error:
            self.fail_at(str(error), node)
        if expression is None:
            self.fail_at(
                f"unknown name {node.id!r}. {self.explain(node.id)}{nearest(node.id, [*self.known, *CONSTANTS])}", node
            )
        return expression, None

    def chain(self, node: ast.BinOp, operators: tuple[type, ...], depth: int) -> Value:
        """a + b - c or a * b / c: loops along the left operands, which Python nests one level a term."""
        parts: list[tuple[ast.operator | None, ast.expr]] = []
        left: ast.expr = node
        while isinstance(left, ast.BinOp) and isinstance(left.op, operators):
            parts.append((left.op, left.right))
            left = left.left
        # -a*b is -(a*b), as it prints; (-a)*b would carry the sign into a sum a
        negative = False
        if ast.Mult in operators and isinstance(left, ast.UnaryOp) and isinstance(left.op, ast.USub):
            negative, left = True, left.operand
        parts.append((None, left))
        terms: list[sympy.Expr] = []
        total: float | None = None
        for op, part in reversed(parts):
            expression, value = self.visit(part, depth + 1)
            total = value if op is None else self.combine(op, total, value, part)
            if isinstance(op, ast.Div) and expression.is_zero:
                self.fail_at("division by zero.", part)
            if isinstance(op, ast.Sub):
                expression = -expression
            elif isinstance(op, ast.Div):
                expression = 1 / expression
            terms.append(expression)
        joined = sympy.Add(*terms) if ast.Add in operators else sympy.Mul(*terms)
        if negative:
            joined, total = -joined, None if total is None else -total
        return self.checked(joined, node), total

    def combine(self, op: ast.operator, a: float | None, b: float | None, node: ast.expr) -> float | None:
        if a is None or b is None:
            return None
        compute = {ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.Div: operator.truediv}
        return self.evaluate(lambda: compute[type(op)](a, b), node)

    def power(self, node: ast.BinOp, depth: int) -> Value:
        base, base_value = self.visit(node.left, depth + 1)
        exponent, value = self.visit(node.right, depth + 1)
        if value is not None and abs(value) > MAX_EXPONENT:
            self.fail_at(f"the exponent {node_text(exponent)} is larger than {MAX_EXPONENT}.", node.right)
        if base.is_zero and exponent.is_negative:
            self.fail_at("division by zero.", node.left)
        if isinstance(base, sympy.Rational) and value is not None:
            bits = max(abs(base.p).bit_length(), base.q.bit_length()) * abs(value)
            if bits > MAX_BITS:
                self.fail_at("this number has too many digits.", node)
        result: float | None = None
        if base_value is not None and value is not None:
            result = self.evaluate(lambda: base_value**value, node)
        return self.checked(base**exponent, node), result

    def evaluate(self, compute: Callable[[], float], node: ast.expr) -> float:
        """A constant in double precision, refused if it is not a finite real number."""
        try:
            result = compute()
        except OverflowError:
            self.fail_at("this number is too large for double precision.", node)
        except (ValueError, ZeroDivisionError, TypeError):
            self.fail_at("this is not a real number.", node)
        if isinstance(result, complex) or result != result or abs(result) == float("inf"):
            self.fail_at("this is not a finite real number.", node)
        return float(result)

    def call(self, node: ast.Call, depth: int) -> Value:
        if not isinstance(node.func, ast.Name):
            what = "attribute access" if isinstance(node.func, ast.Attribute) else "calling an expression"
            inner = node.func.value if isinstance(node.func, ast.Attribute) else node.func
            self.fail(f"{what} is not allowed. For a product write *. {self.allowed()}", self.end(inner))
        name = node.func.id
        if name not in FUNCTIONS and name not in self.operators:
            functions = [*FUNCTIONS, *self.operators]
            product = f" For a product write {name}*(...)." if self.known_name(name) else ""
            self.fail_at(
                f"{name!r} is not a function.{product} {nearest(name, functions)}",
                node,
            )
        if node.keywords:
            self.fail_at(f"{name} takes no keyword arguments.", node)
        arguments = [self.visit(argument, depth + 1) for argument in node.args]
        expressions = [expression for expression, _ in arguments]
        if name in self.operators:
            try:
                return self.operators[name](expressions), None
            except ValueError as error:
                self.fail_at(str(error), node)
        row = FUNCTIONS[name]
        least, most = row.arguments
        if not least <= len(expressions) <= most:
            expected = f"{least}" if least == most else f"{least} to {most}"
            self.fail_at(f"{name} takes {expected} argument(s), got {len(expressions)}.", node)
        values = [value for _, value in arguments if value is not None]
        result = self.evaluate(lambda: row.number(*values), node) if len(values) == len(arguments) else None
        if name == "heaviside" and len(expressions) == 2 and expressions[1].free_symbols:
            self.fail_at("the second argument of heaviside, its value at zero, must be a number.", node)
        return self.checked(apply(row, expressions), node), result

    def known_name(self, name: str) -> bool:
        try:
            return self.resolve(name) is not None
        except ValueError:
            return False

    def checked(self, expression: sympy.Expr, node: ast.expr) -> sympy.Expr:
        if expression.has(sympy.zoo, sympy.nan, sympy.oo, -sympy.oo, sympy.I):
            self.fail_at("this is not a finite real number.", node)
        return expression


def check_numbers(expression: sympy.Expr) -> None:
    """Refuse exact numbers and exponents that have grown past what double precision holds (x**60 * x**60), and (-2)**u.

    Raises:
        ValueError: with the number.
    """
    for number in expression.atoms(sympy.Rational):
        if max(abs(number.p).bit_length(), number.q.bit_length()) > MAX_BITS:
            raise ValueError("an exact number in the expression has too many digits.")
    for power in expression.atoms(sympy.Pow):
        exponent = power.exp
        if power.base.is_number and power.base.is_nonpositive and not exponent.is_number:
            raise ValueError(f"{node_text(power)} is not real: {power.base} <= 0 to a power that varies.")
        if exponent.is_number and abs(exponent) > MAX_EXPONENT:
            raise ValueError(f"the exponent {node_text(exponent)} is larger than {MAX_EXPONENT}.")


def node_text(expression: sympy.Expr) -> str:
    text = str(expression)
    return text if len(text) < 30 else f"{text[:20]}..."
