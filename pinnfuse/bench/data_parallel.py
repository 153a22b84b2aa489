"""Training steps over several processes: the same numbers as in one, and how much faster.

Every function here runs in each process of a group alike, or in one process without a group; what they return can be
compared. `benchmarks/two_cards.py` is the command.
"""

from __future__ import annotations

import itertools
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from pinnfuse import parallel, problems, tasks
from pinnfuse.balancing import CausalWeights, ResidualAttention, SelfAdaptive
from pinnfuse.datamodules import CollocationDataModule
from pinnfuse.datamodules.collocation import Batch, CollocationStream, Points
from pinnfuse.datamodules.grids import GridBatch
from pinnfuse.models.mlp import MLP
from pinnfuse.models.problem_loss import INTERIOR, ProblemLoss
from pinnfuse.models.stepping import Stepper
from pinnfuse.models.surrogate import GridSurrogate
from pinnfuse.optimizers import Phase, PhasedOptimizer
from pinnfuse.problems import TrainingSpec

WEIGHTS = {"real": 0.7, "imaginary": 1.9, "initial": 5.0}  # equations and condition of Schroedinger's problem


@dataclass(frozen=True)
class Case:
    """A few steps of an optimiser on given points.

    Attributes:
        optimizer, steps: what is done.
        precision: "float32" or "float64".
        point_weights: "none", "causal", "attention" or "self_adaptive".
        even: processes hold as many points each; otherwise rank r a share r + 1.
        clip: of the gradient.
    """

    optimizer: str = "adam"
    steps: int = 1
    precision: str = "float64"
    point_weights: str = "none"
    even: bool = True
    clip: float | None = None

    @property
    def name(self) -> str:
        weights = "" if self.point_weights == "none" else f" {self.point_weights}"
        return f"{self.optimizer}{weights} {self.precision}{'' if self.even else ' uneven'}"

    @property
    def tolerance(self) -> float:
        """Allowed difference, relative to the loss and to the largest parameter.

        SOAP's second step uses eigenvectors of matrices of rank one: those to the eigenvalue zero are what rounding
        makes them, and the same set of points in another order gives other ones in a single process, too.
        """
        return 1e-4 if self.optimizer == "soap" else {"float32": 1e-6, "float64": 1e-12}[self.precision]


CASES = (
    Case("adam"),
    Case("adam", precision="float32"),
    Case("adam", even=False, clip=0.1),
    Case("adam", 3, point_weights="causal", even=False),
    Case("adam", 3, precision="float32", point_weights="causal"),
    Case("adam", 3, point_weights="attention", even=False),
    Case("adam", 3, point_weights="self_adaptive", even=False),
    Case("soap", 2),
    Case("lbfgs", 3),
    Case("ssbroyden", 3, even=False),
    Case("gauss_newton", 2, even=False),
)
"""Per-equation weights are part of all of them."""


def part_of(points: int, even: bool) -> slice:
    """Which of the points this process holds."""
    size, rank = parallel.size(), parallel.rank()
    shares = [1 if even else r + 1 for r in range(size)]
    first, end = (points * sum(shares[:k]) // sum(shares) for k in (rank, rank + 1))
    return slice(first, end)


def setting(case: Case, points: int, width: int, device: torch.device) -> tuple[nn.Module, ProblemLoss, Batch]:
    """Network, loss, and the points of this process of a case."""
    problem, dtype = problems.get("schrodinger"), getattr(torch, case.precision)
    net, loss = _network(width, 3).to(device, dtype), ProblemLoss(problem, weights=WEIGHTS, conditions=_kept(problem))
    data = CollocationDataModule(problem, TrainingSpec(interior=points, boundary=points // 4, precision="float64"))
    batch = Batch()
    for name in (INTERIOR, *loss.names):
        drawn = data.draw(0)[name]
        own = part_of(len(drawn.points), case.even)
        columns = {k: v[own].to(device, dtype) for k, v in (drawn.data or {}).items()}
        batch[name] = Points(drawn.points[own].to(device, dtype), columns or None)
    held = len(batch[INTERIOR].points)
    if case.point_weights != "none":
        start, end = problem.domain.bounds["t"]
        loss.weigh_points(
            INTERIOR,
            {
                "causal": lambda: CausalWeights(problem.domain.axis("t"), start, end, pieces=8),
                "attention": lambda: ResidualAttention(held),
                "self_adaptive": lambda: SelfAdaptive(held),
            }[case.point_weights](),
        )
    return net, loss.to(device, dtype), batch


def steps_of(case: Case, points: int, width: int, device: torch.device) -> dict[str, Any]:
    """Losses before each step [steps], parameters after them [n], and how many interior points this process holds."""
    net, loss, batch = setting(case, points, width, device)
    phase = Phase(case.optimizer, case.steps + 1, clip=case.clip)
    optimizer = PhasedOptimizer([*net.parameters(), *loss.parameters()], [phase], announces_changes=True)
    stepper = Stepper(net, loss, optimizer, Tensor.backward)
    losses = [stepper.step(optimizer, batch, k)[0].item() for k in range(case.steps)]
    parameters = torch.cat([p.detach().flatten() for p in net.parameters()]).double().cpu().numpy()
    return {"losses": losses, "parameters": parameters, "points": len(batch[INTERIOR].points)}


def _kept(problem: problems.Problem) -> list[problems.Condition]:
    """Conditions that have a Jacobian for Gauss-Newton."""
    return [c for c in problem.conditions if c.shift is None]


def _network(width: int, depth: int, inputs: int = 2, outputs: int = 2) -> nn.Module:
    torch.manual_seed(0)
    return MLP(inputs, outputs, width=width, depth=depth)


def disagreement(one: dict[str, Any], other: dict[str, Any]) -> dict[str, float]:
    """Largest relative difference of losses, and of parameters over the largest of them."""
    losses = [abs(b / a - 1) for a, b in zip(one["losses"], other["losses"], strict=True)]
    a, b = one["parameters"], other["parameters"]
    return {"loss": max(losses), "parameters": float(abs(a - b).max() / abs(a).max())}


def training_step(
    points: int, device: torch.device, width: int, depth: int, graph: bool
) -> tuple[Callable[[], Tensor], Callable[[], str]]:
    """An Adam step on new points of this process, and how it runs: the cavity's three equations in float32.

    Args:
        points: in the interior; a sixteenth as many on each condition.
        width, depth: of the network.
        graph: as a CUDA graph, the reduction inside.
    """
    problem = problems.get("navier_stokes")
    spec = TrainingSpec(interior=points, boundary=max(1, points // 16), sampler="uniform", resample_every=1)
    spec.precision = "float32"
    data = CollocationDataModule(problem, spec)
    stream = CollocationStream(data, parallel.rank(), device)
    net, loss = _network(width, depth, 2, 3).to(device), ProblemLoss(problem, data.conditions).to(device)
    optimizer = PhasedOptimizer([*net.parameters(), *loss.parameters()], [Phase("adam", 10**9)], announces_changes=True)
    stepper = Stepper(net, loss, optimizer, Tensor.backward, graph)
    batch, count = stream.at(0), itertools.count()
    return (lambda: stepper.step(optimizer, batch, next(count))), stepper.explain


def milliseconds(step: Callable[[], Any], device: torch.device, seconds: float) -> list[float]:
    """Milliseconds a step in five blocks that take about `seconds` together; every process makes as many steps."""
    for _ in range(6):
        step()
    first = _block(step, device, 3)
    (first,) = parallel.agreed(torch.tensor(first, device=device))
    count = max(1, int(1e3 * seconds / 5 / first))
    return [_block(step, device, count) for _ in range(5)]


def _block(step: Callable[[], Any], device: torch.device, count: int) -> float:
    _wait(device)
    parallel.total(torch.zeros(1, device=device))  # all begin together
    _wait(device)
    start = time.perf_counter()
    for _ in range(count):
        step()
    _wait(device)
    return 1e3 * (time.perf_counter() - start) / count


def _wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def reduction(device: torch.device, width: int, depth: int, seconds: float) -> dict[str, float]:
    """Milliseconds of the step's all-reduce alone, and its size: what it costs at most, had nothing hidden it."""
    size = sum(p.numel() for p in _network(width, depth, 2, 3).parameters())
    parts = [torch.ones(size, device=device), torch.ones(6, device=device)]
    samples = milliseconds(lambda: parallel.mean_(parts), device, seconds)
    return {"ms": statistics.median(samples), "bytes": 4.0 * (size + 6)}


def surrogate_step(points: int, batch: int, device: torch.device) -> Callable[[], Tensor]:
    """An Adam step of the Fourier operator of Darcy's flow, data and physics, on `batch` samples of this process."""
    task = tasks.get("darcy", points=points)
    torch.manual_seed(0)
    module = GridSurrogate(task).to(device)
    generator = torch.Generator().manual_seed(parallel.rank())
    made = torch.randn(2, batch, 1, points, points, generator=generator).to(device)
    inputs, targets = torch.where(made[0] > 0, 12.0, 3.0), 0.04 * made[1]
    module.calibrate(inputs)
    data = GridBatch(inputs, targets, batch)
    params = [p for p in module.parameters() if p.requires_grad]
    optimizer = torch.optim.Adam(params, fused=device.type == "cuda")

    def step() -> Tensor:
        optimizer.zero_grad()
        loss = module.total(module.terms(data))
        loss.backward()
        loss = loss.detach()
        parallel.mean_([loss, *(p.grad for p in params if p.grad is not None)])
        optimizer.step()
        return loss

    return step
