"""What people write in a forward, and what they change between calls: never a wrong number, never a changed network."""

import threading
import types

import pytest
import torch
from torch import nn
from torch.nn import functional

from pinnfuse import PDE, BackendUnavailable, FusedResidualLoss
from pinnfuse.jets import tracing

BURGERS = PDE("u", "t x", parameters={"nu": 0.1}, equations={"burgers": "u_t + u*u_x - nu*u_xx"})


class Net(nn.Module):
    """Two layers and a forward `f(net, points)`; `buffer_*` become buffers."""

    def __init__(self, f, **attributes):
        super().__init__()
        self.a, self.b, self.f = nn.Linear(2, 8), nn.Linear(8, 1), f
        for name, value in attributes.items():
            if name.startswith("buffer"):
                self.register_buffer(name, value)
            else:
                setattr(self, name, value)

    def forward(self, x):
        return self.f(self, x)


class SinLinear(nn.Linear):
    def forward(self, x):
        return torch.sin(super().forward(x))


class SinIdentity(nn.Identity):
    def forward(self, x):
        return torch.sin(x)


class Optional(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(2, 8), nn.Linear(8, 1)

    def forward(self, x, mask=None, *, mode="tanh"):
        h = self.a(x)
        return self.b(torch.tanh(h) if mask is None and mode == "tanh" else torch.sin(h))


def silu_twice(net, x):
    h = net.a(x)
    return net.b(functional.silu(h, inplace=True) + h)


def added_in_place(net, x):
    h = net.a(x)
    other = h
    h += 1.0
    return net.b(torch.tanh(h) * other)


def columns(net, x, scale):
    return net.b(torch.tanh(net.a(torch.stack([x[:, 0] * scale, x[:, 1]], 1))))


class Transformer(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(2, 8), nn.Linear(8, 1)
        self.layer = nn.TransformerEncoderLayer(8, 2, 16, dropout=0.0, activation="gelu", batch_first=True)

    def forward(self, x):
        tokens = self.a(x).unsqueeze(1) * torch.arange(1.0, 4.0).view(3, 1)
        return self.b(self.layer(tokens).mean(1))


NETWORKS = {
    "linear_subclass": lambda: nn.Sequential(SinLinear(2, 8), nn.Linear(8, 1)),
    "identity_subclass": lambda: nn.Sequential(SinIdentity(), nn.Linear(2, 8), nn.Tanh(), nn.Linear(8, 1)),
    "optional_argument": Optional,
    "softplus_threshold": lambda: nn.Sequential(nn.Linear(2, 8), nn.Softplus(threshold=0.1), nn.Linear(8, 1)),
    "silu_in_place_read_again": lambda: Net(silu_twice),
    "silu_in_place": lambda: nn.Sequential(nn.Linear(2, 8), nn.SiLU(inplace=True), nn.Linear(8, 1)),
    "in_place_alias": lambda: Net(added_in_place),
    "rounded_division": lambda: Net(lambda s, x: s.b(torch.tanh(s.a(torch.div(x, 0.3, rounding_mode="floor") + x)))),
    "keyword_other": lambda: Net(lambda s, x: s.b(torch.tanh(s.a(torch.add(input=x, other=x, alpha=2))))),
    "keyword_exponent": lambda: Net(lambda s, x: s.b(torch.tanh(s.a(x.pow(exponent=2))))),
    "power_zero": lambda: Net(lambda s, x: s.b(torch.tanh(s.a(x**0 + x)))),
    "complex": lambda: Net(lambda s, x: s.b((s.a(x) * 1j).imag)),
    "bias_of_points": lambda: Net(lambda s, x: s.b(torch.tanh(functional.linear(x, s.a.weight, s.a(x))))),
    "column_times_N": lambda: Net(lambda s, x: columns(s, x, s.p), p=nn.Parameter(torch.rand(11))),
    "bool_mask": lambda: Net(lambda s, x: s.b(torch.tanh(s.a(x) * x[:, [False, True]]))),
    "layer_norm": lambda: nn.Sequential(nn.Linear(2, 8), nn.LayerNorm(8), nn.Tanh(), nn.Linear(8, 1)),
    "transformer": Transformer,
    "glu": lambda: Net(lambda s, x: s.b(functional.glu(torch.cat([s.a(x), s.a(x)], 1)))),
}


pytestmark = pytest.mark.usefixtures("double_precision")


def assert_same(net, points=None):
    points = torch.rand(11, 2) if points is None else points
    results = []
    for backend in ("autograd", "torch"):
        loss = FusedResidualLoss(BURGERS, backend=backend)(net, points)
        parameters = list(net.parameters())
        gradients = torch.autograd.grad(loss, parameters, allow_unused=True)
        zeros = [torch.zeros_like(p) if g is None else g for p, g in zip(parameters, gradients, strict=True)]
        results.append([loss, *zeros])
    torch.testing.assert_close(results[1], results[0], rtol=1e-9, atol=1e-12)


@pytest.mark.parametrize("name", NETWORKS)
def test_never_another_number(name):
    assert_same(NETWORKS[name]())


def scaled(scale):
    """A network whose forward uses `scale(net)`."""
    return lambda net, x: net.b(torch.tanh(scale(net) * net.a(x)))


def number(x):
    return torch.tensor(float(x))


def settings(x):
    return types.SimpleNamespace(a=x)


def tanh_stack():
    return nn.Sequential(nn.Linear(2, 8), nn.Tanh(), nn.Linear(8, 1))


CHANGES = {
    "computed_buffer": (lambda: Net(scaled(lambda s: s.buffer * 2), buffer=number(1)), lambda n: n.buffer.mul_(3)),
    "buffer_as_number": (lambda: Net(scaled(lambda s: float(s.buffer)), buffer=number(1)), lambda n: n.buffer.mul_(3)),
    "computed_tensor": (lambda: Net(scaled(lambda s: s.t * 2), t=number(1)), lambda n: n.t.mul_(3)),
    "tensor_in_list": (lambda: Net(scaled(lambda s: s.t[0] * 2), t=[number(1)]), lambda n: n.t[0].mul_(3)),
    "private": (lambda: Net(scaled(lambda s: s._k), _k=2.0), lambda n: setattr(n, "_k", 3.0)),
    "list": (lambda: Net(scaled(lambda s: s.k[0]), k=[2.0]), lambda n: n.k.insert(0, 3.0)),
    "dict": (lambda: Net(scaled(lambda s: s.k["a"]), k={"a": 2.0}), lambda n: n.k.update(a=3.0)),
    "settings": (lambda: Net(scaled(lambda s: s.k.a), k=settings(2.0)), lambda n: setattr(n.k, "a", 3.0)),
    "function": (lambda: Net(lambda s, x: s.b(s.k(s.a(x))), k=torch.tanh), lambda n: setattr(n, "k", torch.sin)),
    "forward": (tanh_stack, lambda n: setattr(n, "forward", lambda x: 2 * nn.Sequential.forward(n, x))),
    "forward_of_a_layer": (tanh_stack, lambda n: setattr(n[1], "forward", torch.sin)),
}


@pytest.mark.parametrize("name", CHANGES)
def test_a_change_between_calls_is_seen(name):
    make, change = CHANGES[name]
    net = make()
    assert_same(net)
    change(net)
    assert_same(net)


def test_a_buffer_follows_the_dtype():
    net = Net(scaled(lambda s: 1 / s.buffer), buffer=torch.tensor(3.0)).float()
    points = torch.rand(11, 2)
    FusedResidualLoss(BURGERS, backend="torch").float()(net, points.float())
    net.double()
    with torch.no_grad():
        net.buffer.fill_(3.0)
    assert_same(net, points)


def test_tracing_leaves_the_network_alone():
    def forward(net, x):
        net.last = net.a(x)
        return net.b(torch.tanh(net.last * torch.tensor(2.0)))

    net = Net(forward, last=None)
    keys = set(vars(net))
    with torch.no_grad():
        FusedResidualLoss(BURGERS, backend="torch")(net, torch.rand(3, 2))
    assert set(vars(net)) == keys and not isinstance(net.last, torch.fx.Proxy)
    other = Net(lambda s, x: s.b(torch.tanh(s.a(x * torch.tensor([1.0, 2.0])))))
    keys = set(vars(other))
    assert_same(other)
    assert set(vars(other)) == keys
    assert FusedResidualLoss(BURGERS, backend="torch").explain(other, torch.rand(3, 2)).path == "closed form"


UNSUITABLE = {
    "dropout": lambda: nn.Sequential(nn.Linear(2, 8), nn.Tanh(), nn.Dropout(0.5), nn.Linear(8, 1)),
    "noise": lambda: Net(lambda s, x: s.b(torch.tanh(s.a(x + torch.randn(1, 2))))),
    "batch_norm": lambda: nn.Sequential(nn.Linear(2, 8), nn.BatchNorm1d(8), nn.Tanh(), nn.Linear(8, 1)),
    "mean_over_points": lambda: Net(lambda s, x: s.b(torch.tanh(s.a(x - x.mean(0))))),
}


@pytest.mark.parametrize("name", UNSUITABLE)
def test_forward_mode_refuses_what_it_would_get_wrong(name):
    net, points = UNSUITABLE[name](), torch.rand(11, 2)
    buffers = [b.clone() for b in net.buffers()]
    with pytest.raises(BackendUnavailable, match=r"autograd"):
        FusedResidualLoss(BURGERS, backend="torch")(net, points)
    assert all(torch.equal(a, b) for a, b in zip(buffers, net.buffers(), strict=True))
    loss_fn = FusedResidualLoss(BURGERS)
    assert loss_fn.explain(net, points).backend == "autograd"
    torch.manual_seed(1)
    got = loss_fn(net, points)
    torch.manual_seed(1)
    torch.testing.assert_close(got, FusedResidualLoss(BURGERS, backend="autograd")(net, points))


FALLS_BACK = {
    "normalize": lambda: Net(lambda s, x: s.b(functional.normalize(s.a(x)))),
    "norm": lambda: Net(lambda s, x: s.b(s.a(x) / s.a(x).norm(dim=1, keepdim=True))),
    "std": lambda: Net(lambda s, x: s.b(s.a(x) / s.a(x).std(1, keepdim=True))),
    "distance": lambda: Net(lambda s, x: s.b(torch.exp(-(torch.cdist(x, s.c) ** 2))), c=nn.Parameter(torch.rand(8, 2))),
}


@pytest.mark.parametrize("name", FALLS_BACK)
def test_forward_mode_without_a_gradient_is_not_chosen(name):
    """torch's forward mode gives the derivatives, but not their parameter gradient, or not with many rows."""
    net, points, found = FALLS_BACK[name](), torch.rand(40, 2), []
    for backend in ("autograd", "auto"):
        loss = FusedResidualLoss(BURGERS, backend=backend)(net, points)
        found.append([loss, *torch.autograd.grad(loss, list(net.parameters()), materialize_grads=True)])
    torch.testing.assert_close(found[1], found[0], rtol=1e-9, atol=1e-12)


def test_layer_norm_against_finite_differences():
    """torch's own layer_norm has a wrong third derivative, which is the parameter gradient of a second-order PDE."""
    net, points = NETWORKS["layer_norm"](), torch.rand(5, 2)
    weight = net[0].weight
    for backend in ("autograd", "torch"):
        loss_fn = FusedResidualLoss(BURGERS, backend=backend)
        (gradient,) = torch.autograd.grad(loss_fn(net, points), weight)
        values = []
        for step in (1e-5, -2e-5):
            with torch.no_grad():
                weight[0, 0] += step
                values.append(loss_fn(net, points).item())
        with torch.no_grad():
            weight[0, 0] += 1e-5
        assert gradient[0, 0].item() == pytest.approx((values[0] - values[1]) / 2e-5, rel=1e-6)


def test_a_weight_changed_before_backward_is_noticed():
    net = nn.Sequential(nn.Linear(2, 8), nn.Tanh(), nn.Linear(8, 1))
    r = FusedResidualLoss(BURGERS, backend="torch").residuals(net, torch.rand(5, 2))
    with torch.no_grad():
        net[0].weight.mul_(2)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        r.sum().backward()


def test_points_written_behind_torchs_back():
    net = Net(lambda s, x: s.b(torch.tanh(s.a(x))) * torch.sin(x[:, :1]))
    points = torch.rand(5, 2)
    loss_fn, truth = (FusedResidualLoss(BURGERS, backend=b) for b in ("torch", "autograd"))
    loss_fn(net, points)
    points.numpy()[:] += 0.5
    torch.testing.assert_close(loss_fn(net, points), truth(net, points))
    points.data.mul_(0.5)
    torch.testing.assert_close(loss_fn(net, points), truth(net, points))


def test_a_buffer_that_is_trained_in_forward_mode():
    net = Net(lambda s, x: s.b(functional.softmax(s.a(x) * s.buffer, 1)), buffer=torch.tensor(1.5, requires_grad=True))
    points, gradients = torch.rand(5, 2), []
    for backend in ("autograd", "torch"):
        gradients += torch.autograd.grad(FusedResidualLoss(BURGERS, backend=backend)(net, points), net.buffer)
    torch.testing.assert_close(*gradients)


def test_random_numbers_of_another_thread_are_not_the_forwards(monkeypatch):
    """A loader may draw while a network is read: neither is the network random, nor does the loader draw twice."""
    true, drawn = tracing.Tracer.trace, []

    def beside_a_loader(self, *arguments, **named):
        loader = threading.Thread(target=lambda: drawn.append(torch.rand(3)))
        loader.start()
        loader.join()
        return true(self, *arguments, **named)

    monkeypatch.setattr(tracing.Tracer, "trace", beside_a_loader)
    net = Net(lambda net, x: net.b(torch.tanh(net.a(x))))
    assert FusedResidualLoss(BURGERS, "torch").explain(net, torch.rand(9, 2)).path == "closed form"
    assert len(drawn) == 2 and not torch.equal(*drawn)
    net = Net(lambda net, x: net.b(torch.tanh(net.a(x))) * torch.rand(1))
    with pytest.raises(tracing.NotRecognised, match="draws random numbers"):
        tracing.trace(net, 2)
    assert not torch.equal(drawn[-1], drawn[-2])


def test_a_network_is_read_while_other_threads_use_theirs(monkeypatch):
    """fx replaces methods of `nn.Module` for all threads: others compute as always, and another trace waits."""
    true, call, points = tracing.Tracer.trace, nn.Module.__call__, torch.rand(9, 2)
    nets = [Net(lambda net, x: net.b(torch.tanh(net.a(x * net.buffer_s))), buffer_s=torch.ones(2)) for _ in range(3)]
    losses, values, begun, others = [], [], threading.Event(), []

    def lose(net):
        loss = FusedResidualLoss(BURGERS, backend="torch")
        losses.append((loss.explain(net, points).path, loss(net, points)))

    def beside_others(self, *arguments, **named):
        if not begun.is_set():
            begun.set()
            others.extend(threading.Thread(target=lose, args=(net,)) for net in nets[1:])
            for other in others:
                other.start()
        return true(self, *arguments, **named)

    def meanwhile(net, x):
        if threading.current_thread() is threading.main_thread() and not values:
            user = threading.Thread(target=lambda: values.append(nets[1](points)))
            user.start()
            user.join()
        return net.b(torch.tanh(net.a(x * net.buffer_s)))

    monkeypatch.setattr(tracing.Tracer, "trace", beside_others)
    nets[0].f = meanwhile
    lose(nets[0])
    for other in others:
        other.join()
    assert nn.Module.__call__ is call
    torch.testing.assert_close(values, [nets[1](points)])
    assert [path for path, _ in losses] == ["closed form"] * 3


def test_forward_mode_of_several_threads():
    """Torch counts its levels for all threads together."""
    nets = [Net(lambda net, x: net.b(functional.layer_norm(net.a(x), (8,)))) for _ in range(4)]
    points, found = torch.rand(9, 2), {}
    start = threading.Barrier(len(nets))

    def lose(net):
        start.wait()
        found[net] = [float(FusedResidualLoss(BURGERS, backend="torch")(net, points)) for _ in range(10)]

    threads = [threading.Thread(target=lose, args=(net,)) for net in nets]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for net in nets:
        truth = float(FusedResidualLoss(BURGERS, backend="autograd")(net, points))
        assert found[net] == pytest.approx([truth] * 10, rel=1e-4)


def test_fixed_features_of_a_generator_of_their_own():
    net = Net(lambda net, x: net.b(torch.tanh(net.a(x * torch.rand(2, generator=torch.Generator().manual_seed(3))))))
    assert FusedResidualLoss(BURGERS, "torch").explain(net, torch.rand(9, 2)).path == "closed form"
