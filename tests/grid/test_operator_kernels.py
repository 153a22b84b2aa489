"""The battery OPS, kernels: every operator of the table against plain torch, values and gradients.

On a card everything runs; Triton's interpreter takes one operator of each kind.
"""

import pytest
import torch

from pinnfuse import Grid
from pinnfuse.grid import Dirichlet, convection, laplacian
from pinnfuse.grid.registry import OPERATORS, draw
from pinnfuse.verification.operators import allowed, compare, grids

LINEAR = [name for name, entry in OPERATORS.items() if entry.linear]
NONLINEAR = [name for name, entry in OPERATORS.items() if not entry.linear]
INTERPRETED = {
    ("laplacian", 1), ("laplacian", 2), ("mixed", 2), ("curl", 3),
    ("diffusion", 1), ("diffusion", 2), ("convection central skew", 1), ("convection upwind3 advective", 2),
    ("convection upwind3 conservative", 1), ("convection van_leer skew", 1), ("convection weno5 advective", 1),
}  # fmt: skip
"""What a CPU has time for."""


def need_time(where: torch.device, name: str, d: int) -> None:
    if where.type == "cpu" and (name, d) not in INTERPRETED:
        pytest.skip("on a card only: the interpreter is slow, and another operator runs the same text")


def space_of(name: str, d: int) -> tuple[int, ...]:
    return ((40,), (10, 35), (7, 7, 8) if name == "biharmonic" else (5, 5, 8))[d - 1]


def refuse(tensor: torch.Tensor) -> torch.Tensor:
    raise AssertionError("a linear operator saved a tensor")


@pytest.mark.parametrize("name", LINEAR)
@pytest.mark.parametrize("d", [1, 2, 3])
def test_linear_kernels(name, d, interpreter, where):
    """Values and gradients by the kernels against plain torch: torus and all walls, every dtype, ragged tiles; the
    adjoint as a dot product; second derivatives; nothing saved."""
    entry = OPERATORS[name]
    if d < entry.least:
        pytest.skip("needs more axes")
    need_time(where, name, d)
    space = space_of(name, d)
    for label, grid in grids(d):
        if where.type == "cpu" and label == "periodic" and (d == 3 or name == "mixed"):
            continue  # time: the other label has a periodic axis, and the Laplacian a torus
        inputs = [x.to(where) for x in draw(entry, grid, (1,), space)]
        for dtype in (torch.float64, torch.float32) if where.type == "cuda" else (torch.float64,):
            quantity, error = compare(entry, grid, inputs, "triton", dtype)
            assert error <= allowed(name, dtype), (label, dtype, quantity, error)
        if d == 2:
            u = inputs[0].requires_grad_()
            with torch.autograd.graph.saved_tensors_hooks(refuse, lambda t: t):
                out = entry.run(grid, u, backend="triton")
            y = torch.randn_like(out)
            zero = entry.run(grid, torch.zeros_like(u), backend="torch").detach()
            (pulled,) = torch.autograd.grad(out, u, y, create_graph=True, retain_graph=True)
            left, right = ((out - zero) * y).sum().item(), (u * pulled).sum().item()
            assert left == pytest.approx(right, rel=1e-12, abs=1e-11 * float(out.norm() * y.norm()))


@pytest.mark.parametrize("name", LINEAR)
@pytest.mark.parametrize("d", [1, 2, 3])
def test_fields_are_large_enough(name, d):
    """Of the test above, which runs most of its cases on a card only."""
    entry = OPERATORS[name]
    for _, grid in grids(d) if d >= entry.least else ():
        entry.run(grid, *draw(entry, grid, (1,), space_of(name, d)), backend="torch")


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize("name", ["divergence", "convection upwind3 advective"])
def test_half_precision_sums_in_float32(name, dtype, interpreter, where):
    entry = OPERATORS[name]
    (_, grid), _ = grids(2)
    inputs = [x.to(where) for x in draw(entry, grid, (1,), (7, 16))]
    for backend in ("torch", "triton"):
        quantity, error = compare(entry, grid, inputs, backend, dtype)
        assert error <= allowed(name, dtype), (backend, quantity, error)


@pytest.mark.parametrize("name", NONLINEAR)
@pytest.mark.parametrize("d", [1, 2, 3])
def test_nonlinear_kernels(name, d, interpreter, where):
    """Values and gradients of both arguments, torus and walls."""
    entry = OPERATORS[name]
    need_time(where, name, d)
    for label, grid in grids(d):
        space = ((40,), (11, 35), (8, 9, 34))[d - 1]
        if where.type == "cpu" and label == "walls":
            if (name, d) == ("diffusion", 2):
                continue  # walls on one axis, the sum over axes on the torus: both together take half a minute
            space = ((14 if "weno5" in name else 20,), (6, 10), (8, 9, 10))[d - 1]
        inputs = [x.to(where) for x in draw(entry, grid, (1,), space)]
        quantity, error = compare(entry, grid, inputs, "triton", torch.float64)
        assert error <= allowed(name, torch.float64), (label, quantity, error)


def test_double_backward(interpreter, where):
    """Linear kernels can be differentiated again; the others say what can."""
    (_, grid), _ = grids(2)
    u = torch.randn(1, 8, 9, dtype=torch.float64, device=where, requires_grad=True)
    found = []
    for backend in ("torch", "triton"):
        energy = (laplacian(u, grid, backend=backend) ** 2).sum()
        (first,) = torch.autograd.grad(energy, u, create_graph=True)
        found.append(torch.autograd.grad((first**3).sum(), u)[0])
    torch.testing.assert_close(*found, rtol=1e-11, atol=1e-9)
    v = torch.randn(1, 2, 8, 9, dtype=torch.float64, device=where, requires_grad=True)
    out = convection(u, v, grid, backend="triton").sum()
    with pytest.raises(RuntimeError, match="backend='torch'"):
        torch.autograd.grad(out, u, create_graph=True)


@pytest.mark.parametrize(
    "name", ["gradient", "laplacian", "divergence", "diffusion", "convection upwind3 conservative"]
)
def test_strides(name, interpreter, where):
    """Permuted, sliced and uncollapsible arguments; upstream gradients of stride 0, transposed, and slices of a cat."""
    entry = OPERATORS[name]
    if where.type == "cpu" and name not in ("gradient", "convection upwind3 conservative"):
        pytest.skip("on a card only: the interpreter is slow")
    walls = {"x": (Dirichlet(0.3), "neumann"), "y": "one-sided"}
    grid = Grid("x y", (0.7, 0.9), boundary=walls if entry.linear else "periodic", centring="cell")
    plain = [x.to(where) for x in draw(entry, grid, (2, 2), (4, 8))]
    forms = (
        lambda x: x.movedim(-1, 0).contiguous().movedim(0, -1),  # last axis far apart
        lambda x: torch.stack((x, x), dim=-1)[..., 0],  # sliced
        lambda x: x.transpose(0, 1).contiguous().transpose(0, 1),  # batch that does not collapse
    )
    upstream = (
        lambda out: out.sum(),
        lambda out: (out.transpose(-1, -2) * torch.arange(4.0, device=where)).sum(),
        lambda out: torch.cat((out, out**2))[..., 1:].mean(),
    )
    for form, reduce in zip(forms, upstream, strict=True):
        found = []
        for backend in ("torch", "triton"):
            given = [form(x).requires_grad_() for x in plain]
            assert not any(x.is_contiguous() for x in given)
            out = entry.run(grid, *given, backend=backend)
            found.append((out, *torch.autograd.grad(reduce(out), given)))
        for a, b in zip(*found, strict=True):
            torch.testing.assert_close(a, b, rtol=1e-11, atol=1e-10)


def test_broadcasting(interpreter, where):
    (_, grid), _ = grids(2)
    f = torch.randn(2, 2, 5, 7, dtype=torch.float64, device=where)
    v = torch.randn(2, 5, 7, dtype=torch.float64, device=where, requires_grad=True)
    a, b = (convection(f, v, grid, backend=backend) for backend in ("torch", "triton"))
    torch.testing.assert_close(a, b)
    y = torch.randn_like(a)
    torch.testing.assert_close(*(torch.autograd.grad(x, v, y)[0] for x in (a, b)))


@pytest.mark.gpu
@pytest.mark.parametrize("name", OPERATORS)
def test_one_launch_each_way(name, monkeypatch):
    from pinnfuse.bench.timing import launches

    monkeypatch.setattr(torch.utils.deterministic, "fill_uninitialized_memory", False)  # a launch for every result
    entry = OPERATORS[name]
    (_, grid), _ = grids(2)
    inputs = [x.cuda().float().requires_grad_() for x in draw(entry, grid, (2,), (64, 64))]
    out = entry.run(grid, *inputs, backend="triton")
    y = torch.randn_like(out)
    torch.autograd.grad(out, inputs, y, retain_graph=True)  # compiled
    assert launches(lambda: entry.run(grid, *inputs, backend="triton")) == 1
    assert launches(lambda: torch.autograd.grad(out, inputs, y, retain_graph=True)) == 1


def test_plans_are_of_one_layout(where, interpreter):
    """Fields in turn of other shapes, strides, dtypes, grids: each gets its own launch."""
    base = torch.randn(3, 12, 14, device=where)
    grids = [
        Grid("x y", (0.1, h), boundary={"x": "periodic", "y": wall})
        for h in (0.2, 0.3)
        for wall in ("periodic", "neumann")
    ]
    views = [base, base[:, :, ::2], base.transpose(1, 2), base[:, 1:9, 2:10].expand(2, 3, 8, 8), base.double(), base[0]]
    for _ in range(2):
        for grid in grids:
            for u in views:
                found, truth = (laplacian(u, grid, backend=b) for b in ("triton", "torch"))
                assert found.dtype == u.dtype and found.shape == u.shape
                torch.testing.assert_close(found, truth, rtol=1e-4, atol=1e-3)
