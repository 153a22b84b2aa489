"""Product and chain rule against sympy and against values of concrete functions; text that prints and reads back."""

import pickle

import pytest
import sympy
from hypothesis import given, settings
from hypothesis import strategies as st

from pinnfuse.pde import PDE, Parameter, differentiate, parse_expression
from pinnfuse.pde.functions import FUNCTIONS

T, X, Y = (sympy.Symbol(name, real=True) for name in ("t", "x", "y"))
POINT = {T: sympy.Rational(3, 10), X: sympy.Rational(7, 10), Y: sympy.Rational(-4, 10)}
FIELDS = {
    "u": sympy.exp(-T / 2) * sympy.sin(X + 2 * Y) + 2,
    "v": sympy.cos(X * Y - T) + X**3 * Y**2 / 5 + 3,
}


def make(text: str) -> PDE:
    parameters = [Parameter("nu", 0.25), Parameter("k", 1.5, trainable=True)]
    return PDE("u v", "t x y", parameters, {"e": text}, data="f")


def value_by_sympy(pde: PDE) -> float:
    """Insert concrete fields into the equation as written and let sympy carry the derivatives out."""
    equation = pde.equations["e"]
    equation = equation.subs({function: FIELDS[name] for name, function in pde.field_functions.items()}).doit()
    return float(equation.subs(parameter_values(pde)).subs(POINT).evalf(30))


def value_by_jets(pde: PDE) -> float:
    """Insert the fields' derivatives into the jet equation."""
    jets = {
        symbol: FIELDS[jet.field].diff((T, jet.index[0]), (X, jet.index[1]), (Y, jet.index[2]))
        for jet, symbol in pde.jet_symbols.items()
    }
    jets = {symbol: value.subs(POINT).evalf(30) for symbol, value in jets.items()}
    return float(pde.jet_equations["e"].subs(jets).subs(parameter_values(pde)).subs(POINT).evalf(30))


def parameter_values(pde: PDE) -> dict:
    values = {pde.parameter_symbols[p.name]: p.value for p in pde.parameters.values()}
    return {**values, pde.data_symbols["f"]: sympy.Rational(1, 3)}


@pytest.mark.parametrize(
    "text",
    [
        "D(u**2/2, x)",
        "D(u*v_x, x, 2)",
        "D(exp(-x*y)*u_y*v, x, y)",
        "D(D(u, x)*D(v*u, y, 2), x)",
        "D(u*D(v*D(u, x), x), x)",
        "D(u/v, x, 2)",
        "D(u**v, x)",
        "D(2**u, x, 2)",
        "D(sqrt(u**2 + v**2), y, 2)",
        "D((1 + x**2)*u_x, x) - nu*laplacian(u*v)",
        "D(x*u, t, x, 2)",
        "biharmonic(u) + u_xxxy*v",
        "laplacian(u_t**2)",
        "D(abs(1 - u), x) + D(abs(x*u*v), x)",
        "D(max(u, v, 1), x) - D(min(u, v**2), y)",
        "D(max(u, nu)*k, x)",
        "D(atan2(u, v), x, 2)",
        *(f"D({name}(u/5)*v, x, 2)" for name, row in FUNCTIONS.items() if row.smooth and name != "acosh"),
        "D(acosh(u)*v, x, 2)",
    ],
)
def test_derivatives_equal_those_of_sympy(text: str) -> None:
    pde = make(text)
    expected = value_by_sympy(pde)
    assert value_by_jets(pde) == pytest.approx(expected, rel=1e-12, abs=1e-12)
    assert abs(expected) > 1e-6  # the point is not a zero of the equation


def test_fourth_order_by_hand() -> None:
    """(u^2)_xxxx = 2 u u_xxxx + 8 u_x u_xxx + 6 u_xx^2."""
    pde = PDE("u", "x", equations="D(u**2, x, 4)")
    u, u_x, u_xx, u_xxx, u_xxxx = pde.jet_symbols.values()
    assert sympy.expand(pde.jet_equations["equation"] - (2 * u * u_xxxx + 8 * u_x * u_xxx + 6 * u_xx**2)) == 0


def test_partial_derivatives_for_a_backward() -> None:
    symbols = {name: sympy.Symbol(name, real=True) for name in ("a", "b")}
    a, b = symbols.values()
    smooth = parse_expression("a**3*exp(-b) + sin(a*b)/(1 + a**2) + sqrt(b)", symbols)
    for symbol in (a, b):
        difference = differentiate(smooth, symbol) - smooth.diff(symbol)
        assert abs(difference.subs({a: 0.3, b: 0.7}).evalf(20)) < 1e-14
    kinked = parse_expression("abs(log(a))*b + heaviside(a)", symbols)
    assert differentiate(kinked, b) == sympy.Abs(sympy.log(a), evaluate=False)
    assert differentiate(kinked, sympy.Symbol("c", real=True)) == 0
    with pytest.raises(ValueError, match="gamma is not a function of the equation language"):
        differentiate(sympy.gamma(a), a)


def test_expansion_is_bounded() -> None:
    with pytest.raises(ValueError, match="carrying out the derivatives gives more than"):
        PDE("u v w", "x y", equations="D(" * 4 + "sin(u*v*w)*exp(u_x*v_x*w_x)*tan(u + v + w)" + ", x, y)" * 4)


jets = st.sampled_from(
    ["u", "v", "u_t", "u_x", "v_xy", "u_xxx", "v_xxyy", "x", "y", "nu", "k", "3", "0.3", "1/7", "pi"]
)


def grow(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    pair = st.tuples(inner, inner)
    return st.one_of(
        pair.map(lambda p: f"({p[0]} + {p[1]})"),
        pair.map(lambda p: f"({p[0]} - {p[1]})"),
        pair.map(lambda p: f"{p[0]}*{p[1]}"),
        pair.map(lambda p: f"-{p[0]}/(2 + ({p[1]})**2)"),
        st.tuples(inner, st.integers(2, 3)).map(lambda p: f"({p[0]})**{p[1]}"),
    )


polynomials = st.recursive(jets, grow, max_leaves=6)
operators = st.sampled_from(
    ["D({}, x)", "D({}, x, 2)", "D({}, t, y)", "laplacian({})", "sin({})", "exp({}/9)", "abs({})"]
)
operators |= st.sampled_from(["max({}, u, 1/2)", "sqrt(1 + ({})**2)", "heaviside({})", "tanh({})", "({})**(1/3)"])
anything = st.recursive(
    jets, lambda inner: grow(inner) | st.tuples(operators, inner).map(lambda p: p[0].format(p[1])), max_leaves=8
)


@settings(deadline=None, max_examples=30)
@given(polynomials, polynomials)
def test_random_polynomials_against_sympy(a: str, b: str) -> None:
    pde = make(f"u_t + D({a}, x) - nu*D({b}, y, 2)*v")
    expected = value_by_sympy(pde)
    assert value_by_jets(pde) == pytest.approx(expected, rel=1e-9, abs=1e-9)  # 15-digit decimals, large cancellations


@settings(deadline=None, max_examples=150)
@given(anything)
def test_text_prints_and_reads_back(text: str) -> None:
    try:
        pde = make(f"u_tt + {text}")
    except ValueError as error:  # a jump inside a derivative, say
        assert "PDE: equation 'e'" in str(error)
        return
    again = pde.replace(equations=pde.to_text())
    assert again == pde and again.to_text() == pde.to_text() and repr(again) == repr(pde)
    assert again.jet_equations == pde.jet_equations and again.derivatives == pde.derivatives
    assert pde.replace(equations=pde.equations) == pde == pickle.loads(pickle.dumps(pde))
    assert pde.to_latex().startswith("\\begin{aligned}")
    assert sum(map(pde.to_latex().count, "{[(")) == sum(map(pde.to_latex().count, "}])"))
