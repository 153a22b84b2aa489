"""Bad input gets a clear error before any work: what was expected, what came, what to do."""

import pytest
import torch
from torch import nn

from pinnfuse import PDE, BackendUnavailable, FusedResidualLoss, derivatives
from tests.jets.networks import stack


class Vector(nn.Module):
    """Drops the axis of the fields, as one-field networks often do."""

    def __init__(self):
        super().__init__()
        self.net = stack(2, 1)

    def forward(self, x):
        return self.net(x).squeeze(1)


PDE_UV = PDE("u v", "t x", equations={"a": "u_t - v_x", "b": "v_t - u_x"})
POINTS = torch.rand(9, 2)


def loss(net=None, points=POINTS, **kwargs):
    options = {k: kwargs.pop(k) for k in ("backend", "check_finite", "precision", "equation_weights") if k in kwargs}
    return FusedResidualLoss(PDE_UV, **{"backend": "torch", **options})(net or stack(2, 2), points, **kwargs)


class OneRow(nn.Module):
    def forward(self, x):
        return torch.softmax(x[:1], 1)


def forced_loss():
    return FusedResidualLoss(
        PDE("u", "t x", parameters={"k": 1.0}, data="f", equations={"e": "u_t - k*u_x - f"}), "torch"
    )


def forced(**kwargs):
    return forced_loss()(stack(2, 1), POINTS, **kwargs)


BAD = {
    "columns": (lambda: loss(points=torch.rand(9, 3)), r"\[N, 2\] with columns t, x; got \[9, 3\]"),
    "one axis": (lambda: loss(points=torch.rand(9)), r"torch.stack"),
    "empty": (lambda: loss(points=torch.rand(0, 2)), "at least one row"),
    "integers": (lambda: loss(points=torch.ones(9, 2, dtype=torch.int64)), r"points.float\(\)"),
    "half": (lambda: loss(points=torch.rand(9, 2).half()), "float32 or float64"),
    "dtypes": (lambda: loss(points=torch.rand(9, 2).double()), "one dtype; got torch.float64 and torch.float32"),
    "half network": (lambda: loss(net=stack(2, 2).bfloat16()), "torch.float32 and torch.bfloat16. Convert the latter"),
    "sparse": (lambda: loss(points=POINTS.to_sparse()), r"points.to_dense\(\)"),
    "devices": (lambda: loss(net=stack(2, 2).to("meta")), "one device; got cpu and meta"),
    "numpy": (lambda: loss(points=POINTS.numpy()), "torch.as_tensor"),
    "width": (lambda: loss(net=stack(2, 3)), r"\[N, 2\], one column per field \(u, v\); got 3 columns"),
    "nan": (lambda: loss(points=POINTS.clone().fill_(float("nan")), check_finite=True), "9 of 9 rows"),
    "weights": (lambda: loss(point_weights=torch.ones(9, 3)), r"\[9\] or \[N, equations\] = \[9, 2\]; got \[9, 3\]"),
    "negative": (lambda: loss(point_weights=-torch.ones(9)), ">= 0"),
    "weights dtype": (lambda: loss(point_weights=torch.ones(9).double()), "point_weights must have one dtype"),
    "equation weights": (lambda: loss(equation_weights=[1.0]), "2 finite numbers >= 0"),
    "equation names": (lambda: loss(equation_weights={"c": 1.0}), r"\['c'\], but the equations are \['a', 'b'\]"),
    "backend": (lambda: loss(backend="tritom"), "Did you mean 'triton'"),
    "vector": (lambda: loss(net=Vector()), r"its output is \[N\]|return \[N, 2\]"),
    "precision": (lambda: loss(precision="fp8"), "'tf32'"),
    "data": (lambda: loss(data={"f": torch.ones(9)}), r"unknown \['f'\]"),
    "data type": (lambda: loss(data=torch.ones(9, 2)), "mapping from column name to tensor"),
    "data list": (lambda: forced(data={"f": [1.0] * 9}), "must be a tensor; got list"),
    "data gradient": (lambda: forced(data={"f": torch.ones(9, requires_grad=True)}), r"Use .detach\(\)"),
    "weights list": (lambda: loss(point_weights=[1.0] * 9), "must be a tensor; got list"),
    "equation weights text": (lambda: loss(equation_weights="ab"), "2 finite numbers >= 0"),
    "trained equation weights": (
        lambda: loss(equation_weights=torch.ones(2, requires_grad=True)),
        "without gradient.* loss_fn.equation_weights = weights",
    ),
    "backend type": (lambda: loss(backend=None), "unknown `backend`; got None"),
    "lazy": (lambda: loss(net=nn.Sequential(nn.LazyLinear(2))), r"Call net\(points\) once"),
    "tuple": (lambda: loss(net=nn.LSTM(2, 2)), "got tuple"),
    "rows": (lambda: loss(net=OneRow()), r"for N = 9 points; got \[1, 2\]"),
    "parameter": (lambda: forced_loss().set_parameter("k", float("nan")), "finite number; got nan"),
    "parameter text": (lambda: forced_loss().set_parameter("k", "fast"), "finite number; got 'fast'"),
    "net": (lambda: loss(net=lambda x: x), "torch.nn.Module; got function. Wrap"),
    "names": (
        lambda: derivatives(stack(2, 2), POINTS, ["u_z"], fields="u v", coordinates="t x"),
        "derivatives: each of `names` must be .* got 'u_z'",
    ),
    "capital": (
        lambda: derivatives(stack(2, 2), POINTS, ["U_t"], fields="u, v", coordinates="t, x"),
        "Did you mean 'u_t'",
    ),
    "weight nan": (
        lambda: loss(point_weights=torch.full((9,), float("nan")), check_finite=True),
        "`point_weights` must be finite",
    ),
    "inputs": (lambda: loss(net=stack(3, 2)), r"`net` must run on points \[N, 2\]"),
    "inputs of autograd": (lambda: loss(net=stack(3, 2), backend="autograd"), r"`net` must run on points \[N, 2\]"),
    "inputs of derivatives": (
        lambda: derivatives(stack(3, 2), POINTS, ["u_t"], fields="u v", coordinates="t x"),
        r"`net` must run on points \[N, 2\]",
    ),
    "fields of derivatives": (
        lambda: derivatives(stack(2, 2), POINTS, ["u_t"], fields=None, coordinates="t x"),
        "derivatives: `fields` must be names like .* got None",
    ),
    "coordinates of derivatives": (
        lambda: derivatives(stack(2, 2), POINTS, ["u_t"], fields="u v", coordinates=""),
        "derivatives: `coordinates` must be names",
    ),
    "precision of derivatives": (
        lambda: derivatives(stack(2, 2), POINTS, ["u_t"], fields="u v", coordinates="t x", precision="fp8"),
        "derivatives: `precision` must be",
    ),
    "names type": (lambda: derivatives(stack(2, 2), POINTS, "u_x", fields="u v", coordinates="t x"), "must be a list"),
}


@pytest.mark.parametrize("name", BAD)
def test_message(name):
    call, message = BAD[name]
    with pytest.raises(ValueError, match=message):
        call()


@pytest.mark.parametrize("backend", ["torch", "autograd"])
def test_width_of_networks_without_closed_form(backend):
    class Odd(nn.Module):
        def __init__(self):
            super().__init__()
            self.net = stack(2, 3)

        def forward(self, x):
            return torch.cumsum(self.net(x), dim=1)

    with pytest.raises(ValueError, match="got 3 columns"):
        loss(net=Odd(), backend=backend)


@pytest.mark.parametrize("backend", ["auto", "autograd"])
def test_a_constant_network_has_a_loss_and_no_gradient(backend):
    class Constant(nn.Module):
        def __init__(self):
            super().__init__()
            self.net = stack(2, 2)

        def forward(self, x):
            return torch.ones(len(x), 2)

    net = Constant()
    got = FusedResidualLoss(PDE("u v", "t x", equations={"a": "u_t + u", "b": "v_x - 2"}), backend=backend)(net, POINTS)
    assert got.item() == pytest.approx(5.0)


def test_names_may_be_separated_by_commas():
    found = derivatives(stack(2, 2), POINTS, ["u_t", "v"], fields="u,v", coordinates="t, x")
    assert list(found) == ["u_t", "v"]


def test_an_explicit_backend_does_not_fall_back():
    with pytest.raises(BackendUnavailable, match="'triton' was asked for but cannot run"):
        loss(backend="triton")


def test_what_has_no_closed_form_says_what_has_one():
    net = nn.Sequential(nn.Linear(2, 5), nn.Mish(), nn.Linear(5, 2))
    loss_fn = FusedResidualLoss(PDE_UV)
    with pytest.warns(UserWarning, match=r"slower than closed form: module 1 \(Mish\) has no .* the known layers"):
        loss_fn(net, POINTS)
    told = str(loss_fn.explain(net, POINTS))
    assert "no closed form: module 1 (Mish)" in told and "known      Linear, GELU, SiLU" in told
    assert "known  " not in str(loss_fn.explain(stack(2, 2), POINTS))


@pytest.mark.filterwarnings("ignore:pinnfuse runs this network")
def test_batch_norm_in_training_is_told_to_evaluate():
    net = nn.Sequential(nn.Linear(2, 5), nn.BatchNorm1d(5), nn.Tanh(), nn.Linear(5, 2))
    with pytest.raises(BackendUnavailable, match=r"net.eval\(\) may help"):
        loss(net=net)
    loss(net=net.eval())


def test_a_layer_of_another_width_is_named():
    with pytest.raises(BackendUnavailable, match="module 0 expects 3 columns and gets 2"):
        loss(net=nn.Sequential(nn.Linear(3, 5), nn.Tanh(), nn.Linear(5, 2)), backend="triton")


def test_a_distributed_wrapper_is_refused():
    with pytest.raises(ValueError, match="wrapped module's forward"):
        loss(net=nn.DataParallel(stack(2, 2)))
