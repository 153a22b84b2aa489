"""Distance functions and transforms: exact on their faces, to the order they promise."""

import numpy as np
import pytest
import torch
from torch import nn

from pinnfuse import FusedResidualLoss, derivatives
from pinnfuse.datamodules import Points
from pinnfuse.domains import Box
from pinnfuse.models import MLP, InputTransform, OutputTransform, for_problem
from pinnfuse.models.problem_loss import ProblemLoss
from pinnfuse.pde import PDE
from pinnfuse.problems import Problem, initial, neumann
from pinnfuse.problems.hard import dirichlet_transform, distance, reflected
from pinnfuse.reference import ClosedForm

BOX = Box({"t": (0, 2), "x": (-1, 3)})


def transformed(order: int, faces) -> nn.Module:
    torch.manual_seed(0)
    expressions = dirichlet_transform("u", "sin(x) + t**2", BOX, faces, order)
    return OutputTransform(MLP(2, 1, width=6, depth=2), expressions, "u", "tx").double()


@pytest.mark.parametrize("faces", [{"t": "low"}, {"x": "both"}, {"t": "low", "x": "high"}])
def test_values_are_those_of_the_lift(faces):
    net = transformed(1, faces)
    for name, side in faces.items():
        p = BOX.face(name, side).sample(20, dtype=torch.float64)
        assert torch.allclose(net(p)[:, 0], torch.sin(p[:, 1]) + p[:, 0] ** 2, atol=1e-14)
    inside = torch.tensor([[1.0, 1.0]], dtype=torch.float64)
    assert (net(inside)[:, 0] - torch.sin(inside[:, 1]) - 1).abs() > 1e-3


def test_slopes_are_those_of_the_lift_for_order_two():
    net = transformed(2, {"t": "low", "x": "both"})
    start = BOX.face("t", "low").sample(10, dtype=torch.float64)
    rate = derivatives(net, start, ["u_t"], fields="u", coordinates="t x")["u_t"]
    assert rate.abs().max() < 1e-13
    wall = BOX.face("x", "both").sample(10, dtype=torch.float64)
    slope = derivatives(net, wall, ["u_x"], fields="u", coordinates="t x")["u_x"]
    assert torch.allclose(slope, torch.cos(wall[:, 1]), atol=1e-13)


def test_its_jets_run_in_closed_form():
    net = transformed(1, {"t": "low", "x": "both"})
    loss = FusedResidualLoss(PDE("u", "t x", equations={"heat": "u_t - u_xx"}), "torch")
    assert loss.explain(net, BOX.sample(5, dtype=torch.float64)).path == "closed form"


def test_a_reflected_network_has_no_flux_through_its_walls():
    torch.manual_seed(0)
    net = InputTransform(
        MLP(2, 1, width=6, depth=2, bounds=[(0, 2), (-1, 3)]), {"x": reflected(BOX, "x")}, "tx"
    ).double()
    wall, inside = BOX.face("x", "both").sample(10, dtype=torch.float64), BOX.sample(10, dtype=torch.float64)
    for points, flat in ((wall, True), (inside, False)):
        slope = derivatives(net, points, ["u_x"], fields="u", coordinates="t x")["u_x"]
        assert (slope.abs().max() < 1e-13) == flat
    with pytest.raises(ValueError, match="InputTransform: no coordinate 'y'"):
        InputTransform(net, {"y": "x"}, "tx")


def test_a_problem_with_insulated_walls_needs_no_condition_on_them():
    pde = PDE("u", "t x", {"k": 0.1}, {"heat": "u_t - k*u_xx"}, name="heat")
    box = Box({"t": (0, 1), "x": (0, 1)})
    problem = Problem(
        name="insulated",
        pde_name="heat",
        title="a rod with insulated ends",
        pde=pde,
        domain=box,
        conditions=(
            initial("start", pde, box.initial(), {"u": "cos(pi*x)"}),
            neumann("low", pde, box.face("x", "low"), {"u": 0}),
            neumann("high", pde, box.face("x", "high"), {"u": 0}),
        ),
        reference=ClosedForm(
            {"u": "cos(pi*x)*exp(-pi**2*k*t)"}, {"t": np.linspace(0, 1, 5), "x": np.linspace(0, 1, 9)}, {"k": 0.1}
        ),
        hard=dirichlet_transform("u", "cos(pi*x)", box, {"t": "low"}),
        hard_conditions=("start", "low", "high"),
        inputs={"x": reflected(box, "x")},
    )
    assert problem.soft_conditions() == () and len(problem.soft_conditions(hard=False)) == 3
    net = for_problem(problem, "mlp", width=8, depth=1).double()
    loss = ProblemLoss(problem, problem.conditions, None, "torch").double()
    batch = {c.name: Points(*c.sample(32, dtype=torch.float64)) for c in problem.conditions}
    batch["interior"] = Points(box.sample(32, dtype=torch.float64))
    terms = loss(net, batch)[1]
    assert max(terms[name].item() for name in ("start", "low", "high")) < 1e-25


def test_mistakes():
    with pytest.raises(ValueError, match="no coordinate 'y'"):
        distance(BOX, {"y": "low"})
    with pytest.raises(ValueError, match="unknown side 'left'"):
        distance(BOX, {"x": "left"})
    with pytest.raises(ValueError, match="at least one face and `order` 1 or 2"):
        distance(BOX, {"x": "low"}, 3)
