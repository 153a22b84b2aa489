"""Residual Jacobians against autograd of the residuals, row by row."""

import dataclasses

import pytest
import torch
from torch import nn

from pinnfuse import PDE, FusedResidualLoss, Parameter, problems
from pinnfuse.datamodules import CollocationDataModule
from pinnfuse.errors import BackendUnavailable
from pinnfuse.models import MLP, ModifiedMLP, OutputTransform, PirateNet, for_problem
from pinnfuse.models.problem_loss import ProblemLoss

SYSTEM = PDE(
    "u p",
    "t x",
    parameters=[Parameter("nu", 0.3, trainable=True), Parameter("c", 2.0)],
    equations={"first": "u_t + u*u_x - nu*u_xx + p_x - f", "second": "p_xx + c*u_x"},
    data=("f",),
)
BOUNDS = [(0.0, 1.0), (-1.0, 1.0)]


def networks():
    yield "mlp", MLP(2, 2, width=5, depth=2, bounds=BOUNDS)
    yield "factorised", MLP(2, 2, width=4, depth=2, weight_factorisation=True, residual=True)
    yield "gated", ModifiedMLP(2, 2, width=4, depth=2, fourier_features=4)
    yield "pirate", PirateNet(2, 2, width=4, depth=1, bounds=BOUNDS, periods={1: 2.0})
    yield "hard", OutputTransform(MLP(2, 2, width=4, depth=1), {"u": "sin(x) + t*u"}, "up", "tx")


@pytest.mark.parametrize(("name", "net"), list(networks()), ids=lambda v: v if isinstance(v, str) else "")
def test_rows_are_the_gradients_of_the_residuals(name, net):
    torch.manual_seed(0)
    net = net.double()
    loss_fn = FusedResidualLoss(SYSTEM, backend="torch", equation_weights={"second": 0.5}).double()
    points, weights = torch.rand(7, 2, dtype=torch.float64), torch.rand(7, 2, dtype=torch.float64)
    data = {"f": torch.rand(7, dtype=torch.float64)}
    params = [*net.parameters(), *loss_fn.parameters(), nn.Parameter(torch.zeros(3, dtype=torch.float64))]
    chunks = list(loss_fn.linearise(net, points, params, weights, data))
    r, jacobian = (torch.cat(parts) for parts in zip(*chunks, strict=True))
    scaled = loss_fn.residuals(net, points, data) * (weights * torch.tensor([1.0, 0.5]) / 7).sqrt()
    scaled = scaled.reshape(-1)
    assert torch.allclose(r, scaled, rtol=1e-12)
    for row, value in zip(jacobian, scaled, strict=True):
        truth = torch.autograd.grad(value, params, retain_graph=True, materialize_grads=True, allow_unused=True)
        assert torch.allclose(row, torch.cat([g.flatten() for g in truth]), rtol=1e-9, atol=1e-11)
    loss = loss_fn(net, points, weights, data)
    assert r.square().sum().item() == pytest.approx(loss.item(), rel=1e-12)
    alone, means = loss_fn.weighted_residuals(net, points, weights, data)
    assert torch.allclose(alone, r, rtol=1e-12) and not alone.requires_grad
    assert sum(w * m for w, m in zip((1.0, 0.5), means.values(), strict=True)) == pytest.approx(loss.item(), rel=1e-12)


def test_residuals_of_a_problem_are_those_of_its_jacobian():
    problem = problems.get("navier_stokes")  # weights of points, of conditions
    net = for_problem(problem, width=6, depth=1).double()
    loss = ProblemLoss(problem, weights={"lid": 3.0, "continuity": 2.0}, backend="torch").double()
    spec = dataclasses.replace(problem.training, interior=20, boundary=10)
    batch = CollocationDataModule(problem, spec).draw(0)
    r, terms = loss.residuals(net, batch)
    total, separate = loss(net, batch)
    assert torch.allclose(r, torch.cat([part for part, _ in loss.linearise(net, batch, list(net.parameters()))]))
    assert r.square().sum().item() == pytest.approx(total.item(), rel=1e-12)
    assert {k: v.item() for k, v in terms.items()} == pytest.approx({k: v.item() for k, v in separate.items()})


@pytest.mark.parametrize("weight", [-1.0, float("nan")])
def test_weights_of_terms_are_not_negative(weight):
    for name in ("lid", "continuity"):
        with pytest.raises(ValueError, match=r"loss_weights: the weight of .* must be finite and >= 0"):
            ProblemLoss(problems.get("navier_stokes"), weights={name: weight})


def test_a_network_without_closed_form_is_refused():
    class Odd(nn.Module):
        def forward(self, x):
            return torch.erfinv(x.tanh()).sum(1, keepdim=True).expand(-1, 2)

    with pytest.raises(BackendUnavailable, match=r"FusedResidualLoss.linearise needs a network in closed form"):
        list(FusedResidualLoss(SYSTEM).linearise(Odd(), torch.rand(3, 2), [], data={"f": torch.rand(3)}))
