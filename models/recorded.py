"""What the callbacks of a run ask of its module: a record of losses and errors, a schedule, whole steps."""

from __future__ import annotations

from lightning.pytorch import LightningModule

from pinnfuse.optimizers import PhasedOptimizer


class RecordedModule(LightningModule):
    """A module with manual optimisation by a `PhasedOptimizer` that writes rows of losses.

    Attributes:
        rel_l2: {metric: relative L2 error} of the last validation.
        last_loss: weighted total of the last row.
        row_written: the last training step wrote a row of losses: a moment to look, save or stop.
        phase_starts: (steps done before it, optimiser) of each phase.
    """

    rel_l2: dict[str, float]
    last_loss: float
    row_written: bool
    phase_starts: list[tuple[int, str]]

    @property
    def subject(self) -> str:
        """What is solved or learned, by name; a checkpoint of another is not resumed."""
        return ""

    @property
    def headline(self) -> tuple[str, ...]:
        """Names of the errors that a progress bar shows, in order."""
        return tuple(self.rel_l2)

    @property
    def schedule(self) -> PhasedOptimizer:
        """The optimiser of the run."""
        optimizer = self.optimizers(use_pl_optimizer=False)
        assert isinstance(optimizer, PhasedOptimizer)
        return optimizer

    def record(self, metrics: dict[str, float]) -> None:
        """Send metrics to every logger, at the number of steps done."""
        for logger in self.loggers:
            logger.log_metrics(metrics, self.global_step)
