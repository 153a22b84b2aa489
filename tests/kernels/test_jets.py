"""The fused jet kernels against float64 nested autograd."""

import copy

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import nn

import pinnfuse
from pinnfuse import PDE, Parameter
from pinnfuse.errors import BackendUnavailable
from pinnfuse.models import ModifiedMLP

from .cases import PDES, errors, mlp, relative  # noqa: TID251 - this folder, not the library's

ACTIVATIONS = [nn.Tanh, nn.SiLU, nn.GELU, nn.Softplus, nn.Sigmoid]


def points_for(pde: PDE, n: int, where: torch.device, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return (torch.rand(n, len(pde.coordinates), dtype=torch.float64) * 2 - 0.5).to(where, dtype)


def allowed(pde: PDE, net: nn.Module, points: torch.Tensor) -> dict[str, float]:
    """3e-6, or ten times what float32 nested autograd loses where that is more: tensor cores round differently."""
    eager = errors(pde, net, points, "autograd")
    return {key: max(3e-6, 10 * e) for key, e in eager.items()}


@pytest.mark.parametrize("name", PDES)
def test_as_accurate_as_float32(name, where):
    pde = PDES[name]
    net = mlp(len(pde.coordinates), [20, 20], len(pde.fields), nn.Tanh)
    points = points_for(pde, 70, where)
    limit = allowed(pde, net, points)
    for key, error in errors(pde, net, points, "triton").items():
        assert error <= limit[key], key


def test_constants_may_be_zero(where):
    pde = PDE("u", "t x", parameters={"a": 0.0, "b": 0.0}, equations="u*u_x + a*u_t + b*u_xx")
    net, points = mlp(2, [12, 12], 1, nn.Tanh), points_for(pde, 33, where)
    limit = allowed(pde, net, points)
    for key, error in errors(pde, net, points, "triton").items():
        assert error <= limit[key], key


@pytest.mark.parametrize("activation", ACTIVATIONS, ids=lambda a: a.__name__)
def test_activations(activation, where):
    pde = PDES["biharmonic"]  # fourth order: the adjoint needs five derivatives of the activation
    net = mlp(2, [12, 17], 1, activation)
    points = points_for(pde, 33, where)
    limit = allowed(pde, net, points)
    for key, error in errors(pde, net, points, "triton").items():
        assert error <= limit[key], key


@pytest.mark.parametrize("name", ["navier_stokes", "kdv"])
def test_float64(name, where):
    pde = PDES[name]
    net = mlp(len(pde.coordinates), [20, 20], len(pde.fields), nn.Tanh).double()
    points = points_for(pde, 40, where, torch.float64)
    # a few hundred operations of relative error 1e-16 each
    assert max(errors(pde, net, points, "triton").values()) < 1e-13


def test_tf32_class(where):
    pde = PDES["navier_stokes"]
    net = mlp(3, [32, 32, 32], 3, nn.Tanh)
    points = points_for(pde, 128, where)
    found = errors(pde, net, points, "triton", precision="tf32")
    assert 1e-6 < found["loss"] < 1e-2  # 11 bits in the products, and really not more
    assert max(found.values()) < 2e-2


@pytest.mark.parametrize("widths", [[1], [7], [64], [65], [50, 64, 64], [5, 33, 5], [96, 96]], ids=str)
def test_widths_and_depths(widths, where):
    pde = PDES["burgers"]
    net = mlp(2, widths, 1, nn.Tanh)
    points = points_for(pde, 65, where)
    limit = allowed(pde, net, points)
    for key, error in errors(pde, net, points, "triton").items():
        assert error <= limit[key], key


@pytest.mark.parametrize("activation", ACTIVATIONS, ids=lambda a: a.__name__)
@pytest.mark.gpu
@pytest.mark.parametrize("width", [64, 128])
def test_widths_of_the_hopper_kernels(width, activation, where):
    pde = PDES["kdv"]
    net = mlp(2, [width, width, width], 1, activation)
    points = points_for(pde, 70, where)
    limit = allowed(pde, net, points)
    for key, error in errors(pde, net, points, "triton").items():
        assert error <= limit[key], key


@pytest.mark.parametrize("n", [1, 63, 64, 129])
def test_ragged_tiles(n, where):
    pde = PDES["value"]
    net = mlp(2, [16], 1, nn.Tanh)
    points = points_for(pde, n, where)
    limit = allowed(pde, net, points)
    for key, error in errors(pde, net, points, "triton").items():
        assert error <= limit[key], key


@pytest.mark.parametrize("width", [16, 64])
def test_chunks_of_points_change_nothing_but_rounding(width, where, monkeypatch):
    pde = PDES["kdv"]
    net = mlp(2, [width, width], 1, nn.Tanh)
    points = points_for(pde, 200, where)
    limit = allowed(pde, net, points)
    monkeypatch.setattr("pinnfuse.kernels.jets.buffers.SCRATCH_BYTES", 1)  # one tile at a time
    for key, error in errors(pde, net, points, "triton").items():
        assert error <= limit[key], key


@pytest.mark.parametrize("scale", [0.0, 1e-30, 1e4, 1e12])
def test_extreme_weights_give_no_nan(scale, where):
    pde = PDES["burgers"]
    net = mlp(2, [16, 16], 1, nn.Tanh).to(where)
    with torch.no_grad():
        for p in net.parameters():
            p.mul_(scale)
    points = points_for(pde, 40, where)
    for backend in ("autograd", "triton"):
        model = copy.deepcopy(net)
        pinnfuse.FusedResidualLoss(pde, backend=backend)(model, points).backward()
        finite = [bool(torch.isfinite(p.grad).all()) for p in model.parameters()]
        assert all(finite), backend


JUMPS = ["abs(u) - 0.857*u", "max(u, 0.3)*w + min(w, 0.1)*u_x", "heaviside(u - 0.1)*0.3*w + sign(u) - sign(x)*0.1*u"]


@pytest.mark.parametrize("text", [*JUMPS, "u**17", "w*u**18 + (2 + u)**-17"])
def test_float64_keeps_its_digits_in_any_function(text, where):
    """A number that has a name, or that stands in both branches of a choice, is float32 to Triton."""
    pde = PDE("u w", "t x", equations={"e": text})
    net = mlp(2, [7], 2, nn.Tanh).to(where)
    assert "take turns" not in pinnfuse.FusedResidualLoss(pde, "triton").explain(net, points_for(pde, 9, where)).reason
    for key, error in errors(pde, net, points_for(pde, 17, where, torch.float64), "triton").items():
        assert error < 1e-13, key


def test_nan_in_nan_out(where):
    pde = PDES["burgers"]
    net = mlp(2, [16], 1, nn.Tanh).to(where)
    points = points_for(pde, 40, where)
    points[3, 1] = float("nan")
    assert torch.isnan(pinnfuse.FusedResidualLoss(pde, backend="triton")(net, points))
    pde = PDE("u", "t x", equations={"e": "max(u, 0.3) + min(u, 0.2)"})
    assert torch.isnan(pinnfuse.FusedResidualLoss(pde, backend="triton")(net, points))


def test_same_bits_every_time(where):
    pde = PDES["navier_stokes"]
    net = mlp(3, [24, 24], 3, nn.Tanh).to(where)
    points = points_for(pde, 150, where)
    runs = []
    for _ in range(2):
        net.zero_grad()
        pinnfuse.FusedResidualLoss(pde, backend="triton")(net, points).backward()
        runs.append([p.grad.clone() for p in net.parameters()])
    assert all(torch.equal(a, b) for a, b in zip(*runs, strict=True))


def test_frozen_tied_and_strided_parameters(where):
    pde = PDES["burgers"]
    shared = nn.Linear(12, 12)
    net = nn.Sequential(nn.Linear(2, 12), nn.Tanh(), shared, nn.Tanh(), shared, nn.Tanh(), nn.Linear(12, 1)).to(where)
    net[0].weight.requires_grad_(False)
    net[6].weight = nn.Parameter(torch.randn(12, 1, device=where).t())
    points = points_for(pde, 30, where)
    wide = torch.cat([points, points], dim=1)[:, 1:3]  # strided view
    truth = copy.deepcopy(net).double()
    pinnfuse.FusedResidualLoss(pde, backend="autograd").to(where).double()(truth, wide.double()).backward()
    pinnfuse.FusedResidualLoss(pde, backend="triton").to(where)(net, wide).backward()
    assert net[0].weight.grad is None
    for p, q in zip(net.parameters(), truth.parameters(), strict=True):
        if q.grad is not None:
            assert relative(p.grad, q.grad) < 3e-6


@pytest.mark.parametrize("weights", [torch.arange(1.0, 7.0)[::2], torch.ones(()).expand(3)])
@pytest.mark.parametrize("kind", ["stack", "schedule"])
def test_equation_weights_with_any_strides(kind, weights, where):
    net = (mlp(3, [8], 3, nn.Tanh) if kind == "stack" else ModifiedMLP(3, 3, 8, 1)).to(where)
    points, losses = torch.rand(20, 3, device=where), []
    for backend in ("autograd", "triton"):
        loss_fn = pinnfuse.FusedResidualLoss(PDES["navier_stokes"], backend=backend)
        loss_fn.equation_weights = weights.to(where)
        net.zero_grad()
        loss = loss_fn(net, points)
        loss.backward()
        losses.append(torch.cat([loss.detach()[None], *(p.grad.flatten() for p in net.parameters())]))
    assert relative(*losses) < 1e-5


@pytest.mark.parametrize("kind", ["stack", "schedule"])
def test_trained_parameters_in_any_order(kind, where):
    trained = [Parameter("b", 0.7, trainable=True), Parameter("a", 0.3, trainable=True)]
    pde = PDE("u", "t x", parameters=trained, equations={"e": "u_t + a*u_x - b*u"})
    net = mlp(2, [8], 1, nn.Tanh) if kind == "stack" else ModifiedMLP(2, 1, 8, 1)
    for key, error in errors(pde, net, points_for(pde, 20, where, torch.float64), "triton").items():
        assert error < 1e-12, key


def test_derivatives_by_name(where):
    net = mlp(2, [16, 16], 2, nn.Tanh).to(where)
    points = points_for(PDES["burgers"], 50, where)
    names = ["u", "v_x", "u_xxt", "v_xxxx"]
    kwargs = {"fields": "u v", "coordinates": "t x"}
    ours = pinnfuse.derivatives(net, points, names, backend="triton", **kwargs)
    truth = pinnfuse.derivatives(copy.deepcopy(net).double(), points.double(), names, backend="autograd", **kwargs)
    for name in names:
        assert relative(ours[name], truth[name]) < 3e-6, name


class Scaled(nn.Module):
    """Inputs scaled and mixed before the stack: one affine map of the points."""

    def __init__(self):
        super().__init__()
        self.scale, self.low = nn.Parameter(torch.tensor([0.5, 2.0])), nn.Parameter(torch.tensor([0.1, -0.3]))
        self.stack = mlp(3, [17, 17], 1, nn.Tanh)

    def forward(self, points):
        x = (points - self.low) * self.scale * 1.5
        return self.stack(torch.cat([x, x[:, :1] - x[:, 1:]], dim=1))


def test_scaled_inputs_are_a_layer(where):
    pde, net = PDES["kdv"], Scaled()
    points = points_for(pde, 70, where)
    limit = allowed(pde, net, points)
    for key, error in errors(pde, net, points, "triton").items():
        assert error <= limit[key], key


class Embedded(nn.Module):
    """Periodic in x, scaled in t, random Fourier features: a head that is no single layer."""

    def __init__(self, width: int):
        super().__init__()
        self.frequencies = nn.Parameter(torch.randn(2, 6))
        self.stack = mlp(2 + 12 + 1, [width, width], 1, nn.Tanh)

    def forward(self, points):
        t, x = points[:, :1] * 0.5 - 1.0, points[:, 1:]
        waves = points @ self.frequencies
        features = [torch.cos(3 * x), torch.sin(3 * x), t, torch.cos(waves), torch.sin(waves)]
        return self.stack(torch.cat(features, dim=1))


@pytest.mark.parametrize("tiles", [None, 1])
def test_embeddings(tiles, where, monkeypatch):
    pde = PDES["kdv"]
    net = Embedded(17)
    points = points_for(pde, 130, where)
    limit = allowed(pde, net, points)
    if tiles:
        monkeypatch.setattr("pinnfuse.kernels.jets.buffers.SCRATCH_BYTES", 1)  # one tile at a time
    for key, error in errors(pde, net, points, "triton").items():
        assert error <= limit[key], key


def test_no_second_derivative(where):
    net = mlp(2, [8], 1, nn.Tanh).to(where)
    loss = pinnfuse.FusedResidualLoss(PDES["burgers"], backend="triton")(net, points_for(PDES["burgers"], 8, where))
    with pytest.raises(RuntimeError, match="create_graph"):
        torch.autograd.grad(loss, list(net.parameters()), create_graph=True)


def test_what_cannot_run_says_why(where):
    class Odd(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b = nn.Linear(2, 8), nn.Linear(8, 1)

        def forward(self, x):
            return self.b(torch.cumsum(torch.tanh(self.a(x)), 1))

    loss_fn = pinnfuse.FusedResidualLoss(PDES["burgers"], backend="triton")
    with pytest.raises(BackendUnavailable, match="cumsum"):
        loss_fn(Odd().to(where), torch.rand(4, 2, device=where))
    with pytest.raises(BackendUnavailable, match="no hidden layer"):
        loss_fn(nn.Linear(2, 1).to(where), torch.rand(4, 2, device=where))


JETS = ["u", "u_x", "u_y", "u_xx", "u_xy", "u_yy", "u_xxx", "u_xyy"]


@settings(max_examples=8, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_random_equations_and_networks(data, where):
    terms = data.draw(
        st.lists(st.tuples(st.sampled_from(JETS), st.sampled_from(JETS), st.floats(0.1, 2)), min_size=1, max_size=3)
    )
    linear = data.draw(st.lists(st.tuples(st.sampled_from(JETS), st.floats(-2, -0.1)), min_size=1, max_size=3))
    text = " + ".join([f"{c!r}*{a}*{b}" for a, b, c in terms] + [f"({c!r})*{a}" for a, c in linear])
    pde = PDE("u", "x y", equations={"random": text})
    widths = data.draw(st.lists(st.integers(1, 40), min_size=1, max_size=3))
    net = mlp(2, widths, 1, data.draw(st.sampled_from(ACTIVATIONS)))
    points = points_for(pde, data.draw(st.integers(1, 100)), where)
    # a random residual may cancel, in the loss or in any gradient alike; stored values keep 22 bits, float32 has 24
    limit = max(1e-5, *allowed(pde, net, points).values())
    for key, error in errors(pde, net, points, "triton").items():
        assert error <= limit, (key, text, widths)
