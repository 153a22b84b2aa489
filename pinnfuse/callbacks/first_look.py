"""An early comparison with the reference, so that a run tells where it stands before its first minute is over."""

from __future__ import annotations

from lightning.pytorch import Callback, LightningModule, Trainer


class FirstLook(Callback):
    """Validates after `step` steps once, then at the trainer's own interval.

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

    def on_validation_end(self, trainer: Trainer, module: LightningModule) -> None:
        if self._interval is not None:
            trainer.val_check_batch, self._interval = self._interval, None
