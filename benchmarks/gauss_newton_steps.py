"""Loss and error after Gauss-Newton steps, with and without following the curvature: gauss_newton_steps.py OUT [steps]

Small networks, few points, float64, one core: what counts here is steps and trials, not seconds. Both start from the
same 200 steps of Adam and see the same points, drawn anew every ten steps. Writes `<out>/gauss_newton_steps.json`.
"""

from __future__ import annotations

import dataclasses
import json
import sys
from pathlib import Path
from typing import Any

import torch

from pinnfuse import problems
from pinnfuse.bench import machine
from pinnfuse.datamodules import CollocationDataModule
from pinnfuse.models import for_problem
from pinnfuse.models.problem_loss import ProblemLoss
from pinnfuse.optimizers import GaussNewton
from pinnfuse.training.marching import errors

CASES: dict[str, tuple[dict[str, Any], int]] = {
    "burgers": ({"width": 20, "depth": 4}, 2500),
    "allen_cahn": ({"width": 20, "depth": 4}, 3500),
}
WAYS: dict[str, tuple[bool, float]] = {"curvature": (True, 0.6), "straight": (False, 0.2)}
"""{name: (follow the curvature, `lower` of the damping)}, each with the better one of 0.2 and 0.6."""


def run(case: str, curvature: bool, lower: float, steps: int) -> list[dict[str, Any]]:
    """A row for every tenth step."""
    network, count = CASES[case]
    problem = problems.get(case)
    torch.manual_seed(0)
    net = for_problem(problem, "mlp", **network).double()
    loss = ProblemLoss(problem, problem.soft_conditions(), backend="torch").double()
    data = CollocationDataModule(problem, dataclasses.replace(problem.training, interior=count))
    params, batch, trials = list(net.parameters()), data.draw(0), 0
    adam = torch.optim.Adam(params, 3e-3)
    for _ in range(200):
        adam.zero_grad()
        loss(net, batch)[0].backward()
        adam.step()
    optimizer, rows = GaussNewton(params, lower=lower), []

    def value() -> torch.Tensor:
        nonlocal trials
        trials += 1
        with torch.no_grad():
            return loss(net, batch)[0]

    def residuals() -> torch.Tensor:
        nonlocal trials
        trials += 1  # twice a trial, see below
        return loss.residuals(net, batch)[0]

    for step in range(1, steps + 1):
        if step % 10 == 0:
            batch = data.draw(step)
            optimizer.new_objective()
        total = optimizer.step(
            value, lambda batch=batch: loss.linearise(net, batch, params), residuals if curvature else None
        )
        if step % 10 == 0:
            done = trials // 2 if curvature else trials
            error = next(iter(errors(problem, net).values()))
            rows.append({"step": step, "trials": done, "loss": float(total), "rel_l2": error})
            print(case, "curvature" if curvature else "straight", rows[-1], flush=True)
    return rows


def main(out: str, steps: str = "40") -> None:
    torch.set_num_threads(1)
    found = {case: {name: run(case, *way, int(steps)) for name, way in WAYS.items()} for case in CASES}
    result = machine.head(torch.device("cpu")) | {"networks": CASES, "ways": WAYS}
    Path(out).mkdir(parents=True, exist_ok=True)
    (Path(out) / "gauss_newton_steps.json").write_text(json.dumps(result | {"rows": found}, indent=2) + "\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
