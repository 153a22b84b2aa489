"""The battery OPS for every operator of the table, on plain torch; kernels are compared with it in their own file."""

import pytest
import sympy
import torch
from torch.autograd import forward_ad

from pinnfuse import PDE, BackendUnavailable, FusedGridResidualLoss, Grid
from pinnfuse.grid import (
    Dirichlet,
    Neumann,
    backends,
    convection,
    derivative,
    diffusion,
    divergence,
    gradient,
    laplacian,
    sample,
)
from pinnfuse.grid.registry import OPERATORS, draw
from pinnfuse.grid.stencils import axis_stencil
from pinnfuse.verification.operators import grids

LINEAR = [name for name, entry in OPERATORS.items() if entry.linear]
NONLINEAR = [name for name, entry in OPERATORS.items() if not entry.linear]
X = sympy.symbols("x y z", real=True)
TAU = 2 * sympy.pi


def functions(d: int, periodic: bool) -> dict[str, object]:
    """A scalar, a positive and a vector field; `v` keeps its signs, so that upwind schemes are smooth in it."""
    x = X[:d]
    phase = sum((k + 1) * s for k, s in enumerate(x))
    scalar = sympy.sin(TAU * x[0]) * (sympy.cos(TAU * x[1]) if d > 1 else 1) + sympy.cos(TAU * phase) / 3
    if not periodic:
        scalar = sympy.sin(x[0] + 0.3) * sympy.exp(sum(x[1:]) / 2) + sympy.cos(phase) / 3
    vector = tuple(
        (-1) ** k * (2 + sympy.sin(TAU * x[(k + 1) % d] + k) / 2 + sympy.cos(TAU * x[k]) / 3) for k in range(d)
    )
    return {"scalar": scalar, "positive": 2 + sympy.sin(TAU * x[0] + 1) / 2, "vector": vector}


def evaluate(expression, grid: Grid, space: tuple[int, ...]) -> torch.Tensor:
    points = grid.coordinates(space, dtype=torch.float64)
    mesh = torch.meshgrid(*points.values(), indexing="ij")
    if isinstance(expression, tuple):
        return torch.stack([evaluate(e, grid, space) for e in expression])
    value = sympy.lambdify(X[: grid.dimension], expression, "numpy")(*(m.numpy() for m in mesh))
    return torch.as_tensor(value, dtype=torch.float64).expand(space)


def exact(entry, grid: Grid, space, given) -> torch.Tensor:
    def D(expression, axes):
        return sympy.diff(expression, *(X[a] for a in axes))

    parts = [evaluate(e, grid, space) for e in entry.exact(D, grid.dimension, *given)]
    return torch.stack(parts) if len(parts) > 1 else parts[0]


def limited(name: str) -> bool:
    """Schemes that lose their order around extrema: judged by the median error."""
    return "van_leer" in name or "weno5" in name


@pytest.mark.parametrize("name", OPERATORS)
def test_order_on_a_torus(name):
    """Rectangular, non-unit spacing ratio; the slope of the error between two grids, and its sign of life."""
    entry = OPERATORS[name]
    errors = []
    sizes = (64, 128) if "weno5" in name else (32, 64)  # its weights settle late
    for n in sizes:
        space = (n, 3 * n // 2)
        grid = Grid("x y", (1 / space[0], 1 / space[1]), boundary="periodic", order=4)
        given = [functions(2, True)[kind] for kind in entry.inputs]
        found = entry.run(grid, *(evaluate(f, grid, space) for f in given), backend="torch")
        truth = exact(entry, grid, space, given)
        assert found.shape == truth.shape
        errors.append(float((found - truth).abs().median() if limited(name) else (found - truth).abs().max()))
    order = entry.order or 4
    slope = torch.log2(torch.tensor(errors[0] / errors[1]))
    assert slope > order - 0.35, (errors, float(slope))
    assert errors[1] > 0


@pytest.mark.parametrize("kind", ["dirichlet", "neumann", "one-sided"])
@pytest.mark.parametrize("name", [n for n in OPERATORS if n not in ("biharmonic",) and "skew" not in n])
def test_order_at_walls(name, kind):
    """One axis with walls whose numbers are those of the function; rows near walls apart from the others."""
    entry = OPERATORS[name]
    if entry.least > 1 or (kind != "one-sided" and "vector" in entry.inputs[0]):
        pytest.skip("needs two axes, or walls that vary along the other axis")
    expression = functions(1, False)["scalar"]
    inner, outer = [], []
    for n in (96, 192) if "van_leer" in name else (24, 48):
        h = 1 / n
        value = sympy.lambdify(X[0], expression if kind == "dirichlet" else sympy.diff(expression, X[0]))
        sides = "one-sided"
        if kind != "one-sided":
            wall = Dirichlet if kind == "dirichlet" else Neumann
            sides = (wall(float(value(0.0))), wall(float(value(1.0))))
        grid = Grid("x", h, boundary={"x": sides}, order=2, centring="cell")
        given = [expression if k == "scalar" else functions(1, False)[k] for k in entry.inputs]
        if "vector" in entry.inputs and entry.inputs[0] == "vector":
            given = [(expression,)]
        found = entry.run(grid, *(evaluate(f, grid, (n,)) for f in given), backend="torch")
        error = (found - exact(entry, grid, (n,), given)).abs().reshape(-1)
        outer.append(float(torch.cat([error[:3], error[-3:]]).max()))
        inner.append(float(error[4:-4].median() if limited(name) else error[4:-4].max()))
    order = entry.order or 2
    at_walls = {"van_leer": 1, "weno5": 3}.get(name.split()[1] if " " in name else "", order - entry.lost)
    assert inner[0] / inner[1] > 2 ** (min(order, 4.5) - 0.4), inner
    assert outer[0] / outer[1] > 2 ** (at_walls - 0.45), outer


@pytest.mark.parametrize("name", LINEAR)
@pytest.mark.parametrize("order", [2, 4, 6])
def test_symbol(name, order):
    """On a Fourier mode a linear operator multiplies by its symbol, to 1e-12 of the sum of its weights."""
    entry = OPERATORS[name]
    space, waves = (16, 18), (3, 5)
    grid = Grid("x y", (0.3, 0.2), boundary="periodic", order=order)
    phases = [torch.tensor(2 * torch.pi * k / n, dtype=torch.float64) for k, n in zip(waves, space, strict=True)]
    angle = phases[0] * torch.arange(space[0])[:, None] + phases[1] * torch.arange(space[1])

    def D(factor, axes):
        for a in set(axes):
            factor = factor * axis_stencil(grid, grid.axes[a], axes.count(a)).symbol(phases[a])
        return factor

    components = (1.0, -0.7)
    argument = components if entry.inputs == ("vector",) else 1.0
    symbols = entry.exact(D, 2, argument)
    shape = torch.tensor(components, dtype=torch.float64)[:, None, None] if entry.inputs == ("vector",) else 1.0
    real, imaginary = (entry.run(grid, f(angle) * shape, backend="torch") for f in (torch.cos, torch.sin))
    truth = torch.stack([s * torch.exp(1j * angle) for s in symbols]).reshape(real.shape)
    scale = sum(map(abs, axis_stencil(grid, "y", 4 if name == "biharmonic" else 2).weights))
    assert float((torch.complex(real, imaginary) - truth).abs().max()) < 1e-12 * scale


@pytest.mark.parametrize("name", OPERATORS)
def test_gradcheck(name):
    """Plain torch, which kernels are compared with, against finite differences; twice for the linear ones."""
    entry = OPERATORS[name]
    _, (_, grid) = grids(2)
    inputs = [x.requires_grad_() for x in draw(entry, grid, (), (8, 7))]
    for k in range(len(inputs)):  # keep clear of v = 0, where upwind schemes have no derivative
        if entry.inputs[k] == "vector":
            inputs[k] = (inputs[k].detach() + 0.1 * inputs[k].detach().sign()).requires_grad_()

    def run(*given):
        return entry.run(grid, *given, backend="torch")

    assert torch.autograd.gradcheck(run, inputs, fast_mode=True)
    if entry.linear:
        assert torch.autograd.gradgradcheck(run, inputs, fast_mode=True)


def test_conservation():
    """Flux forms sum to zero over a torus; the central skew form keeps the sum of squares; limiters keep bounds."""
    grid = Grid("x y", (0.1, 0.2), boundary="periodic", order=4)
    f, v = torch.randn(12, 14, dtype=torch.float64), torch.randn(2, 12, 14, dtype=torch.float64)
    for name in (n for n in NONLINEAR if "conservative" in n or n == "diffusion"):
        arguments = (f, v) if "convection" in name else (f, v[0].abs())
        assert abs(float(OPERATORS[name].run(grid, *arguments, backend="torch").sum())) < 1e-10
    skew = convection(f, v, grid, form="skew", backend="torch")
    assert abs(float((f * skew).sum())) < 1e-10
    line = Grid("x", 0.02, boundary="periodic")
    step = (torch.arange(50) // 10 % 2).double()
    velocity = torch.ones(1, 50, dtype=torch.float64)
    for scheme in ("upwind1", "van_leer"):
        u = step
        for _ in range(200):
            u = u - 0.4 * 0.02 * convection(u, velocity, line, scheme=scheme, form="conservative", backend="torch")
        assert float(u.min()) > -1e-12 and float(u.max()) < 1 + 1e-12
        assert float(u.sum()) == pytest.approx(float(step.sum()))


def test_adjoint_identity():
    """On a torus of even order, the divergence is minus the transposed gradient."""
    grid = Grid("x y", (0.1, 0.2), boundary="periodic", order=6)
    f, v = torch.randn(12, 14, dtype=torch.float64), torch.randn(2, 12, 14, dtype=torch.float64)
    assert float((gradient(f, grid) * v).sum()) == pytest.approx(-float((f * divergence(v, grid)).sum()))


def test_transforms_see_plain_torch(interpreter):
    """Kernels read values: they would lose a tangent without a word. "auto" leaves torch.func and forward mode to plain
    torch, an explicit "triton" says so."""
    grid = Grid("x y", 0.5, boundary={"x": "periodic", "y": "dirichlet"})
    u, t, v = (torch.randn(*shape, dtype=torch.float64) for shape in ((6, 8), (6, 8), (2, 6, 8)))
    walls = Grid("x y", 0.5, boundary={"x": "periodic", "y": "dirichlet"}, centring="cell")
    pde = PDE("u", "x y", {"k": 2.0}, {"e": "k*(u_xx + u_yy) - u"})
    loss = {backend: FusedGridResidualLoss(pde, grid, backend=backend) for backend in ("auto", "torch")}
    points = torch.rand(3, 2, dtype=torch.float64)
    for run in (
        lambda u, backend: laplacian(u, grid, backend=backend),
        lambda u, backend: convection(u, v, grid, scheme="upwind1", backend=backend),
        lambda u, backend: sample(u, points, walls, backend=backend),
        lambda u, backend: loss[backend](u[None, None]),
    ):
        with forward_ad.dual_level():
            auto, torch_alone = (forward_ad.unpack_dual(run(forward_ad.make_dual(u, t), b)) for b in ("auto", "torch"))
        torch.testing.assert_close(auto.tangent, torch_alone.tangent)
        batch = torch.stack((u, t))
        found = torch.func.vmap(lambda u, run=run: run(u, "auto"))(batch)
        torch.testing.assert_close(found, torch.stack([run(u, "torch") for u in batch]))
    k = torch.tensor(1.0, dtype=torch.float64)
    slope = torch.func.jvp(lambda k: loss["auto"](u[None, None], parameters={"k": k}), (k,), (k,))[1]
    (expected,) = torch.autograd.grad(loss["torch"](u[None, None], parameters={"k": k.requires_grad_()}), k)
    torch.testing.assert_close(slope, expected)
    weights = torch.rand(3, 6, 8, dtype=torch.float64)
    found = torch.func.vmap(lambda w: loss["auto"](u[None, None], w))(weights)
    torch.testing.assert_close(found, torch.stack([loss["torch"](u[None, None], w) for w in weights]))
    with pytest.raises(BackendUnavailable, match="torch.func and forward-mode"):
        torch.func.vmap(lambda u: laplacian(u, grid, backend="triton"))(u[None])


def test_choice_of_backend(interpreter, monkeypatch):
    grid = Grid("x y", 1.0, boundary="periodic")
    u = torch.randn(8, 8, dtype=torch.float64)
    calls = []
    monkeypatch.setattr("pinnfuse.grid.linear._run", lambda u, *rest: calls.append(1) or u)
    laplacian(u, grid)
    with backends(laplacian="torch"):
        laplacian(u, grid)
        assert len(calls) == 1
    monkeypatch.delenv("PINNFUSE_INTERPRET")
    with pytest.raises(BackendUnavailable, match="kernels need a CUDA card. Available here: 'torch'"):
        laplacian(u, grid, backend="triton")
    with pytest.raises(ValueError, match="unknown `backend`"):
        laplacian(u, grid, backend="tritton")


def test_backends_mix(interpreter, where):
    """Some operators by kernels, others by torch, in one function: values and gradients of torch alone."""
    _, (_, grid) = grids(1)
    u = torch.randn(2, 20, dtype=torch.float64, device=where, requires_grad=True)
    found = []
    for choice in ({"laplacian": "torch", "gradient": "triton"}, {"laplacian": "triton", "gradient": "torch"}, {}):
        with backends(**(choice or {"laplacian": "torch", "gradient": "torch"})):
            rate = 0.1 * laplacian(u, grid) - u * gradient(u, grid)[:, 0]
            found.append((rate, *torch.autograd.grad(rate.square().sum(), u)))
    for mixed in found[:2]:
        for a, b in zip(mixed, found[2], strict=True):
            torch.testing.assert_close(a, b, rtol=1e-12, atol=1e-11)


def test_a_cpu_tensor_beside_a_card(monkeypatch):
    from pinnfuse.grid import dispatch

    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setattr(dispatch, "_said", set())
    grid, u = Grid("x", 1.0, boundary="periodic"), torch.randn(8)
    with pytest.warns(UserWarning, match=r"Move the field with u\.cuda"):
        laplacian(u, grid)
    monkeypatch.setenv("PINNFUSE_STRICT", "1")
    with pytest.raises(BackendUnavailable, match="CUDA card"):
        laplacian(u, grid)


def test_a_kernel_that_does_not_compile(interpreter, monkeypatch):
    import triton

    from pinnfuse.grid import dispatch

    class Broken(triton.TritonError):
        pass

    def fail(*_):
        raise Broken("PassManager::run failed")

    monkeypatch.setattr("pinnfuse.grid.linear._run", fail)
    monkeypatch.setattr(dispatch, "_broken", set())
    grid, u = Grid("x", 1.0, boundary="periodic"), torch.randn(8)
    with pytest.warns(UserWarning, match=r"PassManager::run failed \[triton .* Running plain torch"):
        laplacian(u, grid)
    with pytest.raises(BackendUnavailable, match="PassManager"):
        laplacian(u, grid, backend="triton")


def test_errors():
    grid = Grid("x y", 1.0, boundary="periodic", order=4)
    u, v = torch.zeros(8, 8), torch.zeros(2, 8, 8)
    for call, message in (
        (lambda: derivative(u, grid, "xz"), "unknown from 'z' on"),
        (lambda: derivative(u, grid, ""), "at least one axis"),
        (lambda: divergence(u, grid), r"must be \[..., components, x, y\]"),
        (lambda: divergence(torch.zeros(3, 8, 8), grid), "one component per axis"),
        (lambda: laplacian(torch.zeros(4, 8), grid), "at least 5 points along 'x'"),
        (lambda: laplacian(u, grid, order=3), "must be 2, 4 or 6"),
        (lambda: convection(u, v, grid, scheme="weno"), "Did you mean 'weno5'"),
        (lambda: convection(u, v, grid, form="flux"), "unknown `form`"),
        (lambda: convection(u, v[:, :7], grid), "with space"),
        (lambda: convection(u, v.double(), grid), "dtype and device of the field"),
        (lambda: convection(u[:3], v[:, :3], grid, scheme="weno5"), "at least 5 points along 'x'"),
        (lambda: laplacian(u, 0.1), "must be a pinnfuse.Grid, which holds spacing and boundary"),
        (lambda: laplacian(u, None, order=2), "must be a pinnfuse.Grid"),
        (lambda: divergence(v, []), "must be a pinnfuse.Grid"),
        (lambda: derivative(u, grid, 1), "unknown axis 1"),
        (lambda: diffusion(u, 1j, grid), "`k` must be a finite number"),
        (lambda: diffusion(u, None, grid), "`k` must be a finite number"),
        (lambda: sample(u, torch.zeros(3, 2), "x y"), "must be a pinnfuse.Grid"),
    ):
        with pytest.raises(ValueError, match=message):
            call()
