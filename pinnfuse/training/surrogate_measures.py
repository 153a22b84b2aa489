"""What is measured of a trained surrogate: rollouts, the residual of the data, fine-tuning, the cost of physics."""

from __future__ import annotations

import copy
import logging
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass, replace

import torch
from torch import Tensor

from pinnfuse.callbacks.speedup import milliseconds
from pinnfuse.datamodules.grids import GridBatch, GridDataModule
from pinnfuse.grid.crossover import inside_graphs
from pinnfuse.models.surrogate import GridSurrogate
from pinnfuse.optimizers import StepGraph
from pinnfuse.precision import torch_convolutions
from pinnfuse.tasks import WindowTask, relative_errors

log = logging.getLogger("pinnfuse")


@dataclass(frozen=True)
class Predicted:
    """Held-out samples from their first inputs on, and what the solver says.

    Attributes:
        prediction, reference: `[N, fields, *space]`, or `[N, levels, fields, *space]` of a rollout.
        errors: relative L2, mean over samples: `[1, fields]` or `[levels, fields]`.
        times: of the levels; empty for a map.
    """

    inputs: Tensor
    prediction: Tensor
    reference: Tensor
    errors: Tensor
    times: list[float]


@torch.no_grad()
def predicted(module: GridSurrogate, data: GridDataModule, most: int = 64) -> Predicted:
    """Of up to so many held-out samples, as far in time as whole windows go."""
    task, count = module.task, min(most, len(data.held_out))
    rows = data.held_out.rows(torch.arange(count))
    rows = {name: tensor.to(module.device, data.dtype) for name, tensor in rows.items()}
    inputs, targets = task.pair(rows, torch.zeros(count, dtype=torch.long))
    if not isinstance(task, WindowTask):
        prediction = torch.cat([module(part) for part in inputs.split(data.training.batch)])
        return Predicted(inputs, prediction, targets, relative_errors(task, prediction, targets).mean(0)[None], [])
    windows = (rows["fields"].shape[1] - task.history) // task.ahead
    reference = rows["fields"][:, task.history : task.history + windows * task.ahead]
    prediction = torch.cat([module.rollout(part, windows) for part in inputs.split(data.training.batch)])
    distance, size = ((x).flatten(3).norm(dim=3) for x in (prediction - reference, reference))
    errors = (distance / size.clamp_min(torch.finfo(size.dtype).tiny)).mean(0)
    times = [task.step * (task.history + k) for k in range(len(errors))]
    return Predicted(inputs, prediction, reference, errors, times)


@torch.no_grad()
def data_physics(module: GridSurrogate, data: GridDataModule) -> float:
    """The physics term of the solutions themselves, mean over the held-out samples."""
    terms = [module.physics_term(batch.inputs, batch.targets) for batch in batches(module, data)]
    return float(torch.stack(terms).mean())


def batches(module: GridSurrogate, data: GridDataModule) -> list[GridBatch]:
    """The held-out batches on the module's device."""
    return [
        GridBatch(b.inputs.to(module.device), b.targets.to(module.device), b.labelled) for b in data.val_dataloader()
    ]


def fine_tuning(module: GridSurrogate, data: GridDataModule) -> dict[str, float]:
    """Train on for the first held-out instance by its residual; errors and residuals before and after."""
    spec, task = module.training_spec, module.task
    rows = {k: v.to(module.device, data.dtype) for k, v in data.held_out.rows(torch.zeros(1, dtype=torch.long)).items()}
    inputs, targets = task.pair(rows, torch.zeros(1, dtype=torch.long))
    with torch.no_grad():
        before = relative_errors(task, module(inputs), targets)
    start = time.perf_counter()
    tuned = module.fine_tune(inputs, spec.fine_tune_steps, spec.fine_tune_lr, spec.fine_tune_anchor)
    seconds = time.perf_counter() - start
    return {
        "rel_l2_before": float(before.mean()),
        "rel_l2_after": float(relative_errors(task, tuned.prediction, targets).mean()),
        "physics_before": tuned.physics[0],
        "physics_after": tuned.physics[-1],
        "steps": spec.fine_tune_steps,
        "seconds": seconds,
    }


def costs(module: GridSurrogate, batch: GridBatch, repeats: int = 9, budget_seconds: float = 10.0) -> dict[str, float]:
    """Milliseconds, medians of steps in turns, on copies: `step_ms` (data and physics), `data_step_ms`, `physics_ms`.

    On a card also `eager_step_ms`, the step whose residual is computed by torch's operations. All of them run as the
    training's steps do: as CUDA graphs, unless `training.graph` is off or a step cannot be captured.
    """
    batch = GridBatch(batch.inputs, batch.targets, max(batch.labelled, 1))
    with torch.no_grad():
        prediction = module(batch.inputs)
    leaf = prediction.clone().requires_grad_()

    def physics() -> None:
        leaf.grad = None
        module.physics_term(batch.inputs, leaf).backward()

    steps = {
        "step_ms": training_step(module, batch, "both"),
        "data_step_ms": training_step(module, batch, "data"),
        "physics_ms": as_trained(module, physics),
    }
    if module.device.type == "cuda" and module.physics.backend != "torch":
        steps["eager_step_ms"] = training_step(module, batch, "both", "torch")
    for step in steps.values():  # compilation, allocation, capture
        for _ in range(5):
            step()
    times: dict[str, list[float]] = {name: [] for name in steps}
    started = time.perf_counter()
    for _ in range(repeats):
        for name, step in steps.items():
            times[name].append(milliseconds(step, module.device))
        if time.perf_counter() - started > budget_seconds:
            break
    return {name: statistics.median(values) for name, values in times.items()}


def training_step(module: GridSurrogate, batch: GridBatch, loss: str, backend: str | None = None) -> Callable[[], None]:
    """Loss, gradient and Adam's update on copies of network and residual."""
    task, spec = module.task, replace(module.training_spec, loss=loss, labelled=module.training_spec.labelled or 1.0)
    ours = GridSurrogate(task, copy.deepcopy(module.net), spec, backend or module.physics.backend).to(module.device)
    for name, buffer in module.named_buffers():
        if not name.startswith(("net.", "metrics.", "physics_metric.")):
            ours.get_buffer(name).copy_(buffer)
    optimizer = torch.optim.Adam(ours.parameters(), lr=0.0, capturable=module.device.type == "cuda")

    def step() -> None:
        optimizer.zero_grad()
        ours.total(ours.terms(batch)).backward()
        optimizer.step()

    return as_trained(module, step)


def as_trained(module: GridSurrogate, step: Callable[[], None]) -> Callable[[], None]:
    """The step as `GridSurrogate` would run it."""
    captured = StepGraph(step, module.device)
    if not module.training_spec.graph:
        captured.obstacle = "switched off"

    @torch_convolutions()
    def run() -> None:
        with inside_graphs(not captured.obstacle):
            captured()
        if captured.obstacle and not said:
            said.append(captured.obstacle)
            log.info("a step that is measured runs kernel by kernel: %s", captured.obstacle)

    said: list[str] = []
    return run
