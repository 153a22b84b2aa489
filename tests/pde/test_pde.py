"""PDE as a value: what goes in, what it prints, and what it refuses."""

import copy
import math
import os
import pickle
import subprocess
import sys
from pathlib import Path

import pytest
import sympy

from pinnfuse.pde import PDE, D, Data, Jet, Parameter, coordinates, field, laplacian
from tests.pde.work import calls

NAVIER_STOKES = {
    "fields": "u v p",
    "coordinates": "t x y",
    "parameters": {"nu": 0.01},
    "equations": {
        "momentum_x": "u_t + u*u_x + v*u_y + p_x - nu*(u_xx + u_yy)",
        "momentum_y": "v_t + u*v_x + v*v_y + p_y - nu*(v_xx + v_yy)",
        "continuity": "u_x + v_y",
    },
}


def navier_stokes() -> PDE:
    return PDE(**NAVIER_STOKES, name="navier_stokes")


def test_navier_stokes() -> None:
    pde = navier_stokes()
    assert (pde.fields, pde.coordinates, pde.data) == (("u", "v", "p"), ("t", "x", "y"), ())
    assert pde.parameters == {"nu": Parameter("nu", 0.01)} and pde.order == 2
    assert " ".join(map(str, pde.derivatives)) == "u u_t u_x u_y u_xx u_yy v v_t v_x v_y v_xx v_yy p_x p_y"
    assert pde.jet_symbols[Jet("u", (0, 2, 0))].name == "u_xx"
    free = set().union(*(e.free_symbols for e in pde.jet_equations.values()))
    assert free == {*pde.jet_symbols.values(), *pde.parameter_symbols.values()}
    assert repr(pde) == (
        "PDE navier_stokes of u, v, p in t, x, y; nu = 0.01\n"
        "  momentum_x: u_t + p_x + u*u_x + v*u_y - nu*(u_xx + u_yy) = 0\n"
        "  momentum_y: v_t + p_y + u*v_x + v*v_y - nu*(v_xx + v_yy) = 0\n"
        "  continuity: u_x + v_y = 0"
    )


def test_the_conservative_form_is_kept_and_expanded() -> None:
    pde = PDE("u", "t x", {"nu": 0.1}, {"burgers": "u_t + D(u**2/2, x) = nu*u_xx"})
    t, x = pde.coordinate_symbols.values()
    u = pde.field_functions["u"]
    assert pde.equations["burgers"].has(sympy.Derivative(u**2 / 2, x))
    jets = {str(jet): symbol for jet, symbol in pde.jet_symbols.items()}
    expected = jets["u_t"] + jets["u"] * jets["u_x"] - pde.parameter_symbols["nu"] * jets["u_xx"]
    assert sympy.expand(pde.jet_equations["burgers"] - expected) == 0
    assert pde.to_text() == {"burgers": "u_t + D(u**2/2, x) - nu*u_xx"}


def test_sympy_and_text_agree() -> None:
    t, x = coordinates("t x")
    u = field("u", t, x)
    nu = Parameter("nu", 0.1, trainable=True, positive=True)
    text = PDE("u", "t x", [nu], {"burgers": "u_t + D(u**2/2, x) - nu*u_xx"})
    assert PDE([u], equations={"burgers": u.diff(t) + D(u**2 / 2, x) - nu * u.diff(x, 2)}, parameters=[nu]) == text
    eq = sympy.Eq(sympy.Derivative(u**2 / 2, x) + sympy.Derivative(u, t), nu * D(u, x, 2))
    assert PDE("u", (t, x), [nu], {"burgers": eq}) == text
    plain_t, plain_x, plain_nu = sympy.symbols("t x nu")  # without the assumption that they are real
    w = sympy.Function("u")(plain_t, plain_x)
    plain = w.diff(plain_t) + sympy.Derivative(w**2 / 2, plain_x) - plain_nu * w.diff(plain_x, 2)
    assert PDE("u", "t x", [nu], {"burgers": plain}) == text
    assert PDE("u", "t x", [nu], {"burgers": sympy.Symbol("u_t") + D(u**2 / 2, x) - nu * sympy.Symbol("u_xx")}) == text


def test_data_and_parameters_in_sympy() -> None:
    (x,) = coordinates("x")
    u, f, k = field("u", x), Data("f"), Parameter("k", 2)
    pde = PDE(u, equations=-k * u.diff(x, 2) - f + 2 / k - (1 - k) + k**2 - 3**k, parameters=[k], data=f)
    assert pde == PDE("u", "x", {"k": 2}, "-k*u_xx - f + 2/k - (1 - k) + k**2 - 3**k", data="f")
    assert pde.data_symbols["f"] in pde.jet_equations["equation"].free_symbols


@pytest.mark.parametrize(
    "text, same",
    [
        ("laplacian(u)", "u_xx + u_yy"),
        ("laplacian(u, x)", "u_xx"),
        ("laplacian(u, t, x)", "u_tt + u_xx"),
        ("laplacian(u**2)", "D(u**2, x, 2) + D(u**2, y, 2)"),
        ("biharmonic(u)", "u_xxxx + u_yyyy + 2*u_xxyy"),
        ("laplacian(laplacian(u))", "D(u_xx + u_yy, x, 2) + D(u_xx + u_yy, y, 2)"),
        ("D(u, x, 2)", "u_xx"),
        ("D(u, x, x)", "u_xx"),
        ("D(u, t, x, 2)", "u_txx"),
        ("D(u, x, 2, t)", "u_txx"),
        ("D(D(u, x), t)", "u_tx"),
        ("D(u_x, y) + D(u, y, x)", "2*u_xy"),
        ("u_t = u_xx", "u_t - u_xx"),
        ("u_t\n  = u_xx", "u_t - (u_xx)"),
    ],
)
def test_operators(text: str, same: str) -> None:
    assert PDE("u", "t x y", equations=text) == PDE("u", "t x y", equations=same)


def test_laplacian_in_sympy_leaves_out_time() -> None:
    t, x, y = coordinates("t x y")
    u = field("u", t, x, y)
    assert laplacian(u) == D(u, x, 2) + D(u, y, 2) and laplacian(u, t) == D(u, t, 2)


@pytest.mark.parametrize("text", ["laplacian(u) - x1*u", " + ".join(f"u_x{i}x{i}" for i in range(1, 101))])
def test_a_hundred_coordinates(text: str) -> None:
    names = [f"x{i}" for i in range(1, 101)]
    PDE("u", ["x"], equations="laplacian(u)")  # sympy's own start
    made: list[PDE] = []
    assert (
        calls(lambda: made.append(PDE("u", names, equations={"poisson": text}))) < 3_000_000
    )  # 0.5 million as measured
    (pde,) = made
    assert calls(lambda: (repr(pde), hash(pde))) < 3_000_000
    assert sum(jet.order == 2 and max(jet.index) == 2 for jet in pde.derivatives) == 100


def test_nested_laplacians_are_carried_out_once() -> None:
    made: list[PDE] = []
    text = "laplacian(laplacian(laplacian(laplacian(u))))"
    assert calls(lambda: made.append(PDE("u", "a b c d e f g h i j", equations=text))) < 50_000_000  # 13 million
    assert len(made[0].derivatives) == math.comb(13, 4)


def test_long_coordinate_names() -> None:
    pde = PDE("u", "t r theta", equations="u_t - D(r*u_r, r)/r - u_thetatheta/r**2")
    assert [str(jet) for jet in pde.derivatives] == ["u_t", "u_r", "u_rr", "u_thetatheta"]


def test_ambiguous_names_print_as_operators() -> None:
    pde = PDE("u", "x xx", equations="D(u, x, 2) - D(u, xx)")
    assert pde.to_text() == {"equation": "-D(u, xx) + D(u, x, 2)"}
    assert pde.replace(equations=pde.to_text()) == pde
    with pytest.raises(ValueError, match="column 1: 'u_xx' is ambiguous"):
        PDE("u", "x xx", equations="u_xx")


def test_latex() -> None:
    pde = PDE(
        "u",
        "t theta",
        {"nu": 1},
        {
            "burgers": "u_t + D(u**2/2, theta) - nu*u_thetatheta + 1e-5*u**2",
            "other": "D(u, t, theta)**2 + u_t**3 - abs(u)",
        },
    )
    assert pde.to_latex() == (
        "\\begin{aligned}\n"
        "u_{t} + 10^{-5} u^{2} + \\partial_{\\theta}\\left(\\frac{u^{2}}{2}\\right) - \\nu u_{\\theta \\theta}"
        " &= 0 \\\\\n"
        "\\left(u_{t}\\right)^{3} + \\left(u_{t \\theta}\\right)^{2} - \\left|{u}\\right| &= 0\n"
        "\\end{aligned}"
    )


def test_value_semantics() -> None:
    pde = navier_stokes()
    for same in (navier_stokes(), copy.copy(pde), copy.deepcopy(pde), pickle.loads(pickle.dumps(pde)), pde.replace()):
        assert same == pde and hash(same) == hash(pde) and repr(same) == repr(pde)
        assert same.jet_equations == pde.jet_equations and same.derivatives == pde.derivatives
    assert pde != 3
    different = [
        pde.replace(parameters={"nu": 0.02}),
        pde.replace(parameters=[Parameter("nu", 0.01, trainable=True)]),
        pde.replace(fields="u p v"),
        pde.replace(coordinates="t y x"),
        pde.replace(data="f"),
        pde.replace(name=None),
        pde.replace(equations={"continuity": "u_x + v_y"}),
        pde.replace(equations=dict(reversed(pde.equations.items()))),  # the order of residual columns
    ]
    assert len({pde, *different}) == 1 + len(different)
    with pytest.raises(ValueError, match="PDE.replace: unknown argument 'field'. Did you mean 'fields'"):
        pde.replace(field="u")


SCRIPT = """
import pickle, sys, torch
from pinnfuse.pde import PDE, torch_function
pde = PDE("u v w", "t x y", {"nu": 0.1, "mu": 0.2}, {
    "a": "u_t + D(u*v*sin(w)/3, x) - nu*laplacian(u) + mu*max(u, v, w)*exp(-x*y) + 0.1*u_x*v_y",
    "b": "w_t + v_x*u_y*w - D(w**3 + u, x, y) + heaviside(x)"}, data="f")
code = [str(list(d.items())) for d in (pde.jet_equations, pde.jet_symbols)]
arguments = [s for d in (pde.jet_symbols, pde.coordinate_symbols, pde.parameter_symbols) for s in d.values()]
values = torch_function(list(pde.jet_equations.values()), arguments)(*torch.linspace(0.1, 2.3, len(arguments)))
sys.stdout.buffer.write(pickle.dumps((repr(pde), pde.to_latex(), code, [float(v) for v in values], pde)))
"""


def test_the_same_in_every_process(root: Path) -> None:
    outputs = []
    for seed in ("0", "1", "77"):
        run = subprocess.run(
            [sys.executable, "-c", SCRIPT],
            env={**os.environ, "PYTHONHASHSEED": seed},
            cwd=root,
            capture_output=True,
            check=True,
        )
        outputs.append(pickle.loads(run.stdout))
    assert outputs[0] == outputs[1] == outputs[2]


GOOD = {"fields": "u", "coordinates": "t x", "parameters": {"nu": 0.1}, "equations": {"heat": "u_t - nu*u_xx"}}
BAD = [
    ({"fields": ""}, "`fields` is empty"),
    ({"coordinates": ()}, "`coordinates` is empty"),
    ({"coordinates": None}, "`coordinates` is missing"),
    ({"fields": "x"}, "'x' is declared both as a field and as a coordinate"),
    ({"fields": "u u"}, "'u' is declared twice as a field"),
    ({"parameters": {"u": 1.0}}, "both as a field and as a parameter"),
    ({"data": "nu"}, "both as a parameter and as a data column"),
    ({"parameters": {"pi": 3.0}}, "'pi' has the name of the known pi in equations. Call it 'pi_'"),
    ({"parameters": {"D": 3.0}}, r"'D' has the name of the derivative D\(expression, coordinate\)"),
    ({"fields": "sin"}, "'sin' has the name of the known sin"),
    ({"parameters": {"lambda": 1.0}}, "'lambda' is a word of Python"),
    ({"parameters": {"u_x": 1.0}}, "parameter 'u_x' reads as a derivative"),
    ({"fields": "u u_t"}, "field 'u_t' reads as a derivative"),
    ({"fields": ["u v"]}, "'u v' is not a name"),
    ({"fields": "2u"}, "'2u' is not a name"),
    ({"fields": "_u"}, "'_u' is not a name"),
    ({"fields": [3]}, "3 is not a name"),
    ({"fields": 3}, "`fields` must be text"),
    ({"coordinates": 3}, "`coordinates` must be text"),
    ({"data": None}, "`data` must be text"),
    ({"parameters": 0.1}, "`parameters` must be a mapping"),
    ({"parameters": {"nu": "0.1"}}, "Parameter: `value` of 'nu' must be a real number"),
    ({"parameters": {"nu": float("nan")}}, "must be finite"),
    ({"parameters": {"nu": True}}, "must be a real number"),
    ({"parameters": {"nu": Parameter("mu", 1.0)}}, r"Parameter\('mu'\) under the name 'nu'"),
    ({"parameters": [Parameter("nu", 1.0), Parameter("nu", 2.0)]}, "declares a name twice"),
    ({"name": 3}, "`name` must be text"),
    ({"equations": None}, "`equations` must be a non-empty mapping"),
    ({"equations": {}}, "`equations` must be a non-empty mapping"),
    ({"equations": {"a b": "u"}}, "equation name 'a b'"),
    ({"equations": {1: "u"}}, "equation name 1"),
    ({"equations": {"e": 3}}, "must be text or a sympy expression; got int"),
    ({"equations": {"e": "u_t - nuu*u_xx"}}, "column 7: unknown name 'nuu'. Did you mean 'nu'"),
    ({"equations": {"e": "u_t - u_zz"}}, "column 7: unknown name 'u_zz'. 'u' is a field, but 'zz' is not spelled"),
    ({"equations": {"e": "u_t = 1 = 2"}}, "column 9: '=' is not allowed"),
    ({"equations": {"e": "u_t == u_xx"}}, "column 6: '=' is not allowed.*one `left = right`"),
    ({"equations": {"e": "= u"}}, "column 1: the expression is empty"),
    ({"equations": {"e": "u ="}}, "the expression is empty"),
    ({"equations": {"e": "x - 1"}}, "holds none of the fields"),
    ({"equations": {"e": "nu - 1"}}, "holds none of the fields"),
    ({"equations": {"e": "u - u"}}, "is zero whatever"),
    ({"equations": {"e": "D(u**2, x) - 2*u*u_x"}}, "is zero whatever"),
    ({"equations": {"e": "D(u, x, 9)"}}, "from 1 to 8"),
    ({"equations": {"e": "D(u, x, 0)"}}, "from 1 to 8"),
    ({"equations": {"e": "D(u_xxxx, x, 5)"}}, "order is 9; at most 8"),
    ({"equations": {"e": "D(u, x, 2.0)"}}, "from 1 to 8"),
    ({"equations": {"e": "D(u)"}}, "D needs a coordinate"),
    ({"equations": {"e": "D()"}}, "D needs an expression"),
    ({"equations": {"e": "D(u, nu)"}}, "D: 'nu' is not a coordinate"),
    ({"equations": {"e": "laplacian()"}}, "laplacian needs an expression"),
    ({"equations": {"e": "laplacian(u, 2)"}}, "laplacian takes an expression and space coordinates"),
    ({"equations": {"e": "laplacian(u, x, x)"}}, "named twice"),
    ({"equations": {"e": "u + D(f, x)"}, "data": "f"}, "data column 'f' has no known derivative"),
    ({"equations": {"e": "laplacian(f*u)"}, "data": "f"}, "data column 'f' has no known derivative"),
    ({"equations": {"e": "D(heaviside(x)*u, x)"}}, "derivative of a jump"),
    ({"equations": {"e": "D(abs(u), x, 2)"}}, "derivative of a jump"),
    ({"equations": {"e": sympy.Symbol("nuu") * 2}}, "unknown symbol 'nuu'. Did you mean 'nu'"),
    ({"equations": {"e": sympy.Function("w")(sympy.Symbol("x"))}}, r"w\(x\) is not a field"),
    ({"equations": {"e": sympy.Function("u")(sympy.Symbol("x"))}}, r"u\(x\) is not a field"),
    ({"equations": {"e": sympy.gamma(sympy.Symbol("u"))}}, "outside the equation language"),
    ({"equations": {"e": sympy.I * sympy.Symbol("u")}}, "outside the equation language"),
    ({"equations": {"e": sympy.Symbol("u") ** 1000}}, "larger than 100"),
    ({"equations": {"e": D(sympy.Symbol("f") * field("u", *coordinates("t x")), sympy.Symbol("x"))}}, "unknown symbol"),
    ({"equations": {"e": sympy.Symbol("u") * sympy.oo}}, "not a finite real number"),
    ({"equations": {"e": "u_t"}, "coordinates": "x"}, "'t' is not spelled"),
    ({"equations": {"e": "U_t"}}, "Did you mean 'u_t'"),
    ({"equations": {"e": sympy.Pow(-2, sympy.Symbol("x")) * sympy.Symbol("u")}}, "not real"),
]


@pytest.mark.parametrize("changes, message", BAD, ids=[str(changes)[:50] for changes, _ in BAD])
def test_refuses(changes: dict, message: str) -> None:
    PDE(**GOOD)
    with pytest.raises(ValueError, match=message) as error:
        PDE(**{**GOOD, **changes})
    assert not isinstance(error.value, UnicodeError) and len(str(error.value)) < 1500


def test_what_is_accepted_on_purpose() -> None:
    """A boundary condition is a small PDE: it need not use every field, parameter or column."""
    pde = PDE("u v p", "t x y", {"nu": 0.1}, {"wall": "u - f"}, data="f g")
    assert pde.derivatives == (Jet("u", (0, 0, 0)),) and pde.order == 0
    # a prior on a trained parameter has no field, but something that training can change
    PDE("u", "x", [Parameter("k", 1.0, trainable=True)], {"poisson": "k*u_xx - 1", "prior": "k - 2"})
    assert PDE("u_a v_b", "t x", {"nu_t": 1, "c_1": 2}, "u_a_xx*nu_t - c_1*v_b_t").order == 2


@pytest.mark.parametrize("value", [0.0, -1.0])
def test_positive_parameters(value: float) -> None:
    with pytest.raises(ValueError, match="'nu' is declared positive but its value is"):
        Parameter("nu", value, trainable=True, positive=True)
    assert Parameter("nu", sympy.Rational(1, 12)).value == 1 / 12


def test_sympy_helpers_refuse() -> None:
    t, x = coordinates("t, x")
    with pytest.raises(ValueError, match="field: 'u' needs its coordinates"):
        field("u")
    for inside in (Data("f"), 2 * Data("f"), Data("f") * field("u", t, x)):
        with pytest.raises(ValueError, match="data column 'f' has no known derivative"):
            D(inside, x)
    with pytest.raises(ValueError, match="D takes an expression and coordinates"):
        D(field("u", t, x), 2)
    with pytest.raises(ValueError, match="need space coordinates"):
        laplacian(field("u", t))
