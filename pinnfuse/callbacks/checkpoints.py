"""Checkpoints that are always whole: `last.ckpt` every so many seconds, `best.ckpt` by the relative L2 error.

Where no error is known, without a reference, `best.ckpt` is the last state.
"""

from __future__ import annotations

import math
import os
import time
from pathlib import Path
from typing import Any

from lightning.pytorch import Callback, LightningModule, Trainer

from pinnfuse import parallel
from pinnfuse.callbacks.asks import of_kind
from pinnfuse.models.pinn import NonFiniteLoss
from pinnfuse.models.recorded import RecordedModule


class Checkpoints(Callback):
    """Writes to a temporary file and renames it, so a killed run never leaves half a checkpoint.

    Nothing is written once the loss is NaN: `PINN.on_save_checkpoint` raises first.

    Args:
        folder: of `last.ckpt` and `best.ckpt`.
        seconds: between two writes of `last.ckpt`.
    """

    def __init__(self, folder: Path, seconds: float = 60.0):
        self.folder, self.seconds = Path(folder), seconds
        self.last, self.best = self.folder / "last.ckpt", self.folder / "best.ckpt"
        self.best_error = math.inf
        self._saved = time.monotonic()

    def on_train_start(self, trainer: Trainer, module: LightningModule) -> None:
        self._saved = time.monotonic()

    def on_train_batch_end(self, trainer: Trainer, module: LightningModule, *unused: Any) -> None:
        module = of_kind(module, RecordedModule, self)
        if not module.row_written:
            return
        due = time.monotonic() - self._saved >= self.seconds
        if trainer.world_size > 1:  # writing is collective
            due = trainer.strategy.reduce_boolean_decision(due, all=False)
        if due:
            self._save(trainer, self.last)
            self._saved = time.monotonic()

    def on_validation_end(self, trainer: Trainer, module: LightningModule) -> None:
        module = of_kind(module, RecordedModule, self)
        errors = [e for e in module.rel_l2.values() if math.isfinite(e)]
        error = sum(errors) / len(errors) if errors else math.inf
        if trainer.state.fn == "fit" and error < self.best_error:
            self.best_error = error
            self._save(trainer, self.best)

    def on_train_end(self, trainer: Trainer, module: LightningModule) -> None:
        self._save(trainer, self.last)
        if self.best_error == math.inf:
            self._save(trainer, self.best)

    def on_exception(self, trainer: Trainer, module: LightningModule, exception: BaseException) -> None:
        if isinstance(exception, NonFiniteLoss):
            exception.checkpoint = str(self.last if self.last.exists() else self.best) if self.written else None

    @property
    def written(self) -> bool:
        """Whether there is a checkpoint."""
        return self.last.exists() or self.best.exists()

    def _save(self, trainer: Trainer, path: Path) -> None:
        temporary = path.with_suffix(".tmp")
        try:
            trainer.save_checkpoint(temporary)
        except NonFiniteLoss:
            raise
        except (OSError, RuntimeError) as error:  # torch's zip writer turns a full disk into a RuntimeError
            temporary.unlink(missing_ok=True)
            if parallel.lost(error):  # writing is collective
                raise
            raise OSError(f"cannot write the checkpoint {path} ({str(error).partition(chr(10))[0]})") from error
        if trainer.is_global_zero:
            os.replace(temporary, path)

    def state_dict(self) -> dict[str, Any]:
        return {"best_error": self.best_error}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        if self.best.exists():  # else the run goes on in another folder, which has no best one yet
            self.best_error = state_dict["best_error"]
