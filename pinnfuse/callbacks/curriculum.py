"""A constant of the PDE that changes during a fit, in a module of one's own."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from lightning.pytorch import Callback, LightningModule, Trainer

from pinnfuse.balancing import check_knots, value_at
from pinnfuse.balancing.curriculum import Knots
from pinnfuse.callbacks.asks import require


class Curriculum(Callback):
    """Gives constants of the PDE the values of the step, before it; calls `set_parameter(name, value)` of the module.

    The value depends on the step alone: there is no state, and a resumed run goes on alike. A `PINN` has its own, which
    also acts between `inner_steps`: `TrainingSpec.curriculum`.

    Args:
        curriculum: {constant: [[step, value], ...]}, the value from that step on; steps rise from 0.

    Example:
        >>> class Mine(LightningModule):
        ...     def set_parameter(self, name, value):
        ...         self.residual.set_parameter(name, value)  # a FusedResidualLoss
        >>> Trainer(callbacks=[Curriculum({"nu": [[0, 0.01], [500, 0.001]]})]).fit(module, data)
    """

    def __init__(self, curriculum: Mapping[str, Knots]):
        for name, knots in curriculum.items():
            check_knots(name, knots, "Curriculum")
        self.curriculum = dict(curriculum)
        self._present: dict[str, float] = {}

    def on_train_start(self, trainer: Trainer, module: LightningModule) -> None:
        require(module, self, set_parameter="set_parameter(name, value): change a constant of the PDE")
        self._present = {}

    def on_train_batch_start(self, trainer: Trainer, module: LightningModule, *unused: Any) -> None:
        for name, knots in self.curriculum.items():
            value = value_at(knots, trainer.global_step)
            if self._present.get(name) != value:
                module.set_parameter(name, value)  # type: ignore[operator]
                self._present[name] = value
