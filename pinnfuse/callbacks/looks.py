"""Comparisons with the reference beside those at regular intervals: an early one, and one after the last step."""

from __future__ import annotations

from typing import Any

from lightning.pytorch import Callback, LightningModule, Trainer


class FirstAndLastLook(Callback):
    """Validates after `step` steps and after the last one, in between at the trainer's own interval.

    The early look tells where a run stands before its first minute is over; the last one lets `best.ckpt` be the last
    state, where that is the best.

    Args:
        step: of the first validation; 0 for none but the trainer's.
        inner_steps: optimisation steps in one step of Lightning's loop, which validates between those only.
    """

    def __init__(self, step: int = 50, inner_steps: int = 1):
        self.step, self.batches = step, max(1, step // inner_steps)
        self._interval: float | None = None

    def on_train_start(self, trainer: Trainer, module: LightningModule) -> None:
        if trainer.global_step < self.step and self.batches < (trainer.val_check_batch or 0):
            self._interval, trainer.val_check_batch = trainer.val_check_batch, self.batches

    def on_train_batch_end(self, trainer: Trainer, module: LightningModule, *unused: Any) -> None:
        if trainer.global_step == trainer.max_steps:
            trainer.should_stop = True  # Lightning validates before it stops early, but not at `max_steps`

    def on_validation_end(self, trainer: Trainer, module: LightningModule) -> None:
        if self._interval is not None:
            trainer.val_check_batch, self._interval = self._interval, None
