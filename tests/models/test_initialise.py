"""The output layer against a direct least-squares solution, and inside a run."""

import dataclasses

import torch

from pinnfuse import problems
from pinnfuse.datamodules import CollocationDataModule
from pinnfuse.models import OutputTransform, PirateNet, for_problem
from pinnfuse.models.initialise import fit_output_layer, output_parameters
from pinnfuse.models.problem_loss import ProblemLoss
from pinnfuse.optimizers import Phase
from pinnfuse.problems import TrainingSpec


def test_a_linear_problem_is_fitted_as_by_lstsq():
    torch.manual_seed(0)
    problem = problems.get("heat")
    spec = TrainingSpec(interior=200, boundary=50, hard=False)
    net = for_problem(problem, "mlp", False, width=12, depth=2).double()
    loss = ProblemLoss(problem, problem.soft_conditions(False), None, "torch").double()
    batch = CollocationDataModule(problem, spec).draw(0)
    params = output_parameters(net)
    assert [tuple(p.shape) for p in params] == [(1, 12), (1,)]
    rows = list(loss.linearise(net, batch, params))
    r, jacobian = torch.cat([r for r, _ in rows]), torch.cat([j for _, j in rows])
    best = torch.linalg.lstsq(jacobian, -r[:, None], driver="gelsd").solution[:, 0]
    least = (r + jacobian @ best).square().sum()
    hidden = net.hidden[0].weight.clone()
    fit_output_layer(net, loss, batch)
    assert torch.allclose(loss(net, batch)[0], least, rtol=1e-4)
    assert torch.equal(net.hidden[0].weight, hidden)


def test_the_layer_is_found_inside_a_transform():
    net = OutputTransform(PirateNet(2, 1, width=4, depth=1), {"u": "t*u"}, "u", "tx")
    assert {id(p) for p in output_parameters(net)} == {id(p) for p in net.net.output.parameters()}


def test_training_starts_from_it():
    from tests.models.test_stepping import SPEC, fitted

    once = dataclasses.replace(SPEC, phases=[Phase("adam", 1, 1e-9)])
    plain, _ = fitted(once)
    fit, _ = fitted(dataclasses.replace(once, initialise=True))
    assert fit.last_loss < 0.7 * plain.last_loss  # eight features cannot do more
    assert fit.first_loss == plain.first_loss  # by which divergence is measured
