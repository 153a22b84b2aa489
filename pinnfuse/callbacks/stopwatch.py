"""How long training takes: seconds of the fit, milliseconds of a step, and a limit."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from lightning.pytorch import Callback, LightningModule, Trainer

from pinnfuse.callbacks.asks import of_kind
from pinnfuse.models.recorded import RecordedModule


class Stopwatch(Callback):
    """Logs `perf/step_ms`, `perf/points_per_s`, `perf/seconds`; counts the seconds of the fit over all resumptions.

    Args:
        points_per_step: points of one batch of one process.
        max_seconds: stop the fit after so long; None for no limit.
    """

    def __init__(self, points_per_step: int, max_seconds: float | None = None):
        self.points_per_step, self.max_seconds = points_per_step, max_seconds
        self._before = 0.0  # seconds of earlier fits
        self._start: float | None = None
        self._end: float | None = None
        self._mark = (0.0, 0)

    @property
    def seconds(self) -> float:
        """Of the fit so far, without pauses."""
        if self._start is None:
            return self._before
        return self._before + (self._end or time.perf_counter()) - self._start

    @contextmanager
    def paused(self) -> Iterator[None]:
        """What happens inside does not count."""
        before = time.perf_counter()
        yield
        spent = time.perf_counter() - before
        if self._start is not None and self._end is None:
            self._start += spent
        self._mark = self._mark[0] + spent, self._mark[1]

    def on_train_start(self, trainer: Trainer, module: LightningModule) -> None:
        self._start, self._end = time.perf_counter(), None
        self._mark = self._start, trainer.global_step

    def on_train_batch_end(self, trainer: Trainer, module: LightningModule, *unused: Any) -> None:
        module = of_kind(module, RecordedModule, self)
        step = trainer.global_step
        if not module.row_written:
            return
        now = _synchronised(module)
        since, first = self._mark
        if step > first:
            step_seconds = (now - since) / (step - first)
            points = self.points_per_step * trainer.world_size
            speed = {"perf/step_ms": 1e3 * step_seconds, "perf/points_per_s": points / step_seconds}
            module.record(speed | {"perf/seconds": self.seconds})
        self._mark = now, step
        over = self.max_seconds is not None and self.seconds >= self.max_seconds
        if trainer.world_size > 1:
            over = trainer.strategy.reduce_boolean_decision(over, all=False)
        trainer.should_stop = trainer.should_stop or over

    def on_validation_start(self, trainer: Trainer, module: LightningModule) -> None:
        self._validation = _synchronised(module)

    def on_validation_end(self, trainer: Trainer, module: LightningModule) -> None:
        self._mark = self._mark[0] + _synchronised(module) - self._validation, self._mark[1]

    def on_train_end(self, trainer: Trainer, module: LightningModule) -> None:
        self._end = _synchronised(module)

    def state_dict(self) -> dict[str, Any]:
        return {"seconds": self.seconds}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self._before = state_dict["seconds"]


def _synchronised(module: LightningModule) -> float:
    if module.device.type == "cuda":
        torch.cuda.synchronize(module.device)
    return time.perf_counter()
