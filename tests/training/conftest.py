import json
import sys
import types
from typing import Literal

import numpy as np
import pytest

from pinnfuse.domains import Box
from pinnfuse.optimizers import Phase
from pinnfuse.pde import PDE
from pinnfuse.problems import ModelSpec, Problem, TrainingSpec, dirichlet, initial, registry
from pinnfuse.reference import ClosedForm
from pinnfuse.training import cli
from pinnfuse.training.run import Run


def rod(k: float = 0.1, held: Literal["none", "all"] = "none") -> Problem:
    """A cooling rod: a problem with an exact solution, for runs of a few seconds.

    Args:
        k: conductivity.
        held: "all" has an output transform, which knows k, for start and walls.
    """
    pde = PDE("u", "t x", {"k": k}, {"heat": "u_t - k*u_xx"}, name="heat")
    box = Box({"t": (0, 1), "x": (0, 1)})
    return Problem(
        name="rod",
        pde_name="toy",
        title="cooling rod",
        pde=pde,
        domain=box,
        conditions=(
            initial("initial", pde, box.initial(), {"u": "sin(pi*x)"}),
            dirichlet("walls", pde, box.boundary(), {"u": 0}),
        ),
        reference=ClosedForm(
            {"u": "exp(-k*pi**2*t)*sin(pi*x)"}, {"t": np.linspace(0, 1, 11), "x": np.linspace(0, 1, 21)}, {"k": k}
        ),
        hard={"u": "exp(-9*k*t)*sin(pi*x) + t*x*(1 - x)*u"} if held == "all" else None,
        hard_conditions=("initial", "walls") if held == "all" else (),
        model=ModelSpec("mlp", {"width": 12, "depth": 2}),
        training=TrainingSpec(
            interior=64,
            boundary=16,
            phases=[Phase(optimizer="adam", steps=30, lr=5e-3), Phase(optimizer="ssbroyden", steps=20)],
        ),
    )


@pytest.fixture(autouse=True)
def registered(monkeypatch) -> None:
    """`--pde toy` is the rod."""
    module = types.ModuleType("pinnfuse.problems.rod")
    module.rod = rod
    monkeypatch.setitem(sys.modules, "pinnfuse.problems.rod", module)
    monkeypatch.setitem(registry._PROBLEMS, "toy", ("rod",))


@pytest.fixture
def heat() -> Problem:
    return rod()


@pytest.fixture
def start(tmp_path):
    """start("name", "--option", "value", ...) sets up a run of the rod that writes to a folder of that name."""

    def make(name: str = "run", *arguments: str) -> Run:
        defaults = ["--pde", "toy", "--backend", "torch", "--logger", "csv", "--record.log_every", "5"]
        quiet = ["--record.figures", "false", "--record.speedup_steps", "0", "--accelerator", "cpu"]
        return Run(cli.parse([*defaults, *quiet, "--out", str(tmp_path / name), *arguments]))

    return make


@pytest.fixture
def phases():
    """phases(adam=3, ssbroyden=2) as the value of --training.phases."""
    return lambda **steps: json.dumps([{"optimizer": name, "steps": n} for name, n in steps.items()])
