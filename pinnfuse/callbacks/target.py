"""A fit ends when its error is small enough."""

from __future__ import annotations

from lightning.pytorch import Callback, LightningModule, Trainer

from pinnfuse.callbacks.asks import of_kind
from pinnfuse.models.recorded import RecordedModule


class TargetError(Callback):
    """Stops the fit at the first validation whose relative L2 error is no larger than `error`.

    The error is the first one of the progress bar (`RecordedModule.headline`).
    """

    def __init__(self, error: float):
        self.error = error

    def on_validation_end(self, trainer: Trainer, module: LightningModule) -> None:
        module = of_kind(module, RecordedModule, self)
        if module.rel_l2[module.headline[0]] <= self.error:  # the same on all ranks
            trainer.should_stop = True
