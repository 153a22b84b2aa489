"""The progress bar: step, phase, loss, relative L2, time left; and what is being done while there is no bar."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from lightning.pytorch import LightningModule, Trainer
from lightning.pytorch.callbacks import ProgressBar
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn

from pinnfuse.callbacks.asks import of_kind
from pinnfuse.models.recorded import RecordedModule


class RunProgress(ProgressBar):
    """One line on a terminal; elsewhere (a file, a batch system) a line at times, for whoever follows it.

    Args:
        title: in front of the bar.
        total: planned steps.
        console: where it is drawn.
        interval: seconds between two updates.
        lines_every: least seconds between two lines where there is no terminal; one follows a validation, and one comes
            after three times as long without.
    """

    def __init__(self, title: str, total: int, console: Console, interval: float = 0.2, lines_every: float = 10.0):
        super().__init__()
        self.title, self.total, self.interval, self.lines_every = title, total, interval, lines_every
        self.console = console
        self._bar: Progress | None = None
        self._started = self._shown = time.monotonic()

    def disable(self) -> None:
        """Lightning calls this on all processes but the first."""
        self.console = Console(quiet=True)

    def enable(self) -> None:
        """Nothing: it is drawn unless disabled."""

    def on_train_start(self, trainer: Trainer, module: LightningModule) -> None:
        self._started = self._shown = time.monotonic()
        if not self.console.is_terminal or self.console.quiet:
            return
        wide = self.console.width >= 110  # 80 columns hold the numbers alone
        self._bar = Progress(
            *([TextColumn("[bold]{task.description}"), BarColumn(bar_width=None)] if wide else []),
            MofNCompleteColumn(),
            TextColumn("{task.fields[phase]}"),
            TextColumn("loss [cyan]{task.fields[loss]}"),
            TextColumn("rel L2 [green]{task.fields[error]}"),
            *([TimeElapsedColumn()] if wide else []),
            TimeRemainingColumn(compact=True),
            TextColumn("left"),
            console=self.console,
            auto_refresh=False,
            transient=True,
            expand=wide,
        )
        self._task = self._bar.add_task(self.title, total=self.total, phase="", loss="-", error="-")
        self._bar.start()
        self._draw(trainer, module)

    def on_train_batch_end(self, trainer: Trainer, module: LightningModule, *unused: Any) -> None:
        if self._bar is None:
            self._line(trainer, module, 3 * self.lines_every)
        elif time.monotonic() - self._shown >= self.interval:
            self._draw(trainer, module)

    def on_validation_end(self, trainer: Trainer, module: LightningModule) -> None:
        self._line(trainer, module, self.lines_every)

    def _line(self, trainer: Trainer, module: LightningModule, least: float) -> None:
        """Where there is no terminal, and the last line is so many seconds old."""
        module = of_kind(module, RecordedModule, self)
        now = time.monotonic()
        if self.console.is_terminal or self.console.quiet or now - self._shown < least:
            return
        self._shown = now
        self.console.print(
            f"{self.title}: step {trainer.global_step:,} of {self.total:,}, {module.schedule.phase.optimizer}, loss "
            f"{_loss(module)}, rel L2 {_errors(module)}, {now - self._started:.0f} s",
            highlight=False,
            soft_wrap=True,
        )

    @contextmanager
    def doing(self, what: str) -> Iterator[None]:
        """Say in the bar what holds up the steps."""
        if self._bar is not None:
            self._bar.update(self._task, phase=what)
            self._bar.refresh()
        yield

    def _draw(self, trainer: Trainer, module: LightningModule) -> None:
        module = of_kind(module, RecordedModule, self)
        assert self._bar is not None
        self._shown = time.monotonic()
        self._bar.update(
            self._task,
            completed=trainer.global_step,
            phase=module.schedule.phase.optimizer,
            loss=_loss(module),
            error=_errors(module),
        )
        self._bar.refresh()

    def on_train_end(self, trainer: Trainer, module: LightningModule) -> None:
        self._close()

    def on_exception(self, trainer: Trainer, module: LightningModule, exception: BaseException) -> None:
        self._close()

    def _close(self) -> None:
        if self._bar is not None:
            self._bar.stop()
            self._bar = None


def _loss(module: RecordedModule) -> str:
    return "-" if math.isnan(module.last_loss) else f"{module.last_loss:.2e}"  # NaN before the first row


def _errors(module: RecordedModule) -> str:
    return " ".join(f"{n} {module.rel_l2[n]:.1e}" for n in module.headline if n in module.rel_l2) or "-"
