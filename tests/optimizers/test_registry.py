"""Optimisers by name: the table, defaults, checked options, groups."""

import subprocess
import sys

import pytest
import torch
from torch import nn

from pinnfuse.optimizers import Phase, QuasiNewton, available, build, default_lr, for_size, known_options
from tests.optimizers.objectives import closure_of, sine_network

NAMES = [name for name in available() if name != "gauss_newton"]  # which needs more than a closure


def test_table():
    assert set(available()) - {"gauss_newton"} == {"adam", "adamw", "soap", "lbfgs", "bfgs", "ssbfgs", "ssbroyden"}
    assert all(text and "\n" not in text for text in available().values())


def test_dense_methods_give_way_to_lbfgs_where_they_would_be_refused():
    phases = [Phase("adam", 10, clip=1.0), Phase("ssbroyden", 20), Phase("gauss_newton", 30)]
    assert for_size(phases, 20_000) == phases
    assert for_size(phases, 20_001) == [phases[0], Phase("lbfgs", 20), phases[2]]
    assert for_size(phases, 30_001) == [phases[0], Phase("lbfgs", 20), Phase("lbfgs", 30)]
    wider = [Phase("ssbroyden", 20, options={"max_parameters": 50_000})]
    assert for_size(wider, 50_000) == wider


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
@pytest.mark.parametrize("name", NAMES)
def test_every_optimiser_lowers_the_loss_with_its_defaults(name, dtype, device):
    net, _ = sine_network(dtype)
    net.to(device)
    x = torch.linspace(-1, 1, 64, dtype=dtype, device=device)[:, None]
    optimizer = build(name, net.parameters())
    assert optimizer.param_groups[0]["lr"] == default_lr(name)
    closure = closure_of(optimizer, lambda: (net(x) - torch.sin(6 * x)).square().mean())
    first = closure().item()
    for _ in range(200):
        optimizer.step(closure)
    # the frequency is one that first-order methods learn late
    assert closure().item() < first * (0.2 if isinstance(optimizer, QuasiNewton) else 0.75)


def test_lr_and_options_arrive():
    x = [nn.Parameter(torch.zeros(3))]
    assert build("adam", x, 0.5, betas=(0.8, 0.9)).param_groups[0] | {"params": 0} == {
        **build("adam", x).param_groups[0],
        "params": 0,
        "lr": 0.5,
        "betas": (0.8, 0.9),
    }
    assert build("lbfgs", x, history_size=7).param_groups[0]["history_size"] == 7
    assert build("ssbroyden", x, c2=0.5, max_parameters=3).param_groups[0]["c2"] == 0.5
    assert build("adam", x, foreach=True).param_groups[0]["fused"] is None


def test_mistakes_name_the_nearest():
    x = [nn.Parameter(torch.zeros(3))]
    with pytest.raises(ValueError, match="unknown optimiser 'ssbroiden'. Did you mean 'ssbroyden'"):
        build("ssbroiden", x)
    with pytest.raises(ValueError, match="'lbfgs' has no option 'history'. Did you mean 'history_size'"):
        build("lbfgs", x, history=3)
    with pytest.raises(ValueError, match="'adam' has no option 'beta'. Did you mean 'betas'"):
        build("adam", x, beta=(0.9, 0.99))
    with pytest.raises(ValueError, match="'soap' has no option 'kwargs'"):
        build("soap", x, kwargs=1)
    with pytest.raises(ValueError, match="`lr` of 'adam' must be positive and finite"):
        build("adam", x, 0.0)
    assert "c1" in known_options("ssbfgs") and "history_size" not in known_options("ssbfgs")


def test_quasi_newton_joins_groups_and_adam_keeps_them():
    a, b = nn.Parameter(torch.ones(2)), nn.Parameter(torch.ones(1))
    groups = [{"params": [a], "lr": 0.1}, {"params": [b]}]
    assert [g["lr"] for g in build("adam", groups, 0.2).param_groups] == [0.1, 0.2]
    joined = build("bfgs", groups)
    assert isinstance(joined, QuasiNewton)
    assert joined.param_groups[0]["params"] == [a, b]


def test_soap_is_imported_only_when_asked_for():
    code = "import sys, pinnfuse.optimizers; sys.exit('pytorch_optimizer' in sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)
