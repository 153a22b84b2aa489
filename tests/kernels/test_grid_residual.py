"""Generated kernels of discrete PDEs against float64 torch, in the interpreter or on the card; and their text."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from pinnfuse import PDE, Grid
from pinnfuse.grid import Dirichlet, FusedGridResidualLoss, Neumann
from pinnfuse.grid.codegen import generate

GOLDEN = Path(__file__).parent / "golden"
NAVIER_STOKES = PDE(
    "u v p", "t x y", parameters={"nu": 0.01},
    equations={
        "momentum_x": "u_t + u*u_x + v*u_y + p_x - nu*(u_xx + u_yy)",
        "momentum_y": "v_t + u*v_x + v*v_y + p_y - nu*(v_xx + v_yy)",
        "continuity": "u_x + v_y",
    },
)  # fmt: skip
HEAT = PDE("u", "t x", parameters={"nu": 0.1}, equations={"heat": "u_t - nu*u_xx"})
CONSERVATIVE = PDE("u k", "x y", equations={"flux": "D(k*D(u, x), x) + D(u**2*k, y) - u", "eikonal": "u_x**2 - k"})
MIXED = PDE(
    "u", "t x y", parameters={"a": 0.3, "b": 2.0}, data="s f",
    equations={"d": "u_t - a*u_xx + b*s*u_y - sin(x)*t*f", "e": "exp(-a*u) + u"},
)  # fmt: skip
SPACE = PDE("u", "x y z", equations={"e": "u*u_xz + u_yy - z*u_x"})


def cavity(order=2):
    common = {"axes": "x y", "spacing": (0.1, 0.2), "centring": "cell", "order": order}
    lid = Grid(**common, boundary={"x": "dirichlet", "y": ("dirichlet", Dirichlet(1.0))})
    return {"u": lid, "v": Grid(**common, boundary="dirichlet"), "p": Grid(**common, boundary=Neumann(0.3))}


def plane(**options):
    return Grid("x y", (0.3, 0.2), **options)


def leaf(*shape, dtype=torch.float32, device="cpu"):
    return torch.randn(shape, device=device).to(dtype).requires_grad_()


def gradients(loss_fn, fields, weights=None, data=None, parameters=None):
    """Loss, residuals and the gradients of every input, and of random combinations of the residuals."""
    data, parameters = data or {}, parameters or {}
    given = [fields, *([weights] if weights is not None else []), *data.values(), *parameters.values()]
    found = loss_fn.evaluate(fields, weights, data, parameters)
    result = [found.loss, found.residuals, *torch.autograd.grad(found.loss * 3, given)]
    r = loss_fn.residuals(fields, data, parameters)
    upstream = torch.sin(torch.arange(r[0].numel(), dtype=r.dtype, device=r.device)).reshape(r.shape[1:]).expand_as(r)
    others = [fields, *data.values(), *parameters.values()]
    return [t.detach().double() for t in (*result, *torch.autograd.grad(r, others, upstream))]


def double(value):
    if isinstance(value, torch.Tensor):
        return value.detach().double().requires_grad_(value.requires_grad)
    return value if value is None else {k: double(v) for k, v in value.items()}


def check(pde, grid, arguments, bound=2e-6, **options):
    """Relative L2 errors against float64 torch."""
    names = ("fields", "weights", "data", "parameters")
    given = dict(zip(names, arguments, strict=False))
    device = given["fields"].device
    make = lambda backend: FusedGridResidualLoss(pde, grid, backend=backend, **options).to(device)  # noqa: E731
    ours = gradients(make("triton"), **given)
    truth = gradients(make("torch").double(), **{k: double(v) for k, v in given.items()})
    for number, (a, b) in enumerate(zip(ours, truth, strict=True)):
        assert a.shape == b.shape
        assert (a - b).norm() <= bound * b.norm(), (number, float((a - b).norm() / b.norm()))


@pytest.mark.parametrize("recompute", [False, True])
@pytest.mark.parametrize("shape", [(3, 4), pytest.param((67, 131), marks=pytest.mark.gpu)], ids=str)
def test_navier_stokes_periodic(shape, recompute, where):
    grid = plane(boundary="periodic")
    options = {"time_step": 0.1, "time_scheme": "backward_euler", "recompute": recompute}
    check(NAVIER_STOKES, grid, [leaf(2, 2, 3, *shape, device=where)], **options)


@pytest.mark.parametrize(
    ("recompute", "order", "shape"),
    [
        (False, 2, (4, 5)),
        (False, 4, (9, 9)),
        *(pytest.param(s, p, (66, 140), marks=pytest.mark.gpu) for s, p in ((False, 2), (False, 4), (True, 2))),
    ],
    ids=str,
)
def test_navier_stokes_between_walls(recompute, order, shape, where):
    fields = leaf(1, 2, 3, *shape, device=where)
    options = {"time_step": 0.1, "time_scheme": "backward_euler", "recompute": recompute}
    check(NAVIER_STOKES, cavity(order), [fields], **options)


@pytest.mark.parametrize("scheme", ["forward_euler", "crank_nicolson", "midpoint", "central", "bdf2"])
def test_schemes_on_a_line(scheme, where):
    boundary = (Dirichlet(0.7), Neumann(-0.4)) if scheme == "crank_nicolson" else "periodic"
    grid = Grid("x", 0.2, boundary={"x": boundary}, order=4 if scheme == "midpoint" else 2)
    check(HEAT, grid, [leaf(2, 4, 1, 11, device=where)], time_step=0.1, time_scheme=scheme)


def test_conservative_terms(where):
    walls = {"x": (Dirichlet(0.3), Neumann(0.2)), "y": "one-sided"}
    grids = {
        "u": plane(boundary=walls, centring="cell"),
        "k": plane(boundary="one-sided", centring="cell"),
    }
    check(CONSERVATIVE, grids, [leaf(2, 2, 6, 5, device=where), torch.rand(6, 1, device=where).requires_grad_()])


def test_data_parameters_and_weights(where):
    grid = plane(boundary={"x": "periodic", "y": "dirichlet"})
    data = {"s": leaf(2, 1, 4, device=where), "f": leaf(2, 1, 3, 4, device=where)}
    parameters = {"a": leaf(2, device=where), "b": leaf(device=where)}
    weights = torch.rand(2, 1, 1, 3, 4, device=where).requires_grad_()
    arguments = [leaf(2, 2, 1, 3, 4, device=where), weights, data, parameters]
    check(MIXED, grid, arguments, time_step=0.1, time_scheme="midpoint", equation_weights=[2.0, 0.5])


def test_equation_weights_with_any_strides(where):
    grid, fields = plane(boundary="periodic"), torch.rand(2, 2, 4, 5, device=where)
    pde, losses = PDE("u v", "x y", equations={"d": "u_xx - v", "e": "u*v_y"}), []
    for backend in ("torch", "triton"):
        loss_fn = FusedGridResidualLoss(pde, grid, backend=backend).to(where)
        loss_fn.equation_weights = torch.tensor([[2.0, 9.0], [0.5, 9.0]], device=where)[:, 0]
        losses.append(loss_fn(fields))
    torch.testing.assert_close(*losses)


def test_three_axes(where):
    grid = Grid("x y z", (0.3, 0.2, 0.4), boundary={"x": "neumann", "y": "periodic", "z": "dirichlet"})
    check(SPACE, grid, [leaf(1, 1, 3, 3, 3, device=where)])


def test_strides(where):
    """Transposed, sliced and repeated fields; a gradient with stride 0 arrives from `.sum()`."""
    pde = PDE("u v", "x y", equations={"e": "u*v_x + u_yy"})
    grid = plane(boundary="periodic")
    ours, plain = (FusedGridResidualLoss(pde, grid, backend=b).to(where) for b in ("triton", "torch"))
    base = leaf(9, 2, 8, 7, device=where)
    for view in (base[:1].transpose(2, 3), base[:1].expand(2, -1, -1, -1), base[::8, :, 2:, 1:6]):
        torch.testing.assert_close(ours(view), plain(view))
        pair = [torch.autograd.grad(f.residuals(view).sum(), base)[0] for f in (ours, plain)]
        torch.testing.assert_close(*pair, rtol=1e-4, atol=1e-4)


def test_float64_keeps_its_digits(where):
    fields = leaf(1, 2, 1, 7, dtype=torch.float64, device=where)
    grid = Grid("x", 0.1, boundary=(Dirichlet(0.1), Neumann(0.1)))
    check(HEAT, grid, [fields], bound=1e-13, time_step=0.1, time_scheme="crank_nicolson")


def test_float64_keeps_its_digits_in_any_function(where):
    pde = PDE("u v", "x y", equations={"e": "abs(u) - 0.857*u + max(v, 0.3)*u_x", "d": "v**17 + min(u, 0.1) - 0.3*v_y"})
    check(pde, plane(boundary="periodic"), [leaf(1, 2, 4, 5, dtype=torch.float64, device=where)], bound=1e-13)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision(dtype, where):
    """Fields are read and their gradient is written in half, everything between is float32."""
    fields = leaf(1, 2, 1, 19, dtype=dtype, device=where)
    ours, plain = (
        FusedGridResidualLoss(HEAT, Grid("x", 0.2, boundary="neumann"), 0.1, "midpoint", b).to(where)
        for b in ("triton", "torch")
    )
    exact = fields.detach().float().requires_grad_()
    value, truth = ours(fields), plain(exact)
    assert value.dtype == torch.float32
    torch.testing.assert_close(value, truth)
    (grad,), (expected,) = torch.autograd.grad(value, fields), torch.autograd.grad(truth, exact)
    torch.testing.assert_close(grad, expected.to(dtype))


def test_the_loss_is_the_same_bits_every_time(where):
    loss = FusedGridResidualLoss(HEAT, Grid("x", 0.2, boundary="periodic"), 0.1, "bdf2", "triton").to(where)
    fields = leaf(2, 3, 1, 700, device=where)
    runs = [(value := loss(fields), *torch.autograd.grad(value, fields)) for _ in range(3)]
    for other in runs[1:]:
        assert all(torch.equal(a, b) for a, b in zip(runs[0], other, strict=True))


def test_adjoint(where):
    """<J du, s> = <du, J^T s> for the residual of a linear equation, which is its own Jacobian."""
    loss = FusedGridResidualLoss(HEAT, Grid("x", 0.2, boundary=(Dirichlet(), Neumann())), 0.1, "bdf2", "triton").to(
        where
    )
    u = leaf(2, 4, 1, 13, device=where)
    r = loss.residuals(u)
    s = torch.randn_like(r)
    (back,) = torch.autograd.grad(r, u, s)
    bound = 1e-6 * float(r.norm() * s.norm())
    assert (r * s).sum().item() == pytest.approx((u * back).sum().item(), rel=1e-4, abs=bound)


@pytest.mark.parametrize("recompute", [False, True])
def test_two_launches_and_what_is_kept(recompute, where, monkeypatch):
    """One kernel for the loss, one for the gradient; between them the inputs alone, or the residuals with them."""
    from pinnfuse.kernels.grid import residual

    launched, kept = [], []
    run = residual.Prepared.__call__
    monkeypatch.setattr(
        residual.Prepared, "__call__", lambda s, tensors: launched.append(s.kernel.__name__) or run(s, tensors)
    )
    grid = Grid("x", 0.2, boundary="periodic")
    loss = FusedGridResidualLoss(HEAT, grid, 0.1, "midpoint", "triton", recompute=recompute).to(where)
    u = leaf(1, 3, 1, 8, device=where)
    with torch.autograd.graph.saved_tensors_hooks(lambda t: kept.append(t) or t, lambda t: t):
        value = loss(u)
    torch.autograd.grad(value, u)
    assert launched == ["loss_kernel", "gradient_kernel"]
    large = [t for t in kept if t.numel() > 1]
    assert [t.data_ptr() == u.data_ptr() for t in large] == ([True] if recompute else [True, False])


def test_what_is_remembered_of_a_call_is_its_own(where):
    """Launches and checks are kept per shape, strides, dtype and options: calls in turn give what each one gave."""
    grid = Grid("x", 0.2, boundary={"x": "neumann"})
    ours, plain = (FusedGridResidualLoss(HEAT, grid, 0.1, "midpoint", b).to(where) for b in ("triton", "torch"))
    base = torch.randn(3, 4, 2, 40, device=where)
    calls = [
        (base[:2, :3, :1, :8], {}),
        (base[:2, :3, :1, :16:2].transpose(0, 0), {}),
        (base[:1, :2, :1, 3:12], {}),
        (base[:2, :3, :1, :8].double(), {}),
        (base[:2, :3, :1, :8], {"point_weights": base[:2, :2, :1, :8].abs()}),
        (base[:2, :3, :1, :8], {"parameters": {"nu": torch.tensor([0.3, 0.7], device=where)}}),
    ]
    for fields, given in 2 * calls:
        leaf = fields.detach().requires_grad_()
        exact = fields.detach().requires_grad_()
        a, b = ours(leaf, **given), plain(exact, **given)
        torch.testing.assert_close(a, b)
        torch.testing.assert_close(
            torch.autograd.grad(a, leaf)[0], torch.autograd.grad(b, exact)[0], rtol=1e-4, atol=1e-5
        )
        for wrong in (fields[..., :1], fields[:, :1], fields.long(), fields[0], fields[:0]):
            with pytest.raises(ValueError, match="FusedGridResidualLoss: `fields`"):
                ours(wrong, **given)
    other = FusedGridResidualLoss(HEAT, Grid("x", 0.2, boundary="neumann", shape=(9,)), 0.1, "midpoint", "triton")
    with pytest.raises(ValueError, match="must have 9 points"):
        other.to(where)(base[:2, :3, :1, :8])


def test_second_derivatives_are_refused(where):
    loss = FusedGridResidualLoss(HEAT, Grid("x", 0.2, boundary="periodic"), 0.1, "midpoint", "triton").to(where)
    u = leaf(1, 2, 1, 8, device=where)
    with pytest.raises(RuntimeError, match="no derivative of its own"):
        torch.autograd.grad(loss(u), u, create_graph=True)


def test_a_function_without_code_runs_in_torch(where, monkeypatch):
    from pinnfuse import BackendUnavailable

    pde = PDE("u", "x", equations={"e": "atan(u) - u_x"})
    u = leaf(1, 1, 8, device=where)
    grid = Grid("x", 0.2, boundary="periodic")
    assert "atan" in FusedGridResidualLoss(pde, grid).explain(u).reason
    FusedGridResidualLoss(pde, grid)(u)
    with pytest.raises(BackendUnavailable, match="atan"):
        FusedGridResidualLoss(pde, grid, backend="triton")(u)


GOLDENS = {
    "heat_walls": (HEAT, {"grid": Grid("x", 0.25, boundary=(Dirichlet(0.5), Neumann())), "time_step": 0.5,
                          "time_scheme": "midpoint"}),
    "conservative": (PDE("u", "x y", equations={"e": "D(u**2, x) + u_yy"}),
                     {"grid": plane(boundary={"x": "periodic", "y": "dirichlet"})}),
}  # fmt: skip


@pytest.mark.parametrize("name", GOLDENS)
def test_golden(name):
    """To accept a change: PINNFUSE_UPDATE_GOLDEN=1 pytest tests/kernels/test_grid_residual.py"""
    pde, options = GOLDENS[name]
    path = GOLDEN / f"grid_residual_{name}.expected"
    text = generate(FusedGridResidualLoss(pde, **options).scheme)
    if os.environ.get("PINNFUSE_UPDATE_GOLDEN"):
        path.write_text(text)
    assert text == path.read_text()


SCRIPT = """
import json, sys
from dataclasses import asdict
from tests.kernels import test_grid_residual as t
from pinnfuse.kernels.grid.tile import Tile
from pinnfuse.kernels.grid.residual_offline import compiled, resources

capability, walls, dtype, tile = json.loads(sys.argv[1])
grid = t.cavity() if walls else t.plane(boundary="periodic")
loss = t.FusedGridResidualLoss(t.NAVIER_STOKES, grid, 0.1, "backward_euler")
kernels = compiled(t.generate(loss.scheme), capability, Tile(*tile), dtype)
rows = [asdict(r) for r in resources(kernels, capability)]
for row in rows:
    row["layouts"] = kernels[row["kernel"]].asm["ttgir"].count("order = [0, 1]")
print(json.dumps(rows))
"""


CASES = [
    (80, False, "float32", (64, 8, 8)),
    (90, True, "float32", (64, 4, 4)),
    (90, True, "float32", (64, 8, 4, 128)),
    (90, False, "float32", (128, 4, 4)),
    (100, False, "bfloat16", (64, 8, 8)),
]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_compiles_without_a_card(case, tmp_path, root):
    environment = os.environ | {"TRITON_INTERPRET": "0", "TRITON_CACHE_DIR": str(tmp_path), "PYTHONPATH": str(root)}
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, json.dumps(case)], env=environment, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr[-2000:]
    rows = {row["kernel"]: row for row in json.loads(done.stdout)}
    assert len(rows) == 4
    x, y, warps, *registers = case[-1]
    bound = 128 if registers or x * y == 64 * warps else 255  # two points a thread, four
    for name in ("loss_kernel", "gradient_kernel", "coefficient_kernel"):
        spilled = 160 if registers and name == "gradient_kernel" else 0  # at walls
        assert rows[name]["registers"] <= bound and rows[name]["stack"] <= spilled, rows
        assert rows[name]["layouts"] == 0  # a warp reads along the last axis


def test_same_text_in_every_process(root):
    script = (
        "from tests.kernels.test_grid_residual import *\nimport hashlib\n"
        "loss = FusedGridResidualLoss(NAVIER_STOKES, cavity(), 0.1, 'crank_nicolson')\n"
        "print(hashlib.sha256(generate(loss.scheme).encode()).hexdigest())"
    )
    texts = set()
    for seed in ("1", "2"):
        environment = os.environ | {"PYTHONHASHSEED": seed, "PYTHONPATH": str(root)}
        done = subprocess.run([sys.executable, "-c", script], env=environment, cwd=root, capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        texts.add(done.stdout)
    assert len(texts) == 1
