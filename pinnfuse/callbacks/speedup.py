"""What the fused loss saves: the same step with nested autograd, timed side by side."""

from __future__ import annotations

import copy
import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from lightning.pytorch import Callback, LightningModule, Trainer
from torch import nn

from pinnfuse.callbacks.memory import PeakStorage
from pinnfuse.callbacks.stopwatch import Stopwatch
from pinnfuse.models.pinn import PINN
from pinnfuse.models.problem_loss import Points, ProblemLoss


@dataclass(frozen=True)
class Cost:
    """Of one step: time in ms, and peak memory in MB (10^6 bytes) beyond what lives between steps."""

    step_ms: float
    memory_mb: float


class SpeedupMonitor(Callback):
    """Times steps (loss, gradient, Adam update) with the run's backend and with nested autograd, on the same batch.

    It works on copies of network and loss, alternates the two, takes medians, and is not counted in the training
    time. Memory on CUDA is `torch.cuda`'s peak; on CPU that of all tensors that are alive at once (`PeakStorage`).

    Args:
        stopwatch: paused meanwhile.
        steps: timed steps of each; 0 measures the run's own backend only.
        budget_seconds: the baseline stops after that long, with at least one step done.
    """

    def __init__(self, stopwatch: Stopwatch, steps: int = 3, budget_seconds: float = 20.0):
        self.stopwatch, self.steps, self.budget_seconds = stopwatch, steps, budget_seconds
        self.ours: Cost | None = None
        self.baseline: Cost | None = None
        self._wanted = True

    @property
    def speedup(self) -> float | None:
        """Baseline time over ours."""
        return self.baseline.step_ms / self.ours.step_ms if self.ours and self.baseline else None

    @property
    def memory_ratio(self) -> float | None:
        """Baseline memory over ours."""
        if not self.ours or not self.baseline or not self.ours.memory_mb:
            return None
        return self.baseline.memory_mb / self.ours.memory_mb

    def request(self) -> None:
        """Measure again after the next step."""
        self._wanted = True

    def on_train_batch_end(
        self, trainer: Trainer, module: LightningModule, outputs: Any, batch: dict[str, Points], *unused: Any
    ) -> None:
        if not self._wanted:
            return
        self._wanted = False
        if not trainer.is_global_zero:
            return
        assert isinstance(module, PINN)
        with self.stopwatch.paused():
            self._measure(module, batch)
        values = {
            "perf/peak_memory_mb": self.ours.memory_mb if self.ours else None,
            "perf/speedup_vs_autograd": self.speedup,
            "perf/memory_vs_autograd": self.memory_ratio,
        }
        module.record({name: value for name, value in values.items() if value is not None})

    def _measure(self, module: PINN, batch: Mapping[str, Points]) -> None:
        ours = _step(module.net, module.loss, batch)
        ours()  # the first call traces the network
        times: tuple[list[float], list[float]] = ([], [])
        memory = [_peak_memory(ours, module.device), None]
        try:
            nested = _step(module.net, module.loss, batch, "autograd")
            started = time.perf_counter()
            if self.steps:
                memory[1] = _peak_memory(nested, module.device)  # warms up, too
            for _ in range(max(self.steps, 3)):
                times[0].append(_milliseconds(ours, module.device))
                if self.steps and (not times[1] or time.perf_counter() - started < self.budget_seconds):
                    times[1].append(_milliseconds(nested, module.device))
        except torch.cuda.OutOfMemoryError:  # the baseline does not fit; then there is no ratio either
            times[0].append(_milliseconds(ours, module.device))
        self.ours = Cost(statistics.median(times[0]), memory[0] or 0.0)
        self.baseline = Cost(statistics.median(times[1]), memory[1]) if times[1] and memory[1] is not None else None

    def state_dict(self) -> dict[str, Any]:
        pair = ("ours", self.ours), ("baseline", self.baseline)
        return {name: [cost.step_ms, cost.memory_mb] for name, cost in pair if cost}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        for name, values in state_dict.items():
            setattr(self, name, Cost(*values))
        self._wanted = not state_dict


def _step(
    net: nn.Module, loss: ProblemLoss, batch: Mapping[str, Points], backend: str | None = None
) -> Callable[[], None]:
    """One training step on copies, so that the run does not notice."""
    net, loss = copy.deepcopy(net), copy.deepcopy(loss)
    if backend:
        loss.set_backend(backend)
    optimizer = torch.optim.Adam([*net.parameters(), *loss.parameters()], lr=0.0)

    def step() -> None:
        optimizer.zero_grad()
        loss(net, batch)[0].backward()
        optimizer.step()

    return step


def _milliseconds(step: Callable[[], None], device: torch.device) -> float:
    cuda = device.type == "cuda"
    if cuda:
        torch.cuda.synchronize(device)
    start = time.perf_counter()
    step()
    if cuda:
        torch.cuda.synchronize(device)
    return 1e3 * (time.perf_counter() - start)


def _peak_memory(step: Callable[[], None], device: torch.device) -> float:
    """MB that a step needs at its peak beyond what was there before it."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
        torch.cuda.reset_peak_memory_stats(device)
        before = torch.cuda.memory_allocated(device)
        step()
        torch.cuda.synchronize(device)
        return (torch.cuda.max_memory_allocated(device) - before) / 1e6
    with PeakStorage() as storage:
        step()
    return storage.peak / 1e6
