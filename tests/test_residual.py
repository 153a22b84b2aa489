"""FusedResidualLoss and derivatives against nested autograd in float64."""

import copy
import math

import pytest
import torch
from torch import nn

import pinnfuse
from pinnfuse import PDE, FusedResidualLoss, Parameter
from pinnfuse.jets import ClosedFormEngine
from tests.jets.networks import RECOGNISED, Attention, stack

PDES = {
    "burgers": PDE("u", "t x", parameters={"nu": 0.01}, equations={"burgers": "u_t + u*u_x - nu*u_xx"}),
    "navier_stokes": PDE(
        "u v p",
        "t x y",
        parameters={"nu": 0.05},
        equations={
            "momentum_x": "u_t + u*u_x + v*u_y + p_x - nu*(u_xx + u_yy)",
            "momentum_y": "v_t + u*v_x + v*v_y + p_y - nu*(v_xx + v_yy)",
            "continuity": "u_x + v_y",
        },
    ),
    "kdv": PDE("u", "t x", equations={"kdv": "u_t + u*u_x + 0.1*u_xxx"}),
    "plate": PDE("w", "x y", equations={"plate": "w_xxxx + 2*w_xxyy + w_yyyy - sin(pi*x)*w"}),
    "mixed": PDE("u v", "t x y", equations={"a": "u_txx*v + exp(x)*u_xy", "b": "v_tt - u*v_xyy + abs(y)*v_xxxy"}),
    "inverse": PDE(
        "u",
        "t x",
        parameters=[Parameter("k", 0.3, trainable=True, positive=True), Parameter("a", -0.4, trainable=True)],
        equations={"heat": "u_t - k*u_xx + a*sin(k*x)*u"},
    ),
    "two_diffusivities": PDE(
        "u v",
        "t x y",
        parameters={"a": 0.2, "b": 0.05},
        equations={"u": "u_t - a*laplacian(u) + u*v**2", "v": "v_t - b*laplacian(v) - u*v**2"},
    ),
    "algebraic": PDE("u", "x", equations={"fit": "u - cos(x)"}),
}


def case(pde, make=None, dtype=torch.float64, n=37):
    net = (make or stack)(len(pde.coordinates), len(pde.fields)).to(dtype)
    return net, torch.rand(n, len(pde.coordinates), dtype=dtype) * 2 - 0.5


def loss_and_gradients(pde, net, points, backend, **kwargs):
    loss_fn = FusedResidualLoss(pde, backend=backend).to(points.dtype)
    loss = loss_fn(net, points, **kwargs)
    tensors = {**dict(net.named_parameters()), **dict(loss_fn.named_parameters())}
    gradients = torch.autograd.grad(loss * 1.7, list(tensors.values()), allow_unused=True)
    return {"loss": loss.detach()} | {
        name: torch.zeros_like(p) if g is None else g for (name, p), g in zip(tensors.items(), gradients, strict=True)
    }


def assert_same(got, truth, tolerance=1e-11):
    assert got.keys() == truth.keys()
    scale = max(float(t.norm()) for t in truth.values())
    for name in truth:
        assert float((got[name].double() - truth[name].double()).norm()) <= tolerance * max(
            float(truth[name].norm()), 1e-3 * scale
        ), name


@pytest.mark.parametrize("name", PDES)
def test_closed_form_is_nested_autograd(name):
    net, points = case(PDES[name])
    truth = loss_and_gradients(PDES[name], net, points, "autograd")
    assert_same(loss_and_gradients(PDES[name], net, points, "torch"), truth)


@pytest.mark.parametrize("network", RECOGNISED)
@pytest.mark.parametrize("name", ["navier_stokes", "mixed"])
def test_every_recognised_network(network, name):
    net, points = case(PDES[name], RECOGNISED[network])
    assert FusedResidualLoss(PDES[name], backend="torch").explain(net, points).path == "closed form"
    truth = loss_and_gradients(PDES[name], net, points, "autograd")
    assert_same(loss_and_gradients(PDES[name], net, points, "torch"), truth, 1e-10)


@pytest.mark.parametrize("name", ["navier_stokes", "kdv", "mixed", "inverse"])
def test_generic_forward_mode(name):
    net, points = case(PDES[name], Attention)
    pinnfuse.backends._announced.clear()
    with pytest.warns(UserWarning, match="forward mode"):
        got = loss_and_gradients(PDES[name], net, points, "torch")
    assert_same(got, loss_and_gradients(PDES[name], net, points, "autograd"))


def test_channels_of_the_design():
    net, points = case(PDES["navier_stokes"])
    explain = FusedResidualLoss(PDES["navier_stokes"], backend="torch").explain
    assert len(explain(net, points).channels) == 4
    net, points = case(PDES["burgers"])
    assert len(FusedResidualLoss(PDES["burgers"], backend="torch").explain(net, points).channels) == 3


def test_laplacian_in_100_dimensions():
    names = [f"x{i}" for i in range(100)]
    pde = PDE("u", names, equations={"poisson": "laplacian(u) + sin(x0)"})
    net, points = case(pde, n=5)
    assert len(FusedResidualLoss(pde, backend="torch").explain(net, points).channels) == 102
    truth = loss_and_gradients(pde, net, points, "autograd")
    assert_same(loss_and_gradients(pde, net, points, "torch"), truth)


@pytest.mark.parametrize("name", PDES)
@pytest.mark.parametrize("network", ["tanh", "modified"])
def test_float32_is_as_accurate_as_nested_autograd(name, network):
    net, points = case(PDES[name], RECOGNISED[network], torch.float32, n=257)
    truth = loss_and_gradients(PDES[name], copy.deepcopy(net).double(), points.double(), "autograd")
    eager = loss_and_gradients(PDES[name], net, points, "autograd")
    ours = loss_and_gradients(PDES[name], net, points, "torch")

    def error(result):  # all gradients as one vector, and the loss
        difference = sum(float((result[k].double() - truth[k]).square().sum()) for k in truth if k != "loss")
        size = sum(float(truth[k].square().sum()) for k in truth if k != "loss")
        return math.sqrt(difference / size), abs(float(result["loss"]) - float(truth["loss"])) / float(truth["loss"])

    eps = torch.finfo(torch.float32).eps
    for mine, theirs in zip(error(ours), error(eager), strict=True):
        assert mine <= 2 * theirs + 4 * eps


def test_chunks_do_not_change_the_result(monkeypatch):
    net, points = case(PDES["navier_stokes"], n=101)
    weights = torch.rand(101, 3, dtype=torch.float64)
    whole = loss_and_gradients(PDES["navier_stokes"], net, points, "torch", point_weights=weights)
    monkeypatch.setattr(pinnfuse.jets.engine, "chunk_size", lambda *_: 7)
    assert_same(loss_and_gradients(PDES["navier_stokes"], net, points, "torch", point_weights=weights), whole, 1e-13)


@pytest.mark.parametrize("backend", ["torch", "autograd"])
@pytest.mark.parametrize("shape", [(37,), (37, 1), (37, 3)], ids=str)
def test_weights(backend, shape):
    pde = PDES["navier_stokes"]
    net, points = case(pde)
    w = torch.rand(shape, dtype=torch.float64).requires_grad_()
    loss_fn = FusedResidualLoss(pde, backend=backend, equation_weights={"continuity": 5.0}).double()
    loss = loss_fn(net, points, point_weights=w)
    r = loss_fn.residuals(net, points)
    full = w if w.dim() == 2 else w[:, None]
    expected = (full * r**2).mean(0) @ torch.tensor([1.0, 1.0, 5.0], dtype=torch.float64)
    torch.testing.assert_close(loss, expected)
    (got,) = torch.autograd.grad(loss, w)
    (truth,) = torch.autograd.grad(expected, w)
    torch.testing.assert_close(got, truth)


@pytest.mark.parametrize("backend", ["torch", "autograd"])
def test_equation_weights_may_be_trained(backend):
    """Assigned, they are what the optimiser changes; their gradient is the mean square of each equation."""
    net, points = nn.Sequential(nn.Linear(2, 8), nn.Tanh(), nn.Linear(8, 1)), torch.rand(9, 2)
    loss_fn = FusedResidualLoss(PDE("u", "t x", equations={"a": "u_t + u", "b": "u_x"}), backend)
    loss_fn.equation_weights = nn.Parameter(torch.tensor([1.0, 2.0]))
    found = copy.deepcopy(loss_fn).evaluate(net, points)
    loss_fn(net, points).backward()
    torch.testing.assert_close(loss_fn.equation_weights.grad, torch.stack(list(found.per_equation.values())))


def test_equation_weights_keep_the_digits_of_a_tensor():
    net, points = nn.Sequential(nn.Linear(2, 8), nn.Tanh(), nn.Linear(8, 1)).double(), torch.rand(9, 2).double()
    weights = torch.tensor([0.1], dtype=torch.float64)
    found = FusedResidualLoss(PDE("u", "t x", equations="u_t"), equation_weights=weights).evaluate(net, points)
    torch.testing.assert_close(found.loss, 0.1 * found.per_equation["equation"], rtol=1e-14, atol=0)


def test_evaluate():
    pde = PDES["navier_stokes"]
    net, points = case(pde)
    loss_fn = FusedResidualLoss(pde, equation_weights=[1, 2, 3], backend="torch").double()
    out = loss_fn.evaluate(net, points)
    r = loss_fn.residuals(net, points)
    assert not out.residuals.requires_grad
    torch.testing.assert_close(out.residuals, r.detach())
    assert list(out.per_equation) == list(pde.equations)
    torch.testing.assert_close(
        out.loss, sum(w * out.per_equation[k] for w, k in zip((1, 2, 3), pde.equations, strict=True))
    )
    out.loss.backward()
    assert all(p.grad is not None for p in net.parameters())


@pytest.mark.parametrize("backend", ["torch", "autograd"])
def test_residuals_are_differentiable(backend):
    pde = PDES["inverse"]
    net, points = case(pde, n=5)
    loss_fn = FusedResidualLoss(pde, backend=backend).double()
    names = [n for n, _ in net.named_parameters()] + [n for n, _ in loss_fn.named_parameters()]

    def f(*tensors):
        values = dict(zip(names, tensors, strict=True))
        inner = {k: v for k, v in values.items() if not k.startswith("trained")}
        outer = {k: v for k, v in values.items() if k.startswith("trained")}
        holder = Holder(net, loss_fn)
        mapping = {f"net.{k}": v for k, v in inner.items()} | {f"loss_fn.{k}": v for k, v in outer.items()}
        return torch.func.functional_call(holder, mapping, (points,))

    tensors = [p.detach().clone().requires_grad_() for p in [*net.parameters(), *loss_fn.parameters()]]
    assert torch.autograd.gradcheck(f, tensors, check_undefined_grad=False)


class Holder(nn.Module):
    def __init__(self, net, loss_fn):
        super().__init__()
        self.net, self.loss_fn = net, loss_fn

    def forward(self, points):
        return self.loss_fn.residuals(self.net, points)


def test_gradcheck_of_the_loss():
    pde = PDES["mixed"]
    net, points = case(pde, lambda i, o: stack(i, o, width=4), n=3)
    loss_fn = FusedResidualLoss(pde, backend="torch")
    names = [n for n, _ in net.named_parameters()]

    class Loss(nn.Module):
        def __init__(self):
            super().__init__()
            self.net = net

        def forward(self, x):
            return loss_fn(self.net, x)

    module = Loss()

    def f(*tensors):
        return torch.func.functional_call(
            module, {f"net.{n}": t for n, t in zip(names, tensors, strict=True)}, (points,)
        )

    assert torch.autograd.gradcheck(f, [p.detach().clone().requires_grad_() for p in net.parameters()])


@pytest.mark.parametrize("backend", ["torch", "autograd"])
def test_derivatives(backend):
    net, points = case(PDES["mixed"])
    names = ["u", "u_t", "v_xx", "u_xy", "u_txxy"]
    d = pinnfuse.derivatives(net, points, names, fields="u v", coordinates="t x y", backend=backend)
    assert list(d) == names and all(v.shape == (37,) for v in d.values())
    truth = pinnfuse.derivatives(net, points, names, fields="u v", coordinates="t x y", backend="autograd")
    weights = torch.randn(len(names), 37, dtype=torch.float64)

    def gradients(result):
        loss = sum((w * v).sum() for w, v in zip(weights, result.values(), strict=True))
        return torch.autograd.grad(loss, list(net.parameters()), allow_unused=True, retain_graph=True)

    for name in names:
        torch.testing.assert_close(d[name], truth[name], rtol=1e-10, atol=1e-12)
    for got, expected in zip(gradients(d), gradients(truth), strict=True):
        expected = torch.zeros_like(got) if expected is None else expected
        torch.testing.assert_close(got, expected, rtol=1e-9, atol=1e-11)


def test_data_columns():
    pde = PDE("u", "x", data="f", equations={"poisson": "u_xx - f"})
    net, points = case(pde)
    f = torch.rand(37, dtype=torch.float64)
    loss = FusedResidualLoss(pde, backend="torch")(net, points, data={"f": f})
    u_xx = pinnfuse.derivatives(net, points, ["u_xx"], fields="u", coordinates="x")["u_xx"]
    torch.testing.assert_close(loss, (u_xx - f).square().mean())


def test_create_graph_is_refused_and_possible_with_autograd():
    pde = PDES["burgers"]
    net, points = case(pde)
    for call in (lambda f: f(net, points), lambda f: f.residuals(net, points).square().mean()):
        loss = call(FusedResidualLoss(pde, backend="torch"))
        with pytest.raises(RuntimeError, match="backend='autograd'"):
            torch.autograd.grad(loss, list(net.parameters()), create_graph=True)
    loss = FusedResidualLoss(pde, backend="autograd")(net, points)
    (g, *_) = torch.autograd.grad(loss, list(net.parameters()), create_graph=True)
    g.square().sum().backward()


def test_no_grad_does_no_gradient_work(monkeypatch):
    pde = PDES["burgers"]
    net, points = case(pde)
    monkeypatch.setattr(pinnfuse.jets.closed_form.ClosedForm, "adjoint", None)
    with torch.no_grad():
        assert not FusedResidualLoss(pde, backend="torch")(net, points).requires_grad
    net.requires_grad_(False)
    assert not FusedResidualLoss(pde, backend="torch")(net, points).requires_grad


def test_frozen_tied_and_accumulated():
    pde = PDES["burgers"]
    net, points = case(pde)
    net[2].weight.requires_grad_(False)
    truth = [g for g in torch.autograd.grad(FusedResidualLoss(pde, backend="autograd")(net, points), trainable(net))]
    for _ in range(2):
        FusedResidualLoss(pde, backend="torch")(net, points).backward()
    assert net[2].weight.grad is None
    for p, g in zip(trainable(net), truth, strict=True):
        torch.testing.assert_close(p.grad, 2 * g)

    shared = nn.Linear(8, 8).double()
    tied = nn.Sequential(
        nn.Linear(2, 8).double(), nn.Tanh(), shared, nn.Tanh(), shared, nn.Tanh(), nn.Linear(8, 1).double()
    )
    assert_same(loss_and_gradients(pde, tied, points, "torch"), loss_and_gradients(pde, tied, points, "autograd"))


def trainable(net):
    return [p for p in net.parameters() if p.requires_grad]


def test_autocast_is_off_inside():
    pde = PDES["burgers"]
    net, points = case(pde, dtype=torch.float32)
    plain = FusedResidualLoss(pde, backend="torch")(net, points)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        cast = FusedResidualLoss(pde, backend="torch")(net, points)
    assert cast.dtype == torch.float32
    assert cast.item() == plain.item()


@pytest.mark.parametrize("network", ["stack", "layer_norm"])
def test_autocast_is_off_in_a_backward_inside_of_it(network):
    between = [nn.LayerNorm(8)] if network == "layer_norm" else []
    net, points = nn.Sequential(nn.Linear(2, 8), *between, nn.Tanh(), nn.Linear(8, 1)), torch.rand(9, 2)
    loss_fn = FusedResidualLoss(PDES["burgers"], backend="torch")
    calls = (
        lambda: loss_fn(net, points),
        lambda: loss_fn.residuals(net, points).square().mean(),
        lambda: pinnfuse.derivatives(net, points, ["u_xx"], fields="u", coordinates="t x")["u_xx"].square().mean(),
        lambda: sum(jacobian.sum() for _, jacobian in loss_fn.linearise(net, points, list(net.parameters()))),
    )
    for call in calls if network == "stack" else calls[:3]:
        found = []
        for autocast in (False, True):
            with torch.autocast("cpu", dtype=torch.bfloat16, enabled=autocast):
                value = call()
                gradients = (
                    torch.autograd.grad(value, trainable(net), materialize_grads=True) if value.requires_grad else ()
                )
            found.append([value, *gradients])
        torch.testing.assert_close(*found, rtol=0, atol=0)


@pytest.mark.parametrize("network", ["stack", "layer_norm"])
def test_autocast_around_the_first_look_at_a_network_does_not_matter(network):
    between = [nn.LayerNorm(8)] if network == "layer_norm" else []
    net, points = nn.Sequential(nn.Linear(2, 8), *between, nn.Tanh(), nn.Linear(8, 1)), torch.rand(9, 2)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        path = FusedResidualLoss(PDES["burgers"]).explain(net, points).path
    assert path == ("closed form" if network == "stack" else "forward mode")


def test_a_backward_keeps_the_precision_of_its_forward(monkeypatch):
    """Which was asked for; where `backward()` is called, torch has its own again."""
    net, points, seen, true = stack(2, 1), torch.rand(9, 2), [], ClosedFormEngine.adjoint

    def adjoint(*arguments):
        seen.append(torch.get_float32_matmul_precision())
        return true(*arguments)

    monkeypatch.setattr(ClosedFormEngine, "adjoint", adjoint)
    for precision in ("tf32", "float32", "bf16x3"):
        residuals = FusedResidualLoss(PDES["burgers"], "torch", precision).residuals(net, points)
        residuals.sum().backward()
    assert seen == ["high", "highest", "medium"]
    assert torch.get_float32_matmul_precision() == "highest"


def test_strided_points():
    pde = PDES["navier_stokes"]
    net, points = case(pde)
    wide = torch.randn(37, 6, dtype=torch.float64)
    wide[:, ::2] = points
    assert_same(
        loss_and_gradients(pde, net, wide[:, ::2], "torch"), loss_and_gradients(pde, net, points, "torch"), 1e-14
    )
    column_major = points.t().contiguous().t()
    assert_same(
        loss_and_gradients(pde, net, column_major, "torch"), loss_and_gradients(pde, net, points, "torch"), 1e-14
    )


def test_compile_around_a_module_that_uses_the_loss():
    pde = PDES["burgers"]
    net, points = case(pde)

    class Module(nn.Module):
        def __init__(self):
            super().__init__()
            self.net, self.loss_fn = net, FusedResidualLoss(pde, backend="torch")

        def forward(self, x):
            return self.loss_fn(self.net, 2 * x) * 3

    module = Module()
    compiled = torch.compile(module, backend="eager")
    torch.testing.assert_close(compiled(points), module(points))
    compiled(points).backward()
    assert net[0].weight.grad is not None


def test_a_changed_network_is_recognised_anew():
    pde = PDES["burgers"]
    net, points = case(pde)
    loss_fn = FusedResidualLoss(pde, backend="torch")
    before = loss_fn(net, points)
    net[1] = nn.SiLU()
    after = loss_fn(net, points)
    assert before.item() != after.item()
    torch.testing.assert_close(after, FusedResidualLoss(pde, backend="autograd")(net, points))


def test_trained_parameters_are_parameters():
    loss_fn = FusedResidualLoss(PDES["inverse"])
    assert {n for n, _ in loss_fn.named_parameters()} == {"trained.k", "trained.a"}
    assert float(loss_fn.parameter_values()["k"]) == pytest.approx(0.3, rel=1e-6)
    with torch.no_grad():
        loss_fn.trained["k"].sub_(100)
    assert float(loss_fn.parameter_values()["k"]) > 0
    other = FusedResidualLoss(PDES["inverse"])
    other.load_state_dict(loss_fn.state_dict())
    assert float(other.trained["k"]) == float(loss_fn.trained["k"])


def test_constant_parameters_change_at_run_time():
    pde = PDES["burgers"]
    net, points = case(pde)
    loss_fn = FusedResidualLoss(pde, backend="torch")
    loss_fn.set_parameter("nu", 0.5)
    other = PDE("u", "t x", parameters={"nu": 0.5}, equations={"burgers": "u_t + u*u_x - nu*u_xx"})
    torch.testing.assert_close(loss_fn(net, points), FusedResidualLoss(other, backend="autograd")(net, points))
    restored = FusedResidualLoss(pde)
    restored.load_state_dict(loss_fn.state_dict())
    assert restored.constants == {"nu": 0.5}


ZEROS = {
    "burgers": ("u_t + u*u_x - a*u_xx", {"a": 0.0}),
    "heat": ("u_t - a*u_xx", {"a": 0.0}),
    "wave": ("u_tt - a**2*u_xx + u**3", {"a": 0.0}),
    "difference": ("u_t + u*u_x - (a - b)*u_xx", {"a": 1.0, "b": 1.0}),
    "both": ("u*u_x + a*u_t + b*u_xx", {"a": 0.0, "b": 0.0}),
    "tiny": ("u_t + u*u_x - a*u_xx", {"a": 1e-42}),
    "tiny_number": ("u_t + u*u_x - 1e-42*u_xx", {}),
    "tiny_second": ("u_t + u*u_x - a*u_tt - u_xx", {"a": 1e-42}),
    "tiny_first": ("u_t + u*u_x - a*u_xx - u_tt", {"a": 1e-42}),
}


@pytest.mark.parametrize("name", ZEROS)
def test_a_constant_may_be_zero(name):
    """No coefficient of an operator channel is a quotient of two that may vanish."""
    equation, parameters = ZEROS[name]
    pde = PDE("u", "t x", parameters=parameters, equations=equation)
    net, points = case(pde, dtype=torch.float32)
    truth = loss_and_gradients(pde, copy.deepcopy(net).double(), points.double(), "autograd")
    assert_same(loss_and_gradients(pde, net, points, "torch"), truth, 2e-5)


@pytest.mark.parametrize("order", [6, 8])
def test_the_highest_orders(order):
    pde = PDE("u", "t x", equations=f"u_{'x' * order} + u*u_t")
    net, points = case(pde, lambda a, b: nn.Sequential(nn.Linear(a, 4), nn.Tanh(), nn.Linear(4, b)), n=5)
    truth = loss_and_gradients(pde, net, points, "autograd")
    assert_same(loss_and_gradients(pde, net, points, "torch"), truth)


class Doubled(nn.Module):
    """Single precision, scaled by a buffer in double precision."""

    def __init__(self, a, b):
        super().__init__()
        self.net = stack(a, b)
        self.register_buffer("scale", torch.tensor([2.0], dtype=torch.float64))

    def forward(self, x):
        return self.net(x) * self.scale


def test_a_buffer_of_another_precision():
    net, points = Doubled(2, 1), torch.rand(9, 2)
    got, truth = (loss_and_gradients(PDES["burgers"], net, points, backend) for backend in ("torch", "autograd"))
    assert got["loss"].dtype == torch.float32
    assert_same(got, truth, 1e-5)


def test_a_parameter_set_to_zero():
    pde = PDES["burgers"]
    net, points = case(pde)
    losses = [FusedResidualLoss(pde, backend=backend) for backend in ("autograd", "torch")]
    for loss_fn in losses:
        loss_fn.set_parameter("nu", 0.0)
    torch.testing.assert_close(*[loss_fn(net, points) for loss_fn in losses])
    with pytest.raises(ValueError, match="nu = 0"):
        singular = PDE("u", "t x", parameters={"nu": 0.0}, equations="u_t + u*u_x - u_xx/nu")
        FusedResidualLoss(singular, backend="torch")(net, points)


def test_jets_of_the_points_alone_follow_the_points():
    """A hard-constraint transform is computed once per set of points, and again when they change in place."""
    pde = PDES["burgers"]
    net, points = case(pde, RECOGNISED["hard"])
    loss_fn = FusedResidualLoss(pde, backend="torch")
    first = loss_fn(net, points).item()
    assert loss_fn(net, points).item() == first
    points += 0.25
    truth = FusedResidualLoss(pde, backend="autograd")(net, points)
    torch.testing.assert_close(loss_fn(net, points), truth)
    with torch.no_grad():
        net.body[0].weight.mul_(1.5)
    torch.testing.assert_close(loss_fn(net, points), FusedResidualLoss(pde, backend="autograd")(net, points))
    for _ in range(40):  # new tensors that may get the address of older ones
        other = torch.rand(37, 2, dtype=torch.float64)
        torch.testing.assert_close(loss_fn(net, other), FusedResidualLoss(pde, backend="autograd")(net, other))


def test_an_output_that_depends_on_the_points_alone():
    class Known(nn.Module):
        def forward(self, x):
            return torch.sin(x[:, :1]) * x[:, 1:]

    pde = PDES["burgers"]
    points = torch.rand(9, 2, dtype=torch.float64)
    got = FusedResidualLoss(pde, backend="torch")(Known(), points)
    torch.testing.assert_close(got, FusedResidualLoss(pde, backend="autograd")(Known(), points))


@pytest.mark.parametrize("change", ["width", "activation", "attribute", "hook", "replaced"])
def test_a_changed_network_is_traced_again(change):
    pde = PDE("u", "t x", equations={"heat": "u_t - u_xx"})
    points = torch.rand(9, 2, dtype=torch.float64)
    net = nn.Sequential(nn.Linear(2, 5), nn.Tanh(), nn.Linear(5, 5), nn.Softplus(), nn.Linear(5, 1)).double()
    loss_fn = FusedResidualLoss(pde, backend="torch")
    loss_fn.double()(net, points)
    if change == "width":
        net[0], net[2] = nn.Linear(2, 7).double(), nn.Linear(7, 5).double()
    elif change == "activation":
        net[1] = nn.Sigmoid()
    elif change == "attribute":
        net[3].beta = 2.5
    elif change == "hook":
        net[1].register_forward_hook(lambda module, inputs, output: 2 * output)
    else:
        net[0].weight = nn.Parameter(2 * net[0].weight.detach())
    truth = FusedResidualLoss(pde, backend="autograd").double()(net, points)
    assert torch.allclose(loss_fn(net, points), truth, rtol=1e-12)


@pytest.mark.parametrize("make", ["stack", "layer_norm"])
@pytest.mark.parametrize("backend", ["torch", "autograd"])
def test_inference_mode_gives_the_same_numbers(make, backend):
    """Lightning validates in inference mode, in which nothing is recorded: derivatives would be zero."""
    pde = PDES["burgers"]
    net, points = case(pde)
    if make == "layer_norm":
        net = nn.Sequential(nn.Linear(2, 8), nn.LayerNorm(8), nn.SiLU(), nn.Linear(8, 1)).double()
    loss_fn = FusedResidualLoss(pde, backend=backend)
    truth = loss_fn(net, points).detach()
    with torch.inference_mode():
        torch.testing.assert_close(loss_fn(net, points), truth)
        inside = points.clone()
        torch.testing.assert_close(loss_fn(net, inside), truth)
        names = {"names": ["u_xx"], "fields": "u", "coordinates": "t x", "backend": backend}
        got = pinnfuse.derivatives(net, inside, **names)["u_xx"]
    torch.testing.assert_close(got, pinnfuse.derivatives(net, points, **names)["u_xx"].detach())
    with torch.no_grad():
        torch.testing.assert_close(loss_fn(net, points), truth)
    torch.testing.assert_close(loss_fn(net, inside).detach(), truth)


def test_a_scripted_network():
    pde = PDES["burgers"]
    net, points = case(pde)
    scripted = torch.jit.trace(net, points)
    torch.testing.assert_close(FusedResidualLoss(pde)(scripted, points), FusedResidualLoss(pde)(net, points))
    with pytest.raises(pinnfuse.BackendUnavailable, match="scripted module"):
        FusedResidualLoss(pde, backend="torch")(scripted, points)


def test_a_module_in_a_second_place_is_traced_again():
    class Skipping(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.middle, self.last = nn.Linear(2, 5), nn.Linear(5, 5), nn.Linear(5, 1)
            self.register_module("skip", None)

        def forward(self, x):
            h = torch.tanh(self.middle(torch.tanh(self.first(x))))
            return self.last(h if self.skip is None else h + self.skip(h))

    loss_fn, net = FusedResidualLoss(PDE("u", "t x", equations={"heat": "u_t - u_xx"}), backend="torch"), Skipping()
    before = loss_fn(net, points := torch.rand(9, 2)).item()
    net.skip = net.middle
    truth = FusedResidualLoss(loss_fn.pde, backend="autograd")(net, points).item()
    assert abs(before / truth - 1) > 1e-3
    assert loss_fn(net, points).item() == pytest.approx(truth, rel=1e-4)
