"""Conditions are residuals: each vanishes on a function that meets it, and only there."""

import pytest
import torch
from torch import nn

from pinnfuse.domains import Box
from pinnfuse.pde import PDE
from pinnfuse.problems import Problem, TrainingSpec, dirichlet, initial, neumann, observations, periodic, robin
from pinnfuse.problems.condition import named
from pinnfuse.reference import ClosedForm
from pinnfuse.residual import FusedResidualLoss

PDE_ = PDE("u v", "t x", {"k": 2.0}, {"heat": "u_t - k*u_xx", "other": "v_t - v_xx"})
BOX = Box({"t": (0, 1), "x": (-1, 3)})


class Exact(nn.Module):
    """u = sin(x) e^(-t), v = x^2 t"""

    def forward(self, p):
        t, x = p[:, :1], p[:, 1:]
        return torch.cat([torch.sin(x) * torch.exp(-t), x**2 * t], 1)


def residual(condition, n=32):
    points, data = condition.sample(n, torch.Generator().manual_seed(0), dtype=torch.float64)
    loss = FusedResidualLoss(condition.pde)
    if condition.shift is None:
        return loss.residuals(Exact(), points, data=data)
    return loss.residuals(Exact(), points + torch.tensor(condition.shift)) - loss.residuals(Exact(), points)


@pytest.mark.parametrize(
    "condition",
    [
        initial("start", PDE_, BOX.initial(), {"u": "sin(x)", "u_t": "-sin(x)", "v": 0}),
        dirichlet("wall", PDE_, BOX.face("x", "high"), {"u": "sin(3)*exp(-t)", "v": "9*t"}),
        dirichlet("by function", PDE_, BOX.face("x"), {"u": lambda p: torch.sin(p[:, 1]) * torch.exp(-p[:, 0])}),
        dirichlet("with parameter", PDE_, BOX.face("x", "low"), {"v": "k*t/2"}),
        neumann("flux out", PDE_, BOX.face("x", "high"), {"u": "cos(3)*exp(-t)", "v": "6*t"}),
        neumann("flux in", PDE_, BOX.face("x", "low"), {"u": "-cos(1)*exp(-t)", "v": "2*t"}),
        neumann("by function", PDE_, BOX.face("x", "low"), {"v": lambda p: 2 * p[:, 0]}),
        robin(
            "mixed", PDE_, BOX.face("x", "low"), {"v": (3.0, 0.5, "3*t + 0.5*2*t"), "u": (0.0, 1.0, "-cos(1)*exp(-t)")}
        ),
    ],
    ids=lambda c: f"{c.kind}:{c.name}",
)
def test_a_condition_vanishes_on_its_solution(condition):
    assert residual(condition).abs().max() < 1e-14


def test_a_condition_does_not_vanish_elsewhere():
    wrong = neumann("sign", PDE_, BOX.face("x", "low"), {"v": "-2*t"})
    assert residual(wrong).abs().max() > 1


def test_periodic_compares_two_faces():
    values = residual(periodic("p", PDE_, BOX, "x", fields=("v",)))
    points, _ = periodic("p", PDE_, BOX, "x").sample(32, torch.Generator().manual_seed(0), dtype=torch.float64)
    t = points[:, 0]
    assert (points[:, 1] == -1).all()
    assert torch.allclose(values, torch.stack([8 * t, 8 * t], 1))  # 9 - 1, and 2 (3 + 1)


def test_observations_keep_rows_together():
    points = BOX.sample(50, torch.Generator().manual_seed(4), dtype=torch.float64)
    u = Exact()(points)[:, 0]
    condition = observations("sensors", PDE_, points, {"u": u})
    assert residual(condition, 50).shape == (50, 1)
    for n in (50, 7, 500):
        assert residual(condition, n).abs().max() < 1e-15 and len(residual(condition, n)) == min(n, 50)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: dirichlet("a", PDE_, BOX.face("x"), {"w": 0}), "condition .a.: each name must be a field"),
        (lambda: dirichlet("a", PDE_, BOX.face("x"), {"u": "sin(y)"}), "'y'"),
        (lambda: neumann("a", PDE_, BOX.face("x"), {"u": 0}), "one face of a box"),
        (lambda: dirichlet("a", PDE_, Box({"x": (0, 1)}).face("x"), {"u": 0}), "must agree"),
        (lambda: dirichlet("a", PDE_, BOX.face("x"), {"u": 0}, weight=-1), "must be >= 0"),
        (lambda: observations("a", PDE_, torch.zeros(3, 2), {"u": torch.zeros(4)}), r"\[3\], one per point"),
        (lambda: observations("a", PDE_, torch.zeros(3, 2), {"u": torch.full((3,), float("nan"))}), "finite"),
        (lambda: named([], "lid"), "no condition 'lid'"),
        (lambda: TrainingSpec(sampler="halton"), "sampler"),
        (lambda: TrainingSpec(precision="float16"), "precision"),
        (lambda: TrainingSpec(interior=0), "interior"),
        (lambda: build(domain=Box({"x": (0, 1), "t": (0, 1)})), "same order"),
        (lambda: build(up_to_constant=("p",)), "`up_to_constant` names 'p'"),
        (lambda: build(hard_conditions=("wall",)), "`hard_conditions` names 'wall'"),
        (lambda: build(conditions=(dirichlet("heat", PDE_, BOX.face("x"), {"u": 0}),)), "must differ"),
    ],
)
def test_mistakes_are_named(call, words):
    with pytest.raises(ValueError, match=words):
        call()


def build(**changes):
    parts = {
        "name": "mine",
        "pde_name": "heat",
        "title": "my own",
        "pde": PDE_,
        "domain": BOX,
        "conditions": (dirichlet("walls", PDE_, BOX.face("x"), {"u": 0}),),
        "reference": ClosedForm({"u": "0*x", "v": "0*t"}, {"t": [0, 1], "x": [0, 1]}),
    }
    return Problem(**{**parts, **changes})


def test_a_problem_of_ones_own():
    problem = build(periodic={"x": 4.0})
    assert problem.metrics == {"u": ("u",), "v": ("v",)}
    assert [c.name for c in problem.soft_conditions()] == ["walls"]
    points, values, mask = problem.evaluation_points()
    assert points.shape == (4, 2) and values.shape == (4, 2) and mask.all()
