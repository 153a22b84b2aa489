"""A user's own operators, from stencils and from texts: the battery OPS, and what they repeat of the library."""

import math

import pytest
import torch

from pinnfuse import BackendUnavailable, Grid
from pinnfuse.grid import Dirichlet, Neumann, backends, custom, derivative, gradient, laplacian

WALLS = Grid("x y", (0.5, 0.7), boundary={"x": (Dirichlet(0.3), "neumann"), "y": "periodic"}, order=4, centring="cell")
FREE = Grid("x y", (0.5, 0.7), boundary={"x": ("dirichlet", "neumann"), "y": "one-sided"}, centring="cell")
SIDES, CORNERS = ((1, 0), (-1, 0), (0, 1), (0, -1)), ((1, 1), (1, -1), (-1, 1), (-1, -1))
NINE_POINTS = {(0, 0): -20.0} | dict.fromkeys(SIDES, 4.0) | dict.fromkeys(CORNERS, 1.0)  # times 1 / (6 h^2)
SWISH, RATE = "u / (1 + exp(-u))", "0.1*(u_xx + u_yy) - u*u_x"
OPERATORS = {"stencil": NINE_POINTS, "pointwise": SWISH, "derivatives": RATE}
LINEAR = {"stencil": NINE_POINTS, "derivatives": "u_xx + 3*u_y - u"}


def field(*shape, where="cpu"):
    return torch.randn(*shape, dtype=torch.float64, device=where, requires_grad=True)


def close(found, truth, bound=1e-13):
    for a, b in zip(found, truth, strict=True):
        assert float((a.double() - b.double()).detach().abs().max()) <= bound * float(b.detach().abs().max())


# -- what they repeat ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("boundary", ["periodic", {"x": (Dirichlet(0.3), Neumann(-0.2)), "y": "one-sided"}], ids=str)
def test_a_stencil_repeats_the_library(boundary, interpreter, where):
    """The five points of the Laplacian as a user's stencil: values, rows at walls, gradients, second derivatives."""
    grid = Grid("x y", (0.5, 0.5), boundary=boundary, centring="cell")
    own = {(0, 0): -16.0, (1, 0): 4.0, (-1, 0): 4.0, (0, 1): 4.0, (0, -1): 4.0}
    u = torch.randn(2, 9, 14, dtype=torch.float64, device=where, requires_grad=True)
    truth = laplacian(u, grid, backend="torch")
    y = torch.randn_like(truth)
    for backend in ("torch", "triton"):
        found = custom(own, grid, backend=backend)(u)
        torch.testing.assert_close(found, truth, rtol=1e-12, atol=1e-11)
        pulled = [torch.autograd.grad(out, u, y, retain_graph=True)[0] for out in (found, truth)]
        torch.testing.assert_close(*pulled, rtol=1e-12, atol=1e-11)


def test_cross_points(interpreter, where):
    grid = Grid("x y", (0.5, 0.5), boundary={"x": Dirichlet(0.4), "y": Neumann(0.1)}, centring="cell")
    corners = {(i, j): i * j / (4 * 0.25) for i in (-1, 1) for j in (-1, 1)}
    u = torch.randn(7, 8, dtype=torch.float64, device=where, requires_grad=True)
    out = [custom(corners, grid, backend=backend)(u) for backend in ("torch", "triton")]
    torch.testing.assert_close(*out)
    torch.testing.assert_close(out[0][1:-1, 1:-1], derivative(u, grid, "xy", backend="torch")[1:-1, 1:-1])
    y = torch.randn_like(u)
    torch.testing.assert_close(*(torch.autograd.grad(o, u, y)[0] for o in out))


def test_a_text_repeats_torch_and_the_library():
    swish = custom(SWISH, Grid("x", 0.1, boundary="one-sided"))
    u = field(3, 2, 9)
    assert torch.allclose(swish(u), torch.nn.functional.silu(u))
    rate = custom("k*(u_xx + u_yy) - u*u_x + sin(v)", WALLS, fields="u v", k=0.1)
    u, v = field(2, 12, 13), field(12, 13)
    truth = 0.1 * laplacian(u, WALLS) - u * gradient(u, WALLS)[:, 0] + v.sin()
    assert torch.allclose(rate(u, v), truth)
    assert torch.allclose(rate(u, v, k=0.0), truth - 0.1 * laplacian(u, WALLS))
    k = torch.tensor(0.4, dtype=torch.float64, requires_grad=True)
    run = lambda u, v, k: rate(u, v, k=k)  # noqa: E731
    assert torch.autograd.gradcheck(run, (field(8, 9), field(8, 9), k), fast_mode=True)


# -- the battery --------------------------------------------------------------------------------------------------


def test_symbol_and_order():
    """The nine-point Laplacian of a square grid: its symbol on a mode to rounding, and of fourth order on the modes of
    one eigenvalue, of second otherwise."""
    angle = lambda n, k: 2 * math.pi * k * torch.arange(n, dtype=torch.float64) / n  # noqa: E731
    errors = []
    for n in (16, 32):
        h = 2 * math.pi / n
        nine = custom({o: w / (6 * h * h) for o, w in NINE_POINTS.items()}, Grid("x y", h, boundary="periodic"))
        u = torch.cos(angle(n, 1))[:, None] * torch.cos(angle(n, 2))
        a, b = math.cos(h), math.cos(2 * h)
        symbol = (-20 + 8 * (a + b) + 4 * a * b) / (6 * h * h)
        assert float((nine(u) - symbol * u).abs().max()) < 1e-12 * 40 / (6 * h * h)
        errors.append(float((nine(u) + 5 * u).abs().max()))
    assert 1.9 < math.log2(errors[0] / errors[1]) < 2.2


@pytest.mark.parametrize("name", OPERATORS)
def test_gradients(name):
    run = custom(OPERATORS[name], WALLS, backend="torch")
    u = field(8, 7)
    assert torch.autograd.gradcheck(run, u, fast_mode=True)
    assert torch.autograd.gradgradcheck(run, u, fast_mode=True)


@pytest.mark.parametrize("name", LINEAR)
def test_adjoint(name, interpreter, where):
    """<L u, y> = <u, L* y> with the kernels, homogeneous walls."""
    u = field(2, 7, 8, where=where)
    out = custom(LINEAR[name], FREE, backend="triton")(u)
    y = torch.randn_like(out)
    (pulled,) = torch.autograd.grad(out, u, y)
    assert (out * y).sum().item() == pytest.approx((u * pulled).sum().item(), rel=1e-11)


@pytest.mark.parametrize("name", OPERATORS)
def test_kernels_and_strides(name, interpreter, where):
    """Odd strides; upstream gradients of stride 0, transposed, and slices of a cat."""
    ours, plain = (custom(OPERATORS[name], WALLS, backend=b) for b in ("triton", "torch"))
    u = field(2, 6, 9, where=where).detach()
    odd = (
        u.movedim(-1, 0).contiguous().movedim(0, -1),
        torch.stack((u, u), -1)[..., 0],
        u[:1].expand(2, -1, -1),
    )
    upstream = (
        lambda out: out.sum(),
        lambda out: (out.transpose(-1, -2) * torch.arange(6.0, device=where)).sum(),
        lambda out: torch.cat((out, out**2))[..., 1:].mean(),
    )
    for given, reduce in zip(odd, upstream, strict=True):
        pair = []
        for run in (ours, plain):
            leaf = given.detach().requires_grad_()
            out = run(leaf)
            pair.append((out, *torch.autograd.grad(reduce(out), leaf)))
        close(*pair)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize("name", OPERATORS)
def test_half_precision_sums_in_float32(name, dtype, interpreter, where):
    u = torch.randn(1, 6, 9, device=where).to(dtype)
    truth = custom(OPERATORS[name], WALLS, backend="torch")(u.double())
    for backend in ("triton", "torch"):
        found = custom(OPERATORS[name], WALLS, backend=backend)(u)
        assert found.dtype == dtype
        close([found], [truth], bound=torch.finfo(dtype).eps)


@pytest.mark.parametrize("what", [NINE_POINTS, SWISH], ids=["stencil", "text"])
def test_backend_by_name(what, monkeypatch):
    """`name` is what `backends` calls them by."""
    own, u = custom(what, WALLS, name="own"), torch.randn(8, 9)
    with backends(own="triton"), pytest.raises(BackendUnavailable):
        own(u)
    with backends(own="torch"):
        own(u)


def test_second_derivatives_of_kernels(interpreter, where):
    u = field(1, 6, 9, where=where)
    (first,) = torch.autograd.grad(custom(NINE_POINTS, WALLS, backend="triton")(u).square().sum(), u, create_graph=True)
    assert first.requires_grad
    with pytest.raises(RuntimeError, match="no derivative of its own"):
        torch.autograd.grad(custom(RATE, WALLS, backend="triton")(u).sum(), u, create_graph=True)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: custom({1: 1.0}, WALLS), "tuples of 2 integers"),
        (lambda: custom({}, WALLS), "at least one entry"),
        (lambda: custom({(0, 0): 1.0}, WALLS, k=1.0), "neither `fields` nor parameters"),
        (lambda: custom({(0, 0): 1.0}, WALLS, fields="u v"), "neither `fields` nor parameters"),
        (lambda: custom({(0, 0): 1.0}, WALLS)(torch.zeros(9)), "must be"),
        (lambda: custom({(9, 0): 1.0}, WALLS)(torch.zeros(9, 9)), "at least 10 points along 'x'"),
        (lambda: custom("w_x", WALLS), "w"),
        (lambda: custom("u_x", WALLS)(torch.zeros(9, 9), torch.zeros(9, 9)), "takes one tensor"),
        (lambda: custom("u_x", WALLS)(torch.zeros(9)), "must be"),
        (lambda: custom("k*u_x", WALLS, k=1.0)(torch.zeros(9, 9), c=2.0), "unknown parameter 'c'"),
        (lambda: custom("u_x", WALLS, backend="tritton"), "unknown `backend`"),
        (lambda: custom(5, WALLS), "{offset: weight} or a text"),
        (lambda: custom({(0, 0): 1j}, WALLS), "the weight at .* must be a finite number"),
        (lambda: custom({(0, 0): float("nan")}, WALLS), "the weight at .* must be a finite number"),
        (lambda: custom("u*v", WALLS, fields="u v")(torch.zeros(2, 9, 9), torch.zeros(3, 9, 9)), "must broadcast"),
        (lambda: custom("u_x", 0.1), "must be a pinnfuse.Grid"),
    ],
    ids=range(16),
)
def test_bad_input(make, message):
    with pytest.raises(ValueError, match=message):
        make()


def test_integers_as_offsets_on_a_line():
    line = Grid("x", 1.0, boundary="periodic")
    assert custom({1: 1.0, 0: -1.0}, line)(torch.arange(4.0)).tolist() == [1.0, 1.0, 1.0, -3.0]
