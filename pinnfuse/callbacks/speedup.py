"""What the fused loss saves: the same step with nested autograd, timed side by side."""

from __future__ import annotations

import copy
import statistics
import time
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

import torch
from lightning.pytorch import Callback, LightningModule, Trainer
from torch import nn

from pinnfuse.callbacks.asks import of_kind
from pinnfuse.callbacks.progress import RunProgress
from pinnfuse.callbacks.stopwatch import Stopwatch
from pinnfuse.models.pinn import PINN
from pinnfuse.models.problem_loss import Points, ProblemLoss
from pinnfuse.profiling.storage import PeakStorage

_OURS, _NESTED = "ours", "autograd"


@dataclass(frozen=True)
class Cost:
    """Of one step: time in ms, and peak memory in MB (10^6 bytes) beyond what lives between steps."""

    step_ms: float
    memory_mb: float


class SpeedupMonitor(Callback):
    """Times steps (loss, gradient, Adam update) with the run's backend and with nested autograd, on the same batch.

    It works on copies of network and loss, alternates the two so that both meet the same load of the machine, and takes
    medians over all measurements of the run. It is not counted in the training time. Memory on CUDA is `torch.cuda`'s
    peak; on CPU that of all tensors that are alive at once (`PeakStorage`).

    Args:
        stopwatch: paused meanwhile.
        steps: timed steps of each in one measurement; 0 measures the run's own backend only.
        budget_seconds: a measurement ends after that long, with at least one step of each done.
        at_end: measure again after the last step.
    """

    def __init__(self, stopwatch: Stopwatch, steps: int = 9, budget_seconds: float = 10.0, at_end: bool = False):
        self.stopwatch, self.steps, self.budget_seconds, self.at_end = stopwatch, steps, budget_seconds, at_end
        self._times: dict[str, list[float]] = {_OURS: [], _NESTED: []}
        self._memory: dict[str, float] = {}
        self._wanted = True

    @property
    def ours(self) -> Cost | None:
        """With the run's backend."""
        return self._cost(_OURS)

    @property
    def baseline(self) -> Cost | None:
        """With nested autograd; None if it was not measured, or did not fit."""
        return self._cost(_NESTED)

    def _cost(self, which: str) -> Cost | None:
        times = self._times[which]
        return Cost(statistics.median(times), self._memory[which]) if times and which in self._memory else None

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
        if self._wanted:
            self._wanted = False
            self._measure_on(trainer, module, batch)

    def on_train_end(self, trainer: Trainer, module: LightningModule) -> None:
        module = of_kind(module, PINN, self)
        if self.at_end and module.last_batch:
            self._measure_on(trainer, module, module.last_batch)

    def _measure_on(self, trainer: Trainer, module: LightningModule, batch: Mapping[str, Points]) -> None:
        if not trainer.is_global_zero:
            return
        module = of_kind(module, PINN, self)
        bar = trainer.progress_bar_callback
        with self.stopwatch.paused(), bar.doing("timing") if isinstance(bar, RunProgress) else nullcontext():
            self._measure(module, batch)
        values = {
            "perf/peak_memory_mb": self.ours.memory_mb if self.ours else None,
            "perf/speedup_vs_autograd": self.speedup,
            "perf/memory_vs_autograd": self.memory_ratio,
        }
        module.record({name: value for name, value in values.items() if value is not None})

    def _measure(self, module: PINN, batch: Mapping[str, Points]) -> None:
        ours = training_step(module.net, module.loss, batch)
        ours()  # the first call traces the network
        started = time.perf_counter()
        self._memory[_OURS] = _peak_memory(ours, module.device)
        try:
            steps = {_OURS: ours}
            if self.steps:
                nested = training_step(module.net, module.loss, batch, "autograd")
                self._memory[_NESTED] = _peak_memory(nested, module.device)  # warms up, too
                steps[_NESTED] = nested
            for _ in range(self.steps or 3):
                for which, step in steps.items():
                    self._times[which].append(milliseconds(step, module.device))
                if time.perf_counter() - started > self.budget_seconds:
                    break
        except torch.cuda.OutOfMemoryError:  # the baseline does not fit; then there is no ratio either
            self._memory.pop(_NESTED, None)
            self._times[_OURS].append(milliseconds(ours, module.device))

    def state_dict(self) -> dict[str, Any]:
        return {"times": self._times, "memory": self._memory}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self._times, self._memory = state_dict["times"], state_dict["memory"]
        self._wanted = not self._memory


def training_step(
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


def milliseconds(step: Callable[[], None], device: torch.device) -> float:
    """How long the step takes, on a card until it is done."""
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
