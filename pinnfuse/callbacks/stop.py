"""Ctrl-C and SIGTERM end a fit after the step in progress."""

from __future__ import annotations

import signal
import threading
from types import FrameType
from typing import Any

from lightning.pytorch import Callback, LightningModule, Trainer


class GracefulStop(Callback):
    """The first signal stops the fit at the end of the step, where parameters and optimiser belong together.

    A second Ctrl-C interrupts at once. `received` is the signal, or None.
    """

    def __init__(self) -> None:
        self.received: signal.Signals | None = None
        self._previous: dict[int, Any] = {}

    def on_train_start(self, trainer: Trainer, module: LightningModule) -> None:
        if threading.current_thread() is threading.main_thread():
            self._previous = {n: signal.signal(n, self._handle) for n in (signal.SIGINT, signal.SIGTERM)}

    def _handle(self, number: int, frame: FrameType | None) -> None:
        if self.received is not None and number == signal.SIGINT:
            raise KeyboardInterrupt
        self.received = signal.Signals(number)

    def on_train_batch_end(self, trainer: Trainer, module: LightningModule, *unused: Any) -> None:
        stop = self.received is not None
        if trainer.world_size > 1:  # all processes must stop at the same step
            if not getattr(module, "row_written", True):
                return
            stop = trainer.strategy.reduce_boolean_decision(stop, all=False)
        trainer.should_stop = trainer.should_stop or stop

    def on_train_end(self, trainer: Trainer, module: LightningModule) -> None:
        """Before Lightning puts back what it found: put back later, its handlers would outlive the fit."""
        for number, handler in self._previous.items():
            signal.signal(number, handler)
        self._previous = {}

    def on_exception(self, trainer: Trainer, module: LightningModule, exception: BaseException) -> None:
        self.on_train_end(trainer, module)
