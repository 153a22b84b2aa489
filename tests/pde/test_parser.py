"""The text language: what it accepts, what it refuses and how; nothing in a text is executed or blows up."""

import pytest
import sympy
from hypothesis import example, given, settings
from hypothesis import strategies as st

from pinnfuse.pde import PDE, parse_expression
from pinnfuse.pde.functions import FUNCTIONS
from tests.pde.work import calls

SYMBOLS = {name: sympy.Symbol(name, real=True) for name in ("t", "x", "y", "u")}
t, x, y, u = SYMBOLS.values()


def read(text: str) -> sympy.Expr:
    return parse_expression(text, SYMBOLS)


@pytest.mark.parametrize(
    "text, expected",
    [
        ("x", x),
        ("-x + +y", y - x),
        ("1/12*x", x / 12),
        ("x/3/4", x / 12),
        ("x - y - t", x - (y + t)),
        ("2**-1*x**2**2", x**4 / 2),
        ("-x**2", -(x**2)),
        ("sin(pi*x)*exp(-t)", sympy.sin(sympy.pi * x) * sympy.exp(-t)),
        ("sqrt(x)**2", x),
        ("abs(x)", sympy.Abs(x)),
        ("heaviside(x)", sympy.Heaviside(x)),
        ("heaviside(x, 0)", sympy.Heaviside(x, 0)),
        ("atan2(y, x)", sympy.atan2(y, x)),
        ("erf(x) - sign(x)", sympy.erf(x) - sympy.sign(x)),
        ("-sin(pi*x) + t*(1 - x**2)*u", -sympy.sin(sympy.pi * x) + t * (1 - x**2) * u),
        ("  x\n\t + y ", x + y),
        ("1e-3*x", sympy.Float(1e-3) * x),
    ],
)
def test_accepts(text: str, expected: sympy.Expr) -> None:
    assert read(text) == expected


def test_integers_are_exact_and_decimals_keep_double_precision() -> None:
    assert read("1/12") == sympy.Rational(1, 12)
    for decimal in ("0.1", "0.01", "1e-7", "3.141592653589793", "1.7976931348623157e308"):
        assert float(read(decimal)) == float(decimal)
    assert float(read("0.1 + 0.2")) == 0.1 + 0.2


def test_extrema_of_several() -> None:
    at = {x: 2, y: -1, t: 5}
    assert read("max(x, y, t, 3)").subs(at) == 5 and read("min(x, y, t)").subs(at) == -1


REFUSED = {
    "__import__('os').system('true')": (12, "not allowed"),
    "(1).__class__": (3, "attribute access is not allowed"),
    "x.diff(t)": (2, "attribute access is not allowed"),
    "lambda: x": (7, "not allowed"),
    "[x for x in y]": (1, "not allowed"),
    "f'{x}'": (2, "not allowed"),
    "x[0]": (2, "not allowed"),
    "'x'": (1, "not allowed"),
    "x := 2": (3, "not allowed"),
    "x if y else t": (1, "if/else is not allowed"),
    "x and y": (1, "and/or is not allowed"),
    "x, y": (1, "a tuple is not allowed"),
    "sin(*x)": (5, "unpacking is not allowed"),
    "not x": (1, "this operator is not allowed"),
    "x // y": (1, "this operator is not allowed"),
    "x is y": (1, "a comparison is not allowed"),
    "x ^ 2": (3, "For a power write"),
    "x = y": (3, "not allowed"),
    "x @ y": (3, "not allowed"),
    "x # y": (3, "not allowed"),
    "x \\ y": (3, "not allowed"),
    "x\0": (2, "not allowed"),
    "\N{GREEK SMALL LETTER NU}*x": (1, "not allowed"),
    "True": (1, "not a real number"),
    "2j": (1, "not a real number"),
    "...": (1, "not a real number"),
    "": (1, "empty"),
    " \n ": (1, "empty"),
    "x +": (3, "invalid syntax"),
    "(x": (1, "never closed"),
    "x)": (2, "unmatched"),
    "2 x": (3, "invalid"),
    "2(x)": (2, "For a product write"),
    "x(y)": (1, r"For a product write x\*"),
    "sin": (1, "needs its arguments"),
    "sin(x, y)": (1, r"takes 1 argument\(s\), got 2"),
    "min(x)": (1, "takes 2 to 16"),
    "heaviside(x, y)": (1, "a number"),
    "sin(x=1)": (6, "not allowed"),
    "sinn(x)": (1, "Did you mean 'sin'"),
    "D(u, x)": (1, "'D' is not a function"),
    "xx": (1, "unknown name 'xx'. Did you mean 'x'"),
    "x + e": (5, "unknown name 'e'"),
    "1/0": (3, "not a real number"),
    "x/(y - y)": (4, "division by zero"),
    "0**-1": (1, "division by zero"),
    "sqrt(-1)": (1, "not a real number"),
    "(-8)**(1/3)": (1, "not a finite real number"),
    "log(0)*x": (1, "not a real number"),
    "tan(pi/2)*x": (1, "not a finite real number"),
    "1e400": (1, "not a finite real number"),
    "9**9**9": (4, "exponent 387420489 is larger"),
    "x**1000000": (4, "larger than 100"),
    "((2**99)**99)**99": (2, "too many digits"),
    "(1/3)**99*(1/3)**99*(1/3)**99*(1/3)**99*(1/3)**99*(1/3)**99*(1/3)**99": (1, "too many digits"),
    "(x**99)**99": (1, "larger than 100"),
    "x**60*x**60": (1, "larger than 100"),
    "(-2)**x": (1, "not real"),
    "1 + 0**x": (1, "not real"),
    "exp(exp(exp(100)))": (5, "too large"),
    "exp(1e300)": (1, "too large"),
    "sin(1e999)": (5, "not a finite real number"),
    "9" * 5000: (5000, "4300"),
    "0x" + "f" * 5000: (1, "too large"),
    "(" * 10_000 + "x" + ")" * 9_999: (51, "nested more than 50 deep"),
    "-" * 19_999 + "x": (1, "nested too deep"),
    "**".join(["x"] * 3000): (1, "nested too deep"),
    "1" + "+1" * 9_999: (1, "nested too deep|more than 5000 parts"),
    "sin(" * 50 + "x" + ")" * 50 + "+y**-(-(x*(y+1)))" * 5: (201, "nested more than 50 deep"),
    "x" * 100_000: (20_001, "has 100000 characters"),
}


@pytest.mark.parametrize("text", REFUSED, ids=lambda text: repr(text[:30]))
def test_refuses_with_the_position(text: str) -> None:
    column, message = REFUSED[text]
    with pytest.raises(ValueError, match=message) as error:
        read(text)
    first, _, shown = str(error.value).partition("\n")
    assert first.startswith("parse_expression: `text`, line ")
    if "\n" not in text:
        assert f"line 1, column {column}:" in first
    assert len(str(error.value)) < 1500 and shown.endswith("^")


def test_the_caret_stands_below_the_place() -> None:
    with pytest.raises(ValueError) as error:
        read("x +\n  y*$ + t")
    assert "line 2, column 5" in str(error.value)
    *_, shown, caret = str(error.value).split("\n")
    assert shown[caret.index("^")] == "$"
    with pytest.raises(ValueError) as error:
        read("x + " * 1000 + "qq" + " + y" * 1000)
    *_, shown, caret = str(error.value).split("\n")
    assert shown[caret.index("^") :].startswith("qq") and len(shown) < 120


def test_not_text() -> None:
    with pytest.raises(ValueError, match="expected text, got int"):
        parse_expression(3, SYMBOLS)  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["pi", "sin", "max"])
def test_symbols_may_not_shadow(name: str) -> None:
    with pytest.raises(ValueError, match=f"redefines '{name}'"):
        parse_expression("x", {name: sympy.Symbol(name)})


def test_kinks_stay_real() -> None:
    """sympy rewrites abs(log(x) + 1) with conjugates; ours stays in the language."""
    for text in ("abs(log(x) + 1)", "sign(log(x) + sqrt(y))", "max(log(x), y, 0)", "heaviside(sqrt(x) - y)"):
        names = {type(node).__name__ for node in sympy.preorder_traversal(read(text))}
        assert not names & {"conjugate", "re", "im", "arg"}


HARD = [
    "max(" + ", ".join(f"sin(x*{i}) + y" for i in range(16)) + ")",
    "sqrt(" * 24 + "x" + " + 1)**2 + y)" * 12,
    "abs(" * 24 + "x" + " - 1)*y + log(x)" * 24,
    "asin(sin(" * 10 + "x" + ")) + cos(x)" * 10,
    "exp(log(" * 20 + "x" + ")*y)" * 20,
    "sin(" * 49 + "1" + ")" * 49,
    "cos(pi/65537)*sin(pi/17)*sin(123456789*pi/987654321)",
    "+".join(f"x**{i % 90}*y**{i % 37}" for i in range(400)),
]


@pytest.mark.parametrize("text", HARD, ids=lambda text: text[:20])
def test_hard_text_is_little_work(text: str) -> None:
    def reads() -> None:
        try:
            read(text)
        except ValueError as error:
            assert "nested more than" in str(error)

    assert calls(reads) < 2_000_000  # 0.3 million


TOKENS = [
    *"+-*/()., \n=_",
    "**",
    "//",
    "9",
    "0",
    "1e3",
    "0.1",
    "1/3",
    "x",
    "t",
    "u",
    "u_x",
    "u_xx",
    "u_q",
    "nu",
    "f",
    "pi",
]
TOKENS += ["if", "for", "lambda", "None", "__import__", ".real", "'", "\\", "[", "{", "#", "é", "\0"]
TOKENS += [f"{name}(" for name in (*FUNCTIONS, "D", "laplacian", "biharmonic")] + [", x)", ", x, 2)", ")", ")", ")"]


@settings(deadline=5000, max_examples=300)
@given(st.one_of(st.text(max_size=60), st.lists(st.sampled_from(TOKENS), max_size=25).map("".join)))
@example("D(u, x, 10**9)")
@example("laplacian()")
@example("0**x")
@example("x**(1/0)")
def test_fuzz_only_value_errors(text: str) -> None:
    for accept in (
        lambda: read(text),
        lambda: PDE("u", "t x", parameters={"nu": 0.1}, equations={"e": text}, data="f"),
    ):
        try:
            accept()
        except ValueError as error:
            assert str(error).startswith(("parse_expression: ", "PDE: equation 'e'"))
