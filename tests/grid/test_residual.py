"""Grid residuals in plain float64 torch against mathematics: exact solutions, adjoints, checks of what is handed in."""

import copy
import math
import pickle

import pytest
import torch

from pinnfuse import PDE, Grid
from pinnfuse.grid import Dirichlet, FusedGridResidualLoss, Neumann, axis_stencil

PI = math.pi
NAVIER_STOKES = {
    "momentum_x": "u_t + u*u_x + v*u_y + p_x - nu*(u_xx + u_yy)",
    "momentum_y": "v_t + u*v_x + v*v_y + p_y - nu*(v_xx + v_yy)",
    "continuity": "u_x + v_y",
}


def sample(grid, shape, times, *functions):
    """[1, T, C, *space] in float64."""
    x = torch.meshgrid(*grid.coordinates(shape, dtype=torch.float64).values(), indexing="ij")
    return torch.stack([torch.stack([f(t, *x) for f in functions]) for t in times])[None]


def order(errors):
    return [math.log2(a / b) for a, b in zip(errors[:-1], errors[1:], strict=True)]


def taylor_green(nu):
    decay = lambda t, power=1: math.exp(-2 * nu * power * t)  # noqa: E731
    return (
        lambda t, x, y: -torch.cos(x) * torch.sin(y) * decay(t),
        lambda t, x, y: torch.sin(x) * torch.cos(y) * decay(t),
        lambda t, x, y: -(torch.cos(2 * x) + torch.cos(2 * y)) / 4 * decay(t, 2),
    )


@pytest.mark.parametrize("p", [2, 4, 6])
def test_taylor_green_converges_at_the_order_of_the_grid(p):
    nu, errors = 0.05, []
    pde = PDE("u v p", "t x y", parameters={"nu": nu}, equations=NAVIER_STOKES)
    for n in (20, 40):
        grid = Grid("x y", (2 * PI / n, 4 * PI / (3 * n)), boundary="periodic", order=p)
        step = 1e-4 if p == 6 else 1e-3
        loss = FusedGridResidualLoss(pde, grid, step, "crank_nicolson", backend="torch")
        r = loss.residuals(sample(grid, (n, 3 * n // 2), (0.3, 0.3 + step), *taylor_green(nu)))
        assert r.shape == (1, 1, 3, n, 3 * n // 2)
        errors.append(float(r.abs().max()))
    assert order(errors)[0] > p - 0.4


@pytest.mark.parametrize(
    ("scheme", "expected"),
    [("forward_euler", 1), ("backward_euler", 1), ("crank_nicolson", 2), ("midpoint", 2), ("central", 2), ("bdf2", 2)],
)
def test_schemes_converge_in_time_on_a_decaying_mode(scheme, expected):
    """u = exp(-nu t) sin x + t sin 2x with forcing, formed at the right time; the grid is fine enough."""
    pde = PDE("u", "t x", parameters={"nu": 0.5}, equations={"heat": "u_t - nu*u_xx - (1 + 4*nu*t)*sin(2*x)"})
    grid = Grid("x", 2 * PI / 96, boundary="periodic", order=6)
    errors = []
    for step in (0.1, 0.05, 0.025):
        loss = FusedGridResidualLoss(pde, grid, step, scheme, backend="torch", time_start=0.7)
        times = [0.7 + k * step for k in range(4)]
        u = lambda t, x: math.exp(-0.5 * t) * torch.sin(x) + t * torch.sin(2 * x)  # noqa: E731
        errors.append(float(loss.residuals(sample(grid, (96,), times, u)).abs().max()))
    assert order(errors)[-1] > expected - 0.15


def test_travelling_wave_of_burgers_in_conservative_form():
    """u = c - a tanh(a (x - c t) / 2 nu): order 2 inside, and 1 at the ends by the second derivative there."""
    nu, a, c, errors, inner = 0.1, 0.5, 0.7, [], []
    pde = PDE("u", "t x", parameters={"nu": nu}, equations={"burgers": "u_t + D(u**2/2, x) - nu*u_xx"})
    for n in (33, 65, 129):
        grid = Grid("x", 2 / (n - 1), boundary="one-sided", origin=-1.0)
        loss = FusedGridResidualLoss(pde, grid, 1e-4, "crank_nicolson", backend="torch")
        u = lambda t, x: c - a * torch.tanh(a * (x - c * t) / (2 * nu))  # noqa: E731
        r = loss.residuals(sample(grid, (n,), (0.2, 0.2001), u)).abs()
        errors.append(float(r.max()))
        inner.append(float(r[..., 2:-2].max()))
    assert order(errors)[-1] > 0.9 and order(inner)[-1] > 1.9


def walls(n, p, centring):
    """Grids on [0, 1] x [0, 2] for u = sin(pi x) (y^2 + 1), Dirichlet in x, Neumann and Dirichlet in y."""
    boundary = {"x": "dirichlet", "y": "one-sided"}
    count = {"node": n - 1, "cell": n}[centring]
    return Grid("x y", (1 / n, 2 / n), boundary=boundary, order=p, centring=centring), (count, n)


@pytest.mark.parametrize("centring", ["node", "cell"])
@pytest.mark.parametrize("p", [2, 4])
def test_manufactured_solution_between_walls(p, centring):
    """First derivatives keep the order at walls, second ones lose one: the maximum converges at p - 1."""
    pde = PDE("u", "x y", equations={"e": "laplacian(u) + u*u_x - (2 - pi**2*(y**2 + 1))*sin(pi*x) "
                                          "- pi*sin(pi*x)*cos(pi*x)*(y**2 + 1)**2"})  # fmt: skip
    errors, inner = [], []
    for n in (24, 48):
        grid, shape = walls(n, p, centring)
        loss = FusedGridResidualLoss(pde, grid, backend="torch")
        u = sample(grid, shape, (0.0,), lambda t, x, y: torch.sin(PI * x) * (y**2 + 1))[:, 0]
        r = loss.residuals(u)[0, 0].abs()
        errors.append(float(r.max()))
        inner.append(float(r[shape[0] // 3 : -shape[0] // 3].max()))
    assert order(errors)[0] > p - 1.15
    assert order(inner)[0] > p - 0.2


@pytest.mark.parametrize("centring", ["node", "cell"])
def test_neumann_walls_and_values_on_walls(centring):
    """u = x^2 / 2 + 3: value 3 or slope 0 at the low end, slope 1 at the high one; order 2 is exact on it."""
    n = 8
    low = {"node": Neumann(0.0), "cell": Dirichlet(3.0)}[centring]
    count = {"node": n + 1, "cell": n}[centring]
    grid = Grid("x", 1 / n, boundary={"x": (low, Neumann(1.0))}, centring=centring)
    (x,) = grid.coordinates((count,), dtype=torch.float64).values()
    pde = PDE("u", "x", equations={"e": "u_xx - 1", "slope": "u_x - x"})
    r = FusedGridResidualLoss(pde, grid, backend="torch").residuals((x**2 / 2 + 3)[None, None])
    assert r.abs().max() < 1e-10


def test_fields_with_walls_of_their_own():
    """Couette flow u = y with a moving lid, p = 0: exact."""
    pde = PDE("u v p", "x y", parameters={"nu": 0.1}, equations={k: e.replace("u_t + ", "").replace("v_t + ", "")
                                                                 for k, e in NAVIER_STOKES.items()})  # fmt: skip
    common = {"axes": "x y", "spacing": (0.2, 0.125), "centring": "cell"}
    grids = {
        "u": Grid(**common, boundary={"x": "periodic", "y": (Dirichlet(0.0), Dirichlet(1.0))}),
        "v": Grid(**common, boundary={"x": "periodic", "y": "dirichlet"}),
        "p": Grid(**common, boundary={"x": "periodic", "y": "neumann"}),
    }
    y = grids["u"].coordinates((6, 8), dtype=torch.float64)["y"].expand(6, 8)
    fields = torch.stack([y, torch.zeros_like(y), torch.ones_like(y)])[None]
    assert FusedGridResidualLoss(pde, grids, backend="torch").residuals(fields).abs().max() < 1e-12


MIXED = PDE(
    "u k", "t x y", parameters={"a": 0.3, "b": 2.0}, data="s",
    equations={"d": "u_t - D((k + a)*D(u, x), x) + b*s*u_xy - sin(x)*t", "e": "D(u**2*k, y) + exp(-a*u_x)"},
)  # fmt: skip


def mixed(**options):
    walls = {"x": (Dirichlet(0.3), Neumann(0.2)), "y": "one-sided"}
    grid = Grid("x y", (0.3, 0.2), boundary=walls, centring="cell")
    free = Grid("x y", (0.3, 0.2), boundary="one-sided", centring="cell")
    return FusedGridResidualLoss(MIXED, {"u": grid, "k": free}, 0.1, "midpoint", equation_weights=[1.0, 0.5], **options)


def test_gradients_of_everything():
    loss = mixed(backend="torch")
    fields = torch.rand(2, 2, 2, 5, 6, dtype=torch.float64, requires_grad=True)
    s, w = (torch.rand(2, *shape, dtype=torch.float64, requires_grad=True) for shape in ((5, 6), (1, 2, 5, 6)))
    a = torch.tensor([0.3, 0.5], dtype=torch.float64, requires_grad=True)
    b = torch.tensor(2.0, dtype=torch.float64, requires_grad=True)
    call = lambda f, s, w, a, b: loss(f, w, {"s": s}, {"a": a, "b": b})  # noqa: E731
    assert torch.autograd.gradcheck(call, (fields, s, w, a, b), fast_mode=True)


def test_what_evaluate_returns():
    loss = mixed(backend="torch")
    fields, s, w = torch.rand(2, 4, 2, 5, 6), torch.rand(6), torch.rand(5, 6)
    found = loss.evaluate(fields, w, {"s": s})
    assert found.residuals.shape == (2, 3, 2, 5, 6) and not found.residuals.requires_grad
    means = (w * found.residuals.square()).mean((0, 1, 3, 4))
    torch.testing.assert_close(torch.stack(list(found.per_equation.values())), means)
    torch.testing.assert_close(found.loss, means[0] + 0.5 * means[1])
    torch.testing.assert_close(loss(fields, w, {"s": s}), found.loss)


def test_per_sample_parameters_act_on_their_sample():
    loss = mixed(backend="torch")
    fields, s = torch.rand(2, 2, 2, 5, 6), torch.rand(5, 6)
    both = loss.residuals(fields, {"s": s}, {"a": torch.tensor([0.1, 0.9])})
    for k, a in enumerate((0.1, 0.9)):
        torch.testing.assert_close(both[k : k + 1], loss.residuals(fields[k : k + 1], {"s": s}, {"a": a}))
    loss.set_parameter("a", 0.9)
    torch.testing.assert_close(both[1:], loss.residuals(fields[1:], {"s": s}))


def test_strides_do_not_matter():
    pde = PDE("u v", "x y", equations={"e": "u*v_x + u_yy"})
    loss = FusedGridResidualLoss(pde, Grid("x y", 0.1, boundary="periodic"), backend="torch")
    big = torch.randn(9, 2, 8, 3, dtype=torch.float64)
    view = big.permute(3, 1, 2, 0)[:, :, 1:7]
    torch.testing.assert_close(loss(view), loss(view.contiguous()))
    one = torch.randn(1, 2, 6, 9, dtype=torch.float64)
    torch.testing.assert_close(loss(one.expand(3, -1, -1, -1)), loss(one))


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_is_summed_in_float32(dtype):
    pde = PDE("u", "x", equations={"e": "u_xx - 1000*u"})
    loss = FusedGridResidualLoss(pde, Grid("x", 0.01, boundary="periodic"), backend="torch")
    u = torch.randn(2, 1, 40).to(dtype).requires_grad_()
    value = loss(u)
    assert value.dtype == torch.float32
    torch.testing.assert_close(value, loss(u.float()))
    value.backward()
    assert u.grad.dtype == dtype


def test_trained_parameters_are_found_and_kept():
    from pinnfuse import Parameter

    pde = PDE("u", "t x", [Parameter("nu", 0.3, trainable=True, positive=True)], {"heat": "u_t - nu*u_xx"})
    grid = Grid("x", 2 * PI / 32, boundary="periodic", order=6)
    loss = FusedGridResidualLoss(pde, grid, 0.05, "crank_nicolson", backend="torch").double()
    u = sample(grid, (32,), [0.05 * k for k in range(6)], lambda t, x: math.exp(-0.1 * t) * torch.sin(x))
    optimizer = torch.optim.LBFGS(
        loss.parameters(), line_search_fn="strong_wolfe", tolerance_grad=0, tolerance_change=0
    )

    def closure():
        optimizer.zero_grad()
        value = loss(u)
        value.backward()
        return value

    for _ in range(3):
        optimizer.step(closure)
    assert loss.parameter_values()["nu"].item() == pytest.approx(0.1, rel=1e-4)
    other = FusedGridResidualLoss(pde, grid, 0.05, "crank_nicolson")
    other.load_state_dict(loss.state_dict())


def test_copies_and_pickles():
    loss = mixed(backend="torch")
    fields, s = torch.rand(2, 2, 2, 5, 6), torch.rand(5, 6)
    value = loss(fields, data={"s": s})
    for other in (copy.deepcopy(loss), pickle.loads(pickle.dumps(loss))):
        assert torch.equal(other(fields, data={"s": s}), value)


def test_explanation_names_the_path():
    text = str(mixed().explain(torch.rand(1, 2, 2, 5, 6)))
    assert "torch" in text and "midpoint" in text and "u_xy" in text


@pytest.mark.parametrize("centring", ["node", "cell"])
@pytest.mark.parametrize("p", [2, 4, 6])
@pytest.mark.parametrize(
    "boundary", ["periodic", "one-sided", (Dirichlet(0.7), Neumann(-0.3)), (Neumann(2.0), Dirichlet(1.0))], ids=str
)
def test_points_outside_give_the_rows_of_the_tables(boundary, p, centring):
    """Extended fields under the interior formula are the matrices of `axis_stencil`."""
    grid = Grid("x", 0.3, boundary={"x": boundary}, order=p, centring=centring)
    u = torch.randn(14, dtype=torch.float64)
    for derivative, name in enumerate(("u_x", "u_xx", "u_xxx", "u_xxxx"), 1):
        pde = PDE("u", "x", equations={"e": name})
        found = FusedGridResidualLoss(pde, grid, backend="torch").residuals(u[None, None])[0, 0]
        matrix, constant = axis_stencil(grid, "x", derivative).matrix(14)
        expected = matrix @ u + constant
        assert (found - expected).abs().max() <= 1e-11 * matrix.abs().sum(1).max()


def cavity_grids(n):
    """[0, 1] x [0, 2], cell-centred: walls all around, where u = v = 0 and p_x = 0, p_y = 0."""
    common = {"axes": "x y", "spacing": (1 / n, 2 / (n + 6)), "centring": "cell"}
    return {name: Grid(**common, boundary="neumann" if name == "p" else "dirichlet") for name in "uvp"}


def test_manufactured_navier_stokes_between_walls():
    """u = v = sin(pi x) sin(pi y / 2), p = cos(pi x) cos(pi y / 2), steady: order 2 inside, 1 in the rows at walls."""
    s = "sin(pi*x)*sin(pi*y/2)"
    sx, sy = "pi*cos(pi*x)*sin(pi*y/2)", "pi/2*sin(pi*x)*cos(pi*y/2)"
    force = f"{s}*({sx} + {sy}) + nu*5*pi**2/4*{s}"
    steady = {
        "momentum_x": f"u*u_x + v*u_y + p_x - nu*(u_xx + u_yy) - ({force} - pi*sin(pi*x)*cos(pi*y/2))",
        "momentum_y": f"u*v_x + v*v_y + p_y - nu*(v_xx + v_yy) - ({force} - pi/2*cos(pi*x)*sin(pi*y/2))",
        "continuity": f"u_x + v_y - ({sx} + {sy})",
    }
    pde = PDE("u v p", "x y", parameters={"nu": 0.1}, equations=steady)
    velocity = lambda t, x, y: torch.sin(PI * x) * torch.sin(PI * y / 2)  # noqa: E731
    pressure = lambda t, x, y: torch.cos(PI * x) * torch.cos(PI * y / 2)  # noqa: E731
    errors, inner = [], []
    for n in (20, 40):
        grids = cavity_grids(n)
        fields = sample(grids["u"], (n, n + 6), (0.0,), velocity, velocity, pressure)[:, 0]
        r = FusedGridResidualLoss(pde, grids, backend="torch").residuals(fields).abs()
        errors.append(float(r.max()))
        inner.append(float(r[..., 2:-2, 2:-2].max()))
    assert order(errors)[0] > 0.85 and order(inner)[0] > 1.7
