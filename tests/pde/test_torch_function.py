"""Values, gradients, precision and tracing of the torch side of an expression."""

import math

import numpy as np
import pytest
import sympy
import torch
from torch import fx

from pinnfuse.pde import PDE, differentiate, parse_expression, torch_function
from pinnfuse.pde.functions import FUNCTIONS

SYMBOLS = {name: sympy.Symbol(name, real=True) for name in ("x", "y", "k")}
ARGUMENTS = list(SYMBOLS.values())

EXPRESSIONS = [
    *(f"{name}(x/3)" for name, row in FUNCTIONS.items() if row.arguments == (1, 1) and name != "acosh"),
    "acosh(1 + x**2)",
    "x",
    "-x",
    "x + y - k - 1/12",
    "-x - y",
    "3 - x",
    "x/12 - 5*y/7 + pi",
    "x*y*k/(x + 2)/(y + 3)**2",
    "1/x",
    "-2/(x*y)",
    "x**2 - y**3 + k**4 - x**5 + y**8",
    "x**13",
    "x**-3",
    "x**(1/3) + y**1.5 - x**0.1",
    "1/sqrt(x) + sqrt(x)*y**(-3/2)",
    "2**x - x**y",
    "0.1**k",
    "sqrt(2)*pi*x + exp(1)*y",
    "heaviside(x - y)",
    "heaviside(x - x*k, 1/4) + heaviside(y - 1/2, 0)",
    "max(x, y)",
    "min(x, y, k, 7/10)",
    "max(1/2, x, 3/10)",
    "min(x*y, -1)",
    "atan2(x - 1, y - 1)",
    "abs(x - y)*sign(k - x)",
    "exp(-(x**2 + y**2)/(2*k))*cos(2*pi*x)",
    "sin(x)**2 + cos(x)**2*tanh(k)",
]


def points(n: int = 7, dtype: torch.dtype = torch.float64) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(0)
    return [0.2 + 1.3 * torch.rand(n, dtype=torch.float64, generator=generator).to(dtype) for _ in ARGUMENTS]


def exact(expression: sympy.Expr, tensors: list[torch.Tensor]) -> np.ndarray:
    """By sympy with 40 digits."""
    rows = zip(*(tensor.tolist() for tensor in tensors), strict=True)
    at = [dict(zip(ARGUMENTS, (sympy.Float(v, 40) for v in row), strict=True)) for row in rows]
    return np.array([float(expression.subs(values).evalf(40)) for values in at])


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=str)
@pytest.mark.parametrize("text", EXPRESSIONS)
def test_values(text: str, dtype: torch.dtype) -> None:
    expression, tensors = parse_expression(text, SYMBOLS), points(dtype=dtype)
    (result,) = torch_function([expression], ARGUMENTS)(*tensors)
    assert result.dtype == dtype and result.shape == tensors[0].shape
    expected = exact(expression, tensors)
    # at most about 20 roundings, each enlarged by the condition of sums and powers at these points (below 10)
    np.testing.assert_allclose(result.double().numpy(), expected, rtol=200 * torch.finfo(dtype).eps, atol=1e-300)


@pytest.mark.parametrize("text", [text for text in EXPRESSIONS if "heaviside" not in text])
def test_gradients(text: str) -> None:
    function = torch_function([parse_expression(text, SYMBOLS)], ARGUMENTS)
    inputs = [tensor.requires_grad_() for tensor in points(4)]
    assert torch.autograd.gradcheck(function, inputs)
    assert torch.autograd.gradgradcheck(function, inputs)


@pytest.mark.parametrize("text", EXPRESSIONS)
def test_symbolic_derivatives_equal_autograd(text: str) -> None:
    """What a hand-written backward uses; a jump counts as constant on either side."""
    expression = parse_expression(text, SYMBOLS)
    inputs = [tensor.requires_grad_() for tensor in points()]
    (result,) = torch_function([expression], ARGUMENTS)(*inputs)
    automatic = torch.autograd.grad(result.sum(), inputs, allow_unused=True, materialize_grads=True)
    symbolic = torch_function([differentiate(expression, s) for s in ARGUMENTS], ARGUMENTS)(*inputs)
    for a, b, tensor in zip(automatic, symbolic, inputs, strict=True):
        torch.testing.assert_close(b.expand_as(tensor), a, rtol=1e-12, atol=1e-13)


def test_constants_keep_every_digit() -> None:
    x = SYMBOLS["x"]
    one = torch.ones(3, dtype=torch.float64)
    for text, value in {
        "x/12": 1 / 12,
        "0.1*x": 0.1,
        "x + 0.1": 1.1,
        "pi*x/7": math.pi / 7,
        "x*exp(1)": math.e,
    }.items():
        (result,) = torch_function([parse_expression(text, SYMBOLS)], [x])(one)
        assert result.tolist() == [value] * 3


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32], ids=str)
def test_constant_expressions(dtype: torch.dtype) -> None:
    (x, y, k) = points(dtype=dtype)
    third, zero, tensor = torch_function([sympy.Rational(1, 3), sympy.S.Zero, SYMBOLS["y"]], ARGUMENTS)(x, y, k)
    assert third.dtype == zero.dtype == dtype and third.shape == () and tensor is y
    assert third.item() == torch.tensor(1 / 3, dtype=dtype).item() and zero.item() == 0
    assert torch.equal((x + third).shape and x * zero, torch.zeros_like(x))


def test_jumps_at_zero() -> None:
    x = torch.tensor([-2.0, 0.0, 3.0], dtype=torch.float64)
    texts = ["heaviside(x)", "heaviside(x, 0)", "heaviside(x, 1)", "sign(x)", "abs(x)", "max(x, 0)"]
    values = torch_function([parse_expression(text, SYMBOLS) for text in texts], [SYMBOLS["x"]])(x)
    expected = [[0, 0.5, 1], [0, 0, 1], [0, 1, 1], [-1, 0, 1], [2, 0, 3], [0, 0, 3]]
    assert [value.tolist() for value in values] == expected


def test_broadcasts_points_against_trained_scalars() -> None:
    nu = torch.tensor(0.5, dtype=torch.float64, requires_grad=True)
    (result,) = torch_function([parse_expression("k*x**2", SYMBOLS)], [SYMBOLS["x"], SYMBOLS["k"]])(points()[0], nu)
    (gradient,) = torch.autograd.grad(result.sum(), nu)
    assert gradient.item() == pytest.approx(points()[0].square().sum().item(), rel=1e-15)


class Counter(torch.overrides.TorchFunctionMode):
    """Names of the torch functions that run."""

    def __init__(self) -> None:
        super().__init__()
        self.names: list[str] = []

    def __torch_function__(self, function, types, args=(), kwargs=None):  # noqa: ANN001
        self.names.append(getattr(function, "__name__", str(function)))
        return function(*args, **(kwargs or {}))


def test_common_subexpressions_are_computed_once() -> None:
    texts = ["exp(x*y) + sin(exp(x*y))", "exp(x*y)*k", "x*y*k"]
    function = torch_function([parse_expression(text, SYMBOLS) for text in texts], ARGUMENTS)
    tensors = points()
    with Counter() as counter:
        function(*tensors)
    assert counter.names.count("exp") == 1 and counter.names.count("mul") <= 3
    assert not {"item", "_local_scalar_dense", "to", "cpu", "nonzero"} & set(counter.names)


def navier_stokes() -> tuple[PDE, list[sympy.Symbol]]:
    equations = {
        "momentum_x": "u_t + u*u_x + v*u_y + p_x - nu*(u_xx + u_yy)",
        "momentum_y": "v_t + u*v_x + v*v_y + p_y - nu*(v_xx + v_yy) - sin(pi*x)*f/12",
        "continuity": "u_x + v_y",
        "constant": "0*u_x + nu - 1/3",
    }
    from pinnfuse.pde import Parameter

    pde = PDE("u v p", "t x y", [Parameter("nu", 0.1, trainable=True)], equations, data="f")
    groups = (pde.jet_symbols, pde.coordinate_symbols, pde.parameter_symbols, pde.data_symbols)
    return pde, [symbol for group in groups for symbol in group.values()]


def test_traces_with_fx() -> None:
    pde, arguments = navier_stokes()
    function = torch_function([*pde.jet_equations.values(), sympy.Rational(1, 7)], arguments)
    graph = fx.Graph()
    tracer = fx.proxy.GraphAppendingTracer(graph)
    proxies = [fx.Proxy(graph.placeholder(symbol.name), tracer) for symbol in arguments]
    graph.output(tuple(result.node for result in function(*proxies)))
    module = fx.GraphModule(torch.nn.Module(), graph)
    tensors = [torch.randn(5, dtype=torch.float64) for _ in arguments]
    for traced, eager in zip(module(*tensors), function(*tensors), strict=True):
        assert torch.equal(traced, eager)


def test_vmap_and_forward_mode() -> None:
    pde, arguments = navier_stokes()
    function = torch_function(list(pde.jet_equations.values()), arguments)
    tensors = tuple(torch.randn(5, dtype=torch.float64) for _ in arguments)
    for mapped, eager in zip(torch.func.vmap(function)(*tensors), function(*tensors), strict=True):
        assert torch.equal(mapped, eager)
    _, tangents = torch.func.jvp(function, tensors, tensors)
    at = {symbol.name: tensor for symbol, tensor in zip(arguments, tensors, strict=True)}
    assert torch.equal(tangents[2], at["u_x"] + at["v_y"])


def test_errors() -> None:
    x, y, _ = ARGUMENTS
    with pytest.raises(ValueError, match=r"torch_function: y is free in an expression but not among `arguments` \(x\)"):
        torch_function([x + y], [x])
    with pytest.raises(ValueError, match="`arguments` is empty"):
        torch_function([sympy.S.One], [])
    with pytest.raises(ValueError, match="repeats a symbol"):
        torch_function([x], [x, x])
    with pytest.raises(ValueError, match="gamma is not a function of the equation language"):
        torch_function([sympy.gamma(x)], [x])
    with pytest.raises(ValueError, match="not a finite real number"):
        torch_function([x * sympy.exp(1000)], [x])
    with pytest.raises(ValueError, match="not a finite real number"):
        torch_function([x + sympy.I], [x])
    with pytest.raises(ValueError, match=r"takes 2 tensors \(x, y\); got 1"):
        torch_function([x], [x, y])(torch.ones(1))
