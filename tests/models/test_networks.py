import copy
import pickle

import pytest
import torch
from torch import fx

from pinnfuse import FusedResidualLoss, derivatives, models
from pinnfuse.models import MLP, InputMap, OutputTransform
from pinnfuse.models.layers import FourierFeatures
from pinnfuse.pde import PDE

BOUNDS = [(0.0, 2.0), (-1.0, 3.0)]
VARIANTS = [("mlp", {"activation": a, "bounds": BOUNDS}) for a in models.ACTIVATIONS] + [
    ("mlp", {}),
    ("mlp", {"residual": True, "weight_factorisation": True}),
    ("mlp", {"fourier_features": 8, "bounds": BOUNDS}),
    ("mlp", {"bounds": BOUNDS, "periods": {1: 4.0}, "harmonics": 2}),
    ("modified_mlp", {"bounds": BOUNDS}),
    ("modified_mlp", {"bounds": BOUNDS, "periods": {1: 4.0}, "weight_factorisation": True}),
    ("piratenet", {"bounds": BOUNDS}),
    ("siren", {"bounds": BOUNDS, "periods": {1: 4.0}, "first_frequency": 3.0}),
]


def build(name, options, depth=3):
    return models.build(name, in_features=2, out_features=2, width=8, depth=depth, **options).double()


@pytest.mark.parametrize(("name", "options"), VARIANTS)
def test_closed_form_recognises_every_network(name, options):
    net = build(name, options)
    for p in net.parameters():  # PirateNet starts with alpha = 0, biases with 0
        p.data += 0.1 * torch.randn_like(p)
    x = torch.rand(17, 2, dtype=torch.float64)
    pde = PDE("u v", "t x", equations={"a": "u_t + u*u_x - 0.1*u_xx + v", "b": "v_t - u_x*v_x"})
    assert FusedResidualLoss(pde, "torch").explain(net, x).path == "closed form"
    losses = {}
    for backend in ("torch", "autograd"):
        net.zero_grad()
        loss = FusedResidualLoss(pde, backend)(net, x)
        loss.backward()
        losses[backend] = [loss.detach(), *(p.grad.clone() for p in net.parameters())]
    torch.testing.assert_close(losses["torch"], losses["autograd"], rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize(("name", "options"), VARIANTS)
def test_traces_copies_and_pickles(name, options):
    net = build(name, options)
    x = torch.rand(5, 2, dtype=torch.float64)
    for other in (fx.symbolic_trace(net), copy.deepcopy(net), pickle.loads(pickle.dumps(net))):
        assert torch.equal(other(x), net(x))


def test_input_map_scales_bounded_columns_to_the_unit_interval():
    x = torch.tensor([[0.0, -1.0], [2.0, 3.0], [1.0, 1.0]])
    assert torch.equal(InputMap(BOUNDS)(x), torch.tensor([[-1.0, -1.0], [1.0, 1.0], [0.0, 0.0]]))


def test_periodic_network_repeats_with_its_derivatives():
    net = build("mlp", {"bounds": BOUNDS, "periods": {1: 4.0}, "harmonics": 3})
    x = torch.rand(9, 2, dtype=torch.float64)
    names = ["u", "u_x", "u_xxx", "v_tx"]
    here, there = (
        derivatives(net, p, names, fields="u v", coordinates="t x", backend="torch")
        for p in (x, x + torch.tensor([0.0, 4.0]))
    )
    for name in names:
        torch.testing.assert_close(there[name], here[name], rtol=1e-10, atol=1e-10)


def test_same_seed_same_weights_and_glorot_scale():
    def draw():
        torch.manual_seed(3)
        return MLP(2, 1, width=200, depth=2)

    a, b = draw(), draw()
    assert all(torch.equal(p, q) for p, q in zip(a.parameters(), b.parameters(), strict=True))
    assert a.hidden[1].weight.std().item() == pytest.approx((2 / 400) ** 0.5, rel=0.02)  # 4e4 draws: 3 sigma is 1 %
    assert not a.hidden[1].bias.any()


def test_factorised_layer_starts_as_glorot():
    torch.manual_seed(0)
    layer = models.FactorisedLinear(200, 200)
    weight = layer(torch.eye(200)).T
    assert weight.std().item() == pytest.approx((2 / 400) ** 0.5, rel=0.02)


def test_piratenet_starts_linear_in_its_embedding():
    net = build("piratenet", {"bounds": BOUNDS})
    x = torch.rand(6, 2, dtype=torch.float64)
    assert torch.equal(net(x), net.output(net.embedding(x)))


def test_output_transform_meets_the_condition_exactly():
    net = OutputTransform(build("mlp", {}), {"u": "sin(pi*x) + t*(1 - x**2)*u"}, ("u", "v"), ("t", "x"))
    t0 = torch.rand(8, 2, dtype=torch.float64) * torch.tensor([0.0, 1.0])
    walls = torch.rand(8, 2, dtype=torch.float64)
    walls[:, 1] = 1.0
    assert torch.equal(net(t0)[:, 0], torch.sin(torch.pi * t0[:, 1]))
    assert net(walls)[:, 0].abs().max() < 1e-15  # sin(pi) in float64
    assert torch.equal(net(walls)[:, 1], net.net(walls)[:, 1])  # v passes
    assert copy.deepcopy(net)(t0).shape == (8, 2)
    pde = PDE("u v", "t x", equations={"a": "u_t - u_xx + v"})
    assert FusedResidualLoss(pde, "torch").explain(net, t0).path == "closed form"


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: models.build("mpl"), "unknown model 'mpl'. Did you mean 'mlp'"),
        (
            lambda: models.build("mlp", in_features=1, out_features=1, widht=3),
            "no option 'widht'. Did you mean 'width'",
        ),
        (lambda: MLP(2, 1, activation="tan"), "unknown 'tan'. Did you mean 'tanh'"),
        (lambda: MLP(2, 1, width=0), "`width` must be a positive integer; got 0"),
        (lambda: MLP(2, 1, bounds=[(0, 1)]), "one interval per input, 2; got 1"),
        (lambda: MLP(2, 1, periods={0: 1.0}), "`periods` needs `bounds`"),
        (lambda: MLP(1, 1, bounds=[(1, 0)]), "low < high"),
        (lambda: MLP(1, 1, bounds=[(0, 1)], periods={3: 1.0}), "columns 0..0"),
        (lambda: MLP(2, 1, fourier_features=3), "must be even"),
        (lambda: OutputTransform(MLP(1, 1), {"w": "w"}, ("u",), ("x",)), "no field 'w'"),
        (lambda: OutputTransform(MLP(1, 1), {"u": "x"}, ("u",), ("x",)), "does not contain the network's output"),
    ],
)
def test_mistakes_are_named(call, message):
    with pytest.raises(ValueError) as caught:
        call()
    assert message in str(caught.value)


def test_fourier_frequencies_by_column():
    torch.manual_seed(0)
    frequencies = FourierFeatures(2, 4000, [30.0, 0.5]).frequencies
    assert frequencies.std(dim=1).tolist() == pytest.approx([30.0, 0.5], rel=0.05)
    with pytest.raises(ValueError, match=r"one for each of 2 inputs .* got \[1.0\]"):
        FourierFeatures(2, 8, [1.0])


def test_siren_layers_have_the_variance_they_are_made_for():
    torch.manual_seed(0)
    net = models.Siren(2, 1, width=512, depth=4, first_frequency=30.0).double()
    a = net.embedding(2 * torch.rand(2000, 2, dtype=torch.float64) - 1)
    for k, (layer, frequency) in enumerate(zip(net.hidden, net.frequencies, strict=True)):
        z = frequency * layer(a)
        if k:  # 2 E[sin^2]: 1 for the arcsine law of fast sines, 1 - exp(-2 v) for normal z of variance v
            assert 0.7 < z.var().item() < 1.15
        a = torch.sin(z)
    with pytest.raises(ValueError, match="`frequency` must be positive; got 0"):
        models.Siren(2, 1, frequency=0)
