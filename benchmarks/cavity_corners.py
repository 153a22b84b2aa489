"""Where the cavity's loss lies, and what weights and adaptive points change: cavity_corners.py OUT [seconds a variant]

Gauss-Newton on a small network, 1,000 points drawn anew every ten steps, float64, one core: steps count, not seconds.
The equations are weighted by (r^2 / (r^2 + R^2))^k about both corners of the lid. `fresh` is the loss on points that
were not fitted, `corners` the share of it within 0.1 of them. At Re 1000 the Reynolds number rises every ten steps from
100. Writes `<out>/cavity_corners.json`.
"""

from __future__ import annotations

import dataclasses
import json
import sys
import time
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from pinnfuse import problems
from pinnfuse.balancing import rad
from pinnfuse.bench import machine
from pinnfuse.datamodules import CollocationDataModule, Points
from pinnfuse.models import for_problem
from pinnfuse.models.problem_loss import ProblemLoss
from pinnfuse.models.transform import set_constants
from pinnfuse.optimizers import GaussNewton
from pinnfuse.problems import Problem
from pinnfuse.problems.weighting import point_weights
from pinnfuse.training.marching import errors

POINTS, EVERY = 1000, 10
RISE = (100, 150, 200, 300, 400, 600, 800, 1000)
VARIANTS: list[tuple[float, float, float, bool]] = [  # Reynolds number, k, R, RAD
    *((100.0, k, radius, False) for k, radius in ((1, 0.05), (2, 0.05), (2, 0.1))),
    *((1000.0, k, radius, False) for k, radius in ((1, 0.05), (2, 0.05), (2, 0.1))),
    (1000.0, 2, 0.1, True),
]


def weighted(reynolds: float, k: float, radius: float) -> Problem:
    problem = problems.get("navier_stokes", "lid_driven_cavity", reynolds=reynolds)
    squares = ["(x**2 + (1 - y)**2)", "((1 - x)**2 + (1 - y)**2)"]
    weighting = " * ".join(f"({r2} / ({r2} + {radius**2}))**{k}" for r2 in squares)
    return dataclasses.replace(problem, weighting=weighting)


def refined(problem: Problem, net: nn.Module, loss: ProblemLoss, seed: int) -> Points:
    """Points by RAD, as `pinnfuse.callbacks.Refinement` chooses them."""

    def weigh(points: Tensor) -> Tensor | None:
        return point_weights(problem.weighting, problem.pde.coordinates, points)

    generator = torch.Generator().manual_seed(seed)
    candidates = problem.domain.sample(10 * POINTS, generator, "cpu", torch.float64, "uniform")
    rows, _ = loss.interior.weighted_residuals(net, candidates, weigh(candidates))
    chosen = rad(candidates, rows.view(len(candidates), -1), POINTS, generator=generator)
    return Points(chosen, None, weigh(chosen))


def run(problem: Problem, rising: bool, refine: bool, seconds: float) -> tuple[list[dict[str, Any]], float]:
    """A row for every 20th step, and the share of the loss that lies within 0.1 of the corners at the end."""
    torch.manual_seed(0)
    net = for_problem(problem, "mlp", width=16, depth=3).double()
    loss = ProblemLoss(problem, problem.soft_conditions(), {}, "torch").double()
    data = CollocationDataModule(problem, dataclasses.replace(problem.training, interior=POINTS, boundary=POINTS // 8))
    params, batch, rows = list(net.parameters()), data.draw(0), []
    adam, optimizer = torch.optim.Adam(params, 3e-3), GaussNewton(params)

    def set_nu(step: int) -> None:
        if rising:
            nu = 1 / RISE[min(len(RISE) - 1, max(0, step // EVERY - 1))]
            loss.set_parameter("nu", nu)
            set_constants(net, {"nu": nu})

    start, step = time.perf_counter(), 0
    set_nu(0)
    for _ in range(100):
        adam.zero_grad()
        loss(net, batch)[0].backward()
        adam.step()
    while time.perf_counter() - start < seconds:
        step += 1
        set_nu(step)
        if step % EVERY == 0:
            batch = data.draw(step)
            if refine:
                batch["interior"] = refined(problem, net, loss, step)
            optimizer.new_objective()
        total = optimizer.step(
            None,
            lambda batch=batch: loss.linearise(net, batch, params),
            lambda batch=batch: loss.residuals(net, batch)[0],
        )
        if step % 20 == 0:
            with torch.no_grad():
                fresh = loss(net, data.draw(10**6 + step))[0].item()
            row = {"step": step, "loss": float(total), "fresh": fresh, "velocity": errors(problem, net)["velocity"]}
            rows.append(row)
            print(row, flush=True)
    points = data.draw(10**6)["interior"]
    squares, _ = loss.interior.weighted_residuals(net, points.points, points.weights)
    own = squares.view(POINTS, -1).square().sum(1)
    x, y = points.points.unbind(1)
    near = torch.minimum(x.square(), (1 - x).square()) + (1 - y).square() < 0.1**2
    return rows, float(own[near].sum() / own.sum())


def main(out: str, seconds: str = "150") -> None:
    torch.set_num_threads(1)
    found = []
    for reynolds, k, radius, refine in VARIANTS:
        print(reynolds, k, radius, refine, flush=True)
        rows, share = run(weighted(reynolds, k, radius), reynolds > 100, refine, float(seconds))
        found.append({"reynolds": reynolds, "k": k, "radius": radius, "rad": refine, "corners": share, "rows": rows})
        result = machine.head(torch.device("cpu")) | {"network": "16 x 3", "points": POINTS, "variants": found}
        Path(out).mkdir(parents=True, exist_ok=True)
        (Path(out) / "cavity_corners.json").write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
