"""Sampling: exactness, order, walls, adjoint; the kernels against plain torch."""

import math

import pytest
import torch

from pinnfuse import Grid
from pinnfuse.grid import Dirichlet, Neumann, sample

MODES = ("nearest", "bilinear", "bicubic")
BOUNDARIES = {
    "torus": "periodic",
    "walls": {"x": (Dirichlet(0.3), Neumann(-0.2)), "y": "one-sided", "z": (Neumann(0.4), Dirichlet(1.0))},
}


@pytest.fixture
def torus() -> Grid:
    return Grid("x y", (2 * math.pi / 12, 2 * math.pi / 15), boundary="periodic")


def mesh(grid: Grid, space: tuple[int, ...]) -> list[torch.Tensor]:
    return list(torch.meshgrid(*grid.coordinates(space, dtype=torch.float64).values(), indexing="ij"))


def a_grid(axes: str, walls: str, centring: str = "cell") -> Grid:
    boundary = BOUNDARIES[walls]
    if isinstance(boundary, dict):
        boundary = {axis: boundary[axis] for axis in axes}
    return Grid(tuple(axes), (0.7, 0.9, 1.1)[: len(axes)], boundary=boundary, centring=centring)


def random_points(count: int, d: int, where: torch.device, *lead: int) -> torch.Tensor:
    """Inside and beyond every end."""
    return torch.rand(*lead, count, d, dtype=torch.float64, device=where) * 9 - 1.5


def results(field, points, grid, mode, backend, upstream):
    """Value and the gradients that the mode has."""
    given = [field.clone().requires_grad_(), points.clone().requires_grad_()]
    out = sample(*given, grid, mode=mode, backend=backend)
    return [out, *torch.autograd.grad(out, given[:1] if mode == "nearest" else given, upstream)]


def close(found, truth, bound=2e-15):
    for a, b in zip(found, truth, strict=True):
        assert float((a.double() - b.double()).detach().abs().max()) <= bound * float(b.detach().abs().max())


@pytest.mark.parametrize("mode", MODES)
def test_sample_on_a_torus(mode, torus):
    """Exact at the points; wraps any number of turns; converges; the adjoint is a scatter of the same weights."""
    x, y = mesh(torus, (12, 15))
    u = torch.sin(x) + torch.cos(2 * y)
    points = torch.stack((x, y), -1).reshape(-1, 2)
    torch.testing.assert_close(sample(u, points, torus, mode=mode), u.reshape(-1), rtol=1e-12, atol=1e-12)
    turned = points + 2 * math.pi * torch.tensor([3.0, -2.0], dtype=torch.float64)
    torch.testing.assert_close(sample(u, turned + 1e-9, torus, mode=mode), u.reshape(-1), rtol=1e-7, atol=1e-7)
    errors = []
    somewhere = 2 * math.pi * torch.rand(200, 2, dtype=torch.float64)
    for n in (32, 64):
        fine = Grid("x y", 2 * math.pi / n, boundary="periodic")
        a, b = mesh(fine, (n, n))
        found = sample(torch.sin(a) + torch.cos(2 * b), somewhere, fine, mode=mode)
        errors.append(float((found - torch.sin(somewhere[:, 0]) - torch.cos(2 * somewhere[:, 1])).abs().mean()))
    assert errors[0] / errors[1] > {"nearest": 1.7, "bilinear": 3.5, "bicubic": 6.5}[mode]
    field = u.expand(3, 12, 15).clone().requires_grad_()
    each = (2 * math.pi * torch.rand(3, 5, 2, dtype=torch.float64)).requires_grad_()
    out = sample(field, each, torus, mode=mode)
    (pulled,) = torch.autograd.grad(out.sum(), field, retain_graph=True)
    assert float(pulled.sum()) == pytest.approx(15.0)  # weights add up to one
    inputs = (field,) if mode == "nearest" else (field, each)
    assert torch.autograd.gradcheck(lambda f, p=each: sample(f, p, torus, mode=mode), inputs, fast_mode=True)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("kind", ["dirichlet", "neumann", "one-sided"])
@pytest.mark.parametrize("centring", ["cell", "node"])
def test_order_up_to_walls(centring, kind, mode):
    """The whole interval between the walls, whose numbers are those of the function: 1, 2 and (bicubic: inside 3, where
    a parabola is extrapolated too)."""
    errors = []
    for n in (40, 80):
        ends = torch.tensor([0.0, 1.0], dtype=torch.float64)
        at = {"dirichlet": (ends + 0.3).sin(), "neumann": (ends + 0.3).cos()}.get(kind)
        sides = (
            tuple({"dirichlet": Dirichlet, "neumann": Neumann}[kind](float(v)) for v in at) if at is not None else kind
        )
        count = n if centring == "cell" else n - 1 if kind == "dirichlet" else n + 1
        grid = Grid("x", 1 / n, boundary={"x": sides}, centring=centring)
        (x,) = grid.coordinates((count,), dtype=torch.float64).values()
        reach = (float(x[0]), float(x[-1])) if kind == "one-sided" else (0.0, 1.0)
        points = torch.linspace(*reach, 997, dtype=torch.float64)
        found = sample((x + 0.3).sin(), points[:, None], grid, mode=mode, backend="torch")
        errors.append(float((found - (points + 0.3).sin()).abs().max()))
    assert math.log2(errors[0] / errors[1]) > {"nearest": 0.9, "bilinear": 1.9, "bicubic": 2.8}[mode], errors


@pytest.mark.parametrize("centring", ["node", "cell"])
def test_sample_at_walls(centring):
    grid = Grid("x", 0.1, boundary={"x": (Dirichlet(2.0), "one-sided")}, centring=centring)
    x = grid.coordinates((9,), dtype=torch.float64)["x"]
    u = 2 + 3 * x
    inside = torch.linspace(0.0, float(x[-1]), 23, dtype=torch.float64)[:, None]
    for mode in ("bilinear", "bicubic"):
        torch.testing.assert_close(sample(u, inside, grid, mode=mode), 2 + 3 * inside[:, 0])
    outside = torch.tensor([[-1.0], [5.0]], dtype=torch.float64)
    torch.testing.assert_close(sample(u, outside, grid), torch.stack((torch.tensor(2.0).double(), u[-1])))
    with pytest.raises(ValueError, match="`points` must be"):
        sample(u, torch.zeros(4, 2), grid)
    with pytest.raises(ValueError, match="Did you mean 'bicubic'"):
        sample(u, inside, grid, mode="cubic")


@pytest.mark.parametrize("centring", ["node", "cell"])
def test_nearest_at_walls(centring, interpreter, where):
    """Points, and walls that carry a value and lie where a point would; the same at both ends."""
    grid = Grid("x", 1.0, boundary=(Dirichlet(7.0), Dirichlet(9.0)), centring=centring)
    far = torch.tensor([[-5.0], [20.0]], device=where)
    for backend in ("torch", "triton"):
        u = torch.tensor([1.0, 2.0, 3.0], device=where, requires_grad=True)
        found = sample(u, far, grid, mode="nearest", backend=backend)
        assert found.tolist() == ([7.0, 9.0] if centring == "node" else [1.0, 3.0])
        (pulled,) = torch.autograd.grad(found.sum(), u)
        assert pulled.tolist() == ([0.0, 0.0, 0.0] if centring == "node" else [1.0, 0.0, 1.0])


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("walls", BOUNDARIES)
@pytest.mark.parametrize("axes", ["x", "xy", "xyz"])
def test_kernels(axes, walls, mode, interpreter, where):
    """Values and both gradients, one set of points and one per sample, every kind of wall."""
    if where.type == "cpu" and axes == "xyz" and (mode == "bicubic") == (walls == "walls"):
        pytest.skip("on a card only: the interpreter is slow, and other cases write the same lines")
    d = len(axes)
    field = torch.randn(2, 2, *(7, 6, 5)[:d], dtype=torch.float64, device=where)
    grid = a_grid(axes, walls, "node" if d == 1 else "cell")
    for points in [random_points(20, d, where, 2, 1)] + (
        [random_points(150, d, where)] if mode == "bilinear" and d == 1 else []
    ):
        upstream = torch.randn(2, 2, points.shape[-2], dtype=torch.float64, device=where)
        found, truth = (results(field, points, grid, mode, backend, upstream) for backend in ("triton", "torch"))
        close(found, truth)


def test_adjoint(interpreter, where):
    """<S f, g> = <f, S* g> for homogeneous walls; S* by the kernel."""
    grid = Grid("x y", (0.7, 0.9), boundary={"x": ("dirichlet", "neumann"), "y": "one-sided"}, centring="cell")
    f = torch.randn(3, 7, 6, dtype=torch.float64, device=where, requires_grad=True)
    for mode in MODES:
        out = sample(f, random_points(30, 2, where), grid, mode=mode, backend="triton")
        g = torch.randn_like(out)
        (pulled,) = torch.autograd.grad(out, f, g)
        assert (out * g).sum().item() == pytest.approx((f * pulled).sum().item(), rel=1e-12)


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_the_same_bits_in_any_order(dtype, interpreter, where):
    """The field's gradient is a sum of integers: no order of the points, nor of programs, changes a bit."""
    grid = a_grid("xy", "torus")
    field = torch.randn(4, 5, dtype=dtype, device=where, requires_grad=True)
    points, upstream = random_points(300, 2, where).to(dtype), torch.randn(300, dtype=dtype, device=where)
    upstream *= 10 ** torch.randint(-6, 7, (300,), device=where)
    found = []
    for order in (torch.arange(300), torch.randperm(300)):
        out = sample(field, points[order], grid, mode="bicubic", backend="triton")
        found.append(torch.autograd.grad(out, field, upstream[order])[0])
    assert torch.equal(*found)


def test_many_points_in_one_cell(interpreter, where):
    """Where a sum of float32 would lose digits: 2,000 shares of the same point."""
    grid = Grid("x", 1.0, boundary="periodic")
    field = torch.zeros(8, device=where, requires_grad=True)
    points = torch.full((2000, 1), 3.1, device=where)
    upstream = torch.rand(2000, device=where)
    (found,) = torch.autograd.grad(sample(field, points, grid, backend="triton"), field, upstream)
    t = float(points[0, 0]) - 3
    exact = torch.zeros(8, dtype=torch.float64)
    exact[3:5] = upstream.double().sum().cpu() * torch.tensor([1 - t, t], dtype=torch.float64)
    torch.testing.assert_close(found.double().cpu(), exact, rtol=2e-7, atol=0.0)


def test_what_is_no_number(interpreter, where):
    """A coordinate that is none gives no number and reads nothing outside; a gradient that is none shows."""
    field = torch.randn(5, 6, device=where, requires_grad=True)
    points = torch.tensor([[math.nan, 1.0], [math.inf, 1.0], [1e30, -1e30], [1.0, 1.0]], device=where)
    for walls in BOUNDARIES:
        for mode in MODES:
            found, truth = (
                sample(field, points, a_grid("xy", walls), mode=mode, backend=b) for b in ("triton", "torch")
            )
            assert found.isnan().tolist() == truth.isnan().tolist() and found[0].isnan() and not found[3].isnan()
    for bad in (math.nan, math.inf):
        (pulled,) = torch.autograd.grad(found[3], field, torch.tensor(bad, device=where), retain_graph=True)
        assert not pulled.isfinite().any()


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_half_precision_sums_in_float32(dtype, interpreter, where):
    """Field and result in half precision; positions, weights and sums in float32, rounded once."""
    grid = a_grid("xy", "walls")
    field = torch.randn(2, 6, 7, device=where).to(dtype)
    points = random_points(40, 2, where).float()
    upstream = torch.randn(2, 40, device=where).to(dtype)
    for backend in ("triton", "torch"):
        found = results(field, points, grid, "bicubic", backend, upstream)
        truth = results(field.double(), points.double(), grid, "bicubic", "torch", upstream.double())
        assert [t.dtype for t in found] == [dtype, dtype, torch.float32]
        close(found[:2], truth[:2], bound=torch.finfo(dtype).eps)
        close(found[2:], truth[2:], bound=1e-5)


def test_precise_points_of_a_coarse_field(interpreter, where):
    """Coordinates far from zero in float64, values in float32."""
    grid = Grid("x", 1e-3, boundary="neumann", centring="cell", origin=5e4)
    field = torch.randn(30, device=where)
    points = 5e4 + 0.03 * torch.rand(25, 1, dtype=torch.float64, device=where)
    upstream = torch.randn(25, device=where)
    found = results(field, points, grid, "bicubic", "triton", upstream)
    assert [t.dtype for t in found] == [torch.float32, torch.float32, torch.float64]
    close(found, results(field.double(), points, grid, "bicubic", "torch", upstream.double()), bound=1e-6)


def test_strides(interpreter, where):
    """Fields and points in odd strides; upstream gradients of stride 0, transposed, and slices of a cat."""
    grid = a_grid("xy", "torus")
    field = torch.randn(2, 3, 6, 7, dtype=torch.float64, device=where)
    points = random_points(9, 2, where, 2, 1)
    odd_fields = (
        field.movedim(-1, 0).contiguous().movedim(0, -1),
        torch.stack((field, field), -1)[..., 0],
        field.transpose(0, 1).contiguous().transpose(0, 1),
    )
    odd_points = (points.movedim(-1, 0).contiguous().movedim(0, -1), torch.stack((points, points), -1)[..., 1])
    truth = sample(field, points, grid, backend="torch")
    for f, p in [*((f, points) for f in odd_fields), *((field, p) for p in odd_points)]:
        assert not (f.is_contiguous() and p.is_contiguous())
        torch.testing.assert_close(sample(f, p, grid, backend="triton"), truth, rtol=1e-13, atol=1e-13)
    upstream = (
        lambda out: out.sum(),
        lambda out: (out.transpose(-1, -2) * torch.arange(3.0, device=where)).sum(),
        lambda out: torch.cat((out, out**2))[..., 1:].mean(),
    )
    for reduce in upstream:
        pair = []
        for backend in ("triton", "torch"):
            given = [field.clone().requires_grad_(), points.clone().requires_grad_()]
            pair.append(torch.autograd.grad(reduce(sample(*given, grid, backend=backend)), given))
        close(*pair)


def test_points_that_broadcast(interpreter, where):
    """Per sample, per channel, for all: as the expanded set; short axes; no points."""
    grid = a_grid("xy", "walls")
    field = torch.randn(2, 3, 6, 7, dtype=torch.float64, device=where)
    for lead in ((), (3,), (1, 3), (2, 1), (2, 3)):
        points = random_points(4, 2, where, *lead)
        whole = torch.stack([
            torch.stack([
                sample(field[b, c], points.expand(2, 3, 4, 2)[b, c], grid, backend="torch") for c in range(3)
            ]) for b in range(2)
        ])  # fmt: skip
        for backend in ("triton", "torch"):
            torch.testing.assert_close(sample(field, points, grid, backend=backend), whole, rtol=1e-13, atol=1e-13)
    for n in (1, 2):
        line = Grid("x", 1.0, boundary="periodic" if n == 1 else "neumann", centring="cell")
        u = torch.randn(n, dtype=torch.float64, device=where)
        pair = [sample(u, random_points(5, 1, where)[:0] if k else u[:, None], line, mode="bicubic", backend=b)
                for k in (0, 1) for b in ("triton", "torch")]  # fmt: skip
        torch.testing.assert_close(pair[0], pair[1])
        assert pair[2].shape == pair[3].shape == (0,)


def test_second_derivatives_are_refused(interpreter, where):
    grid = a_grid("x", "torus")
    field = torch.randn(7, dtype=torch.float64, device=where, requires_grad=True)
    points = random_points(5, 1, where).requires_grad_()
    with pytest.raises(RuntimeError, match="backend='torch'"):
        torch.autograd.grad(sample(field, points, grid, backend="triton").sum(), points, create_graph=True)
    run = lambda f, p: sample(f, p, grid, mode="bicubic", backend="torch")  # noqa: E731
    assert torch.autograd.gradgradcheck(run, (field, points), fast_mode=True)


@pytest.mark.parametrize(
    ("points", "message"),
    [
        (torch.zeros(4), r"\[P, 2\]"),
        (torch.zeros(4, 3), r"got \[4, 3\]"),
        (torch.zeros(4, 5, 2), r"broadcast to \[3\]; got \[4, 5, 2\]"),
        (torch.zeros(1, 3, 5, 2), "broadcast"),
        (torch.zeros(4, 2, dtype=torch.int64), "coordinates, not indices"),
        ([[0.0, 0.0]], "got list"),
        (torch.zeros(4, 2, device="meta"), "points.to"),
    ],
    ids=range(7),
)
def test_bad_points(points, message, torus):
    with pytest.raises(ValueError, match=message):
        sample(torch.zeros(3, 12, 15), points, torus)


def test_bad_field(torus):
    for field, message in ((torch.zeros(12), "must be"), (torch.zeros(12, 15, dtype=torch.int32), "floating point")):
        with pytest.raises(ValueError, match=message):
            sample(field, torch.zeros(4, 2), torus)
