"""Networks that are no plain stack: gates, residual blocks, mixed activations. Against float64 nested autograd."""

import copy

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import nn

import pinnfuse
from pinnfuse import PDE, models
from pinnfuse.jets import recognise
from pinnfuse.jets.plan import plan
from pinnfuse.kernels.jets import ScheduledEngine, TritonEngine
from pinnfuse.kernels.jets.schedule import Pointwise, Product, schedule
from pinnfuse.models.transform import OutputTransform

from .cases import PDES, errors, mlp, relative  # noqa: TID251 - this folder, not the library's


def points_for(pde: PDE, n: int, where: torch.device, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return (torch.rand(n, len(pde.coordinates), dtype=torch.float64) * 2 - 0.5).to(where, dtype)


def check(pde: PDE, net: nn.Module, points: torch.Tensor, least: float = 3e-6) -> None:
    """3e-6, or ten times what float32 nested autograd loses where that is more: stored jets keep 22 bits of 24."""
    eager = errors(pde, net, points, "autograd")
    for key, error in errors(pde, net, points, "triton").items():
        assert error <= max(least, 10 * eager[key]), key


def open_gates(net: nn.Module) -> nn.Module:
    """Blocks of a PirateNet start as the identity, which would hide most of them."""
    for name, p in net.named_parameters():
        if name.endswith("alpha"):
            nn.init.uniform_(p, 0.3, 0.7)
    return net


def pirate(inputs: int, outputs: int, **options) -> nn.Module:
    return open_gates(models.PirateNet(inputs, outputs, **options))


NETWORKS = {
    "modified": lambda d, m: models.ModifiedMLP(d, m, width=20, depth=2),
    "modified_factorised": lambda d, m: models.ModifiedMLP(d, m, width=33, depth=2, weight_factorisation=True),
    "modified_embedded": lambda d, m: models.ModifiedMLP(d, m, width=18, depth=2, fourier_features=10),
    "pirate": lambda d, m: pirate(d, m, width=20, depth=1),
    "residual": lambda d, m: models.MLP(d, m, width=20, depth=3, residual=True),
    "narrow": lambda d, m: models.MLP(d, m, width=7, depth=3, residual=True),
    "periodic": lambda d, m: models.ModifiedMLP(
        d, m, width=20, depth=1, bounds=[(-1.0, 2.0)] * d, periods={d - 1: 3.0}, activation="sin"
    ),
}


@pytest.mark.parametrize("name", NETWORKS)
def test_networks(name, where):
    pde = PDES["burgers"]
    check(pde, NETWORKS[name](2, 1), points_for(pde, 70, where))


@pytest.mark.parametrize(
    ("name", "network"),
    [("kdv", "pirate"), ("mixed", "modified")]
    + [
        pytest.param(name, network, marks=pytest.mark.gpu)
        for name in ("navier_stokes", "mixed", "biharmonic", "value")
        for network in ("modified", "pirate", "residual")
    ],
)
def test_equations(name, network, where):
    pde = PDES[name]
    # the gradient of alpha is a sum over all units of terms that cancel
    check(pde, NETWORKS[network](len(pde.coordinates), len(pde.fields)), points_for(pde, 40, where), least=1e-5)


@pytest.mark.parametrize(
    "activation", ["silu", *(pytest.param(a, marks=pytest.mark.gpu) for a in ("tanh", "gelu", "softplus", "sin"))]
)
def test_activations_to_fourth_order(activation, where):
    pde = PDES["biharmonic"]
    check(pde, models.ModifiedMLP(2, 1, width=12, depth=1, activation=activation), points_for(pde, 20, where), 1e-5)


@pytest.mark.parametrize("network", ["modified", pytest.param("pirate", marks=pytest.mark.gpu)])
def test_float64(network, where):
    pde = PDES["burgers"]
    net = NETWORKS[network](2, 1).double()
    assert max(errors(pde, net, points_for(pde, 40, where, torch.float64), "triton").values()) < 1e-13


@pytest.mark.parametrize("network", ["modified", pytest.param("pirate", marks=pytest.mark.gpu)])
def test_tf32_class(network, where):
    pde = PDES["navier_stokes"]
    found = errors(pde, NETWORKS[network](3, 3), points_for(pde, 128, where), "triton", precision="tf32")
    assert 1e-6 < found["loss"] < 1e-2  # 11 bits in the products, and really not more
    assert max(found.values()) < 5e-2


@pytest.mark.gpu
@pytest.mark.parametrize("width", [64, 128, 256])
@pytest.mark.parametrize("kind", ["modified_mlp", "piratenet"])
def test_wide(kind, width, where):
    pde = PDES["navier_stokes"]
    check(pde, open_gates(models.get(kind)(3, 3, width=width, depth=3)), points_for(pde, 1000, where), least=1e-5)


class Mixed(nn.Module):
    """Another activation at every layer, no bias, a product of layers, a long skip, powers, a column by itself."""

    def __init__(self, inputs: int = 2, outputs: int = 1, width: int = 17):
        super().__init__()
        self.a, self.b = nn.Linear(inputs, width, bias=False), nn.Linear(inputs, width)
        self.c, self.d = nn.Linear(width, width, bias=False), nn.Linear(width, width)
        self.e, self.last = nn.Linear(width + 1, width), nn.Linear(width, outputs, bias=False)
        self.scale, self.shift = nn.Parameter(torch.rand(width)), nn.Parameter(torch.rand(1, width))

    def forward(self, x):
        first = torch.tanh(self.a(x))
        h = torch.sin(self.b(x)) * first
        h = nn.functional.silu(self.c(h)) * self.scale + self.shift + first
        h = self.d(self.c(h)) / 3 - h  # two layers without an activation, weights used twice
        h = torch.cat([h, torch.exp(-(x[:, :1] ** 2))], 1)
        h = nn.functional.gelu(self.e(h))
        return self.last(h**2 - 0.5 * h)


def test_mixed(where):
    pde = PDES["kdv"]
    check(pde, Mixed(), points_for(pde, 50, where), least=1e-5)


def test_what_is_read_by_a_product_alone_is_stored_once():
    """The schedule of a modified MLP: gates once, one group a layer, no difference of the gates in memory."""
    net = models.ModifiedMLP(2, 1, width=32, depth=3)
    nodes = schedule(recognise(net, 2).program, None).nodes
    kinds = [type(node) for node in nodes]
    assert kinds == [Pointwise, Product, Pointwise, Product, Pointwise, Product, Pointwise]
    forms = [form for node in nodes if isinstance(node, Pointwise) for _, form in node.group.writes]
    assert forms == ["plain", "plain", "halves", "halves", "halves", "plain"]
    groups = [node.group for node in nodes if isinstance(node, Pointwise)]
    assert groups[1] == groups[2]  # one kernel for both layers


@pytest.mark.parametrize(
    ("network", "name", "n"),
    [("modified_embedded", "burgers", 70), ("modified", "burgers", 100), ("residual", "value", 70)]
    + [pytest.param("pirate", name, 100, marks=pytest.mark.gpu) for name in ("burgers", "value")],
)
def test_chunks_of_points_change_nothing_but_rounding(network, name, n, where, monkeypatch):
    """Of n points no number of equal chunks is a whole number of tiles: each point counts once all the same."""
    pde = PDES[name]
    monkeypatch.setattr("pinnfuse.kernels.jets.scheduled.SCRATCH_BYTES", 1)  # one tile at a time
    check(pde, NETWORKS[network](2, 1), points_for(pde, n, where), least=1e-5)


@pytest.mark.parametrize("n", [1, 65])
def test_ragged_tiles(n, where):
    check(PDES["value"], NETWORKS["modified"](2, 1), points_for(PDES["value"], n, where))


def test_same_bits_every_time(where):
    pde = PDES["burgers"]
    net = models.ModifiedMLP(2, 1, width=24, depth=2).to(where)
    points = points_for(pde, 150, where)
    runs = []
    for _ in range(2):
        net.zero_grad()
        pinnfuse.FusedResidualLoss(pde, backend="triton")(net, points).backward()
        runs.append([p.grad.clone() for p in net.parameters()])
    assert all(torch.equal(a, b) for a, b in zip(*runs, strict=True))


def test_frozen_and_tied_parameters(where):
    pde = PDES["burgers"]
    net = models.ModifiedMLP(2, 1, width=20, depth=3).to(where)
    net.gate_p.weight.requires_grad_(False)
    net.gate_q.requires_grad_(False)
    net.hidden[1].weight.requires_grad_(False)
    net.hidden[2].weight = net.hidden[1].weight
    net.hidden[2].bias = net.hidden[1].bias
    net.output.weight = nn.Parameter(torch.randn(20, 1, device=where).t())  # a view that is not contiguous
    points = points_for(pde, 30, where)
    truth = copy.deepcopy(net).double()
    pinnfuse.FusedResidualLoss(pde, backend="autograd").to(where).double()(truth, points.double()).backward()
    pinnfuse.FusedResidualLoss(pde, backend="triton").to(where)(net, points).backward()
    for (name, p), q in zip(net.named_parameters(), truth.parameters(), strict=True):
        assert (p.grad is None) == (q.grad is None), name
        if q.grad is not None:
            assert relative(p.grad, q.grad) < 3e-6, name


def test_nothing_but_the_last_layer_is_trained(where):
    pde = PDES["burgers"]
    net = pirate(2, 1, width=20, depth=1).requires_grad_(False)
    net.output.requires_grad_(True)
    check(pde, net, points_for(pde, 30, where))


def test_output_transform(where):
    pde = PDES["burgers"]
    net = OutputTransform(NETWORKS["modified"](2, 1), {"u": "-sin(pi*x) + t*(1 - x**2)*u"}, "u", "tx")
    check(pde, net, points_for(pde, 40, where))


def test_derivatives_by_name(where):
    net = models.ModifiedMLP(2, 2, width=20, depth=2).to(where)
    points, names = points_for(PDES["burgers"], 50, where), ["u", "v_x", "u_xxt", "v_xxxx"]
    kwargs = {"fields": "u v", "coordinates": "t x"}
    ours = pinnfuse.derivatives(net, points, names, backend="triton", **kwargs)
    truth = pinnfuse.derivatives(copy.deepcopy(net).double(), points.double(), names, backend="autograd", **kwargs)
    for name in names:
        assert relative(ours[name], truth[name]) < 3e-6, name


def test_explain_says_what_runs(where):
    net, pde = pirate(2, 1, width=32, depth=1).to(where), PDES["burgers"]
    report = str(pinnfuse.FusedResidualLoss(pde, backend="triton").explain(net, points_for(pde, 9, where)))
    assert "fused kernel" in report
    assert "5 products and 5 groups each way, then one kernel; by torch: 1 Concatenate)" in report


def many(dimension: int, more: str = "") -> PDE:
    x = [f"x{i}" for i in range(dimension)]
    return PDE("u", x, equations={"poisson": f"laplacian(u) + u*u_x0 + 0.5*u_x1 - sin(x0){more}"})


@pytest.mark.parametrize(
    ("network", "dimension"), [("modified", 26), ("mixed", 12), pytest.param("pirate", 12, marks=pytest.mark.gpu)]
)
def test_many_dimensions(network, dimension, where):
    """A loop over the tangents."""
    net = Mixed(dimension) if network == "mixed" else NETWORKS[network](dimension, 1)
    check(many(dimension), net, torch.rand(20, dimension, device=where), least=1e-5)


def test_many_dimensions_in_float64(where):
    net = models.ModifiedMLP(12, 1, width=20, depth=1, activation="silu", weight_factorisation=True).double()
    points = torch.rand(20, 12, device=where, dtype=torch.float64)
    assert max(errors(many(12), net, points, "triton").values()) < 1e-13


def test_too_many_channels(where):
    net = models.ModifiedMLP(30, 1, width=16, depth=1).to(where)
    loss_fn = pinnfuse.FusedResidualLoss(many(30, " + u*u_x0x1"), backend="triton")
    with pytest.raises(pinnfuse.BackendUnavailable, match="33 channels of order 2; at most 24"):
        loss_fn(net, torch.rand(4, 30, device=where))


def test_a_hundred_dimensions_find_their_kernels(where):
    """Nothing runs here: neither gates nor a plain stack are refused for their 102 channels."""
    pde = PDE("u", [f"x{i}" for i in range(100)], equations={"poisson": "laplacian(u) + sin(x0)"})
    loss_fn = pinnfuse.FusedResidualLoss(pde, backend="triton").to(where)
    for net in (models.ModifiedMLP(100, 1, width=16, depth=1), mlp(100, [16], 1, nn.Tanh)):
        assert loss_fn.explain(net.to(where), torch.rand(4, 100, device=where)).path == "fused kernel"


class Random(nn.Module):
    """Layers joined at random: each reads one or two earlier values of its width."""

    def __init__(self, inputs: int, width: int, joins: list[tuple[str, int, int, bool]]):
        super().__init__()
        self.first = nn.Linear(inputs, width)
        self.layers = nn.ModuleList(nn.Linear(width, width, bias=bias) for *_, bias in joins)
        self.alphas = nn.ParameterList(torch.rand(1) + 0.5 for _ in joins)
        self.joins, self.last = joins, nn.Linear(width, 1)

    def forward(self, x):
        values = [torch.tanh(self.first(x))]
        for (kind, i, j, _), layer, alpha in zip(self.joins, self.layers, self.alphas, strict=True):
            a, b = values[i % len(values)], values[j % len(values)]
            match kind:
                case "layer":
                    new = torch.sin(layer(a))
                case "residual":
                    new = a + alpha * torch.tanh(layer(b))
                case "gate":
                    new = torch.sigmoid(layer(a)) * (a - b) + b
                case _:
                    new = nn.functional.silu(layer(a * b)) - 0.3
            values.append(new)
        return self.last(values[-1])


@settings(max_examples=4, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_random_networks(data, where):
    join = st.tuples(
        st.sampled_from(["layer", "residual", "gate", "product"]), st.integers(0, 5), st.integers(0, 5), st.booleans()
    )
    net = Random(2, data.draw(st.integers(3, 40)), data.draw(st.lists(join, min_size=1, max_size=3)))
    pde = PDES[data.draw(st.sampled_from(["burgers", "value"]))]
    # a random network may cancel, in the loss or in any gradient alike
    points = points_for(pde, data.draw(st.integers(1, 100)), where)
    eager = errors(pde, net, points, "autograd")
    limit = max(1e-5, 10 * max(eager.values()))
    for key, error in errors(pde, net, points, "triton").items():
        assert error <= limit, (key, net.joins)


def test_a_plain_network_by_its_own_kernels_and_by_a_schedule(where):
    net, points, plan_ = (
        mlp(2, [20, 20], 1, nn.Tanh).to(where),
        points_for(PDES["burgers"], 40, where),
        plan(PDES["burgers"]),
    )
    found = recognise(net, 2)
    arguments = (found.program, found.operands(net), plan_.space, plan_.outputs, plan_.coefficients({}))
    one = TritonEngine(*arguments, plan_, "float32").outputs(points)
    two = ScheduledEngine(*arguments, plan_, "float32").outputs(points)
    assert relative(one, two) < 3e-6
