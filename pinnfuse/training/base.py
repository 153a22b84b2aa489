"""What runs of every kind share: a folder, a checkpoint to go on from, a record, a trainer."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from lightning.pytorch import Callback, LightningDataModule, Trainer
from lightning.pytorch.loggers import Logger
from lightning.pytorch.strategies import DDPStrategy, Strategy
from lightning.pytorch.utilities.exceptions import MisconfigurationException
from rich.console import Console

from pinnfuse.callbacks import Checkpoints, FirstAndLastLook, GracefulStop, PeerWatch, RunProgress, Stopwatch
from pinnfuse.files import write_whole
from pinnfuse.models import DataParallel
from pinnfuse.models.recorded import RecordedModule
from pinnfuse.optimizers import total_steps
from pinnfuse.tracking import History, QuietWandbLogger
from pinnfuse.training import cli
from pinnfuse.training.config import RunConfig
from pinnfuse.training.fitting import trainer_options
from pinnfuse.training.folder import find_checkpoint, make_folder, read_checkpoint, resume_with, run_folder
from pinnfuse.training.quiet import first_process
from pinnfuse.training.summary import finite


class TrainingRun:
    """A run that is set up but not started. `prepare` does what takes seconds before the first step, `fit` trains.

    A kind of run makes its network, sets `module` and `data`, calls `set_up`, and has its own `finish`.

    Args:
        config: resolved, see `pinnfuse.training.cli.parse`.
        kind: second part of a new folder's name.
    """

    holds: str
    """What a checkpoint is of, for the message where it does not fit."""
    module: RecordedModule
    data: LightningDataModule
    stopwatch: Stopwatch
    trainer: Trainer

    def __init__(self, config: RunConfig, kind: str | None = None):
        self.config = config
        self.folder = run_folder(config, kind)
        self._lock = make_folder(self.folder, config.resume) if first_process() else None
        self.checkpoint = find_checkpoint(config.resume) if config.resume else None
        self.planned = total_steps(config.training.phases)
        self.steps = self.planned if config.max_steps is None else min(config.max_steps, self.planned)
        self.checkpoints = Checkpoints(self.folder / "checkpoints", config.record.checkpoint_seconds)
        self.stop = GracefulStop()
        self.history = History(None if config.logger == "none" else self.folder / "metrics.csv")
        self.resumed_at = 0
        self._prepared = False
        torch.manual_seed(config.seed)  # of the network that is made next

    def set_up(self, console: Console, title: str, callbacks: Sequence[Callback] = (), inner: int = 1) -> None:
        """Check the checkpoint, and make the trainer.

        Args:
            console, title: of the progress bar.
            callbacks: of this kind of run; they come before those that write.
            inner: optimisation steps in each of the trainer's.
        """
        if self.checkpoint:
            self.resumed_at = self._resume(self.checkpoint)
        config, record = self.config, self.config.record
        validate = max(1, record.validate_every // inner)
        options = trainer_options(self.steps, record.log_every, validate, config.accelerator)
        options |= {
            "devices": config.devices,
            "num_nodes": config.num_nodes,
            "strategy": config.strategy,
            "logger": self._loggers(),
            "callbacks": [
                PeerWatch(resume_with(self.folder)),
                self.stop,
                self.stopwatch,
                *callbacks,
                self.checkpoints,
                FirstAndLastLook(record.validate_first, inner),
                RunProgress(title, self.steps, console),
            ],
        }
        try:
            options["strategy"] = strategy_for(options | config.trainer)
            self.trainer = Trainer(**options | config.trainer)
        except (MisconfigurationException, TypeError, ImportError) as error:
            raise ValueError(f"Lightning refuses these settings (--devices, --strategy, --trainer): {error}") from error

    def _resume(self, path: str) -> int:
        """Check that the checkpoint is whole and fits; returns the steps it has done. The trainer loads it."""
        checkpoint = read_checkpoint(path)
        subject = checkpoint["pinnfuse"].get("subject", self.module.subject)
        if subject != self.module.subject:
            raise ValueError(
                f"--resume: {path} is of {subject!r}, but these options describe {self.module.subject!r}. Leave out "
                "options that change it, or start anew without --resume."
            )
        try:
            self.module.load_state_dict(checkpoint["state_dict"])
        except RuntimeError as error:
            raise ValueError(
                f"--resume: {path} holds another {self.holds} than these options describe. Leave out options that "
                f"change them.\n{error}"
            ) from error
        return int(checkpoint["pinnfuse"]["step"])

    def _loggers(self) -> list[Logger]:
        loggers: list[Logger] = [self.history]
        if self.config.logger == "wandb":
            loggers.append(QuietWandbLogger(self.folder, self.config.record.project, asdict(self.config)))
        return loggers

    def prepare(self, say: Callable[[str], None] = lambda text: None) -> None:
        """What takes seconds before the first step, once, where a caller wants to say so; `fit` would do it, too.

        Args:
            say: told what is being done.
        """
        if self._prepared:
            return
        self._prepared = True
        for logger in self.trainer.loggers:
            if isinstance(logger, QuietWandbLogger):
                say("starting Weights & Biases")
                logger.experiment  # noqa: B018  # which starts it
        self._prepare(say)

    def _prepare(self, say: Callable[[str], None]) -> None:
        raise NotImplementedError

    def fit(self) -> None:
        """Train to the end of the schedule, a limit, or Ctrl-C."""
        self.prepare()
        if self.checkpoint:
            self.history.resume(self.resumed_at)
        safe: dict[str, Any] = (
            {"weights_only": True} if "weights_only" in inspect.signature(Trainer.fit).parameters else {}
        )
        with written_down(self.config, self.folder):
            self.trainer.fit(self.module, self.data, ckpt_path=self.checkpoint, **safe)

    def ended(self) -> str:
        """Why the fit ended before its last step; "" where it did not, or was told to."""
        schedule, limits = self.module.schedule, self.config.training
        if schedule.finished and schedule.phase_step < schedule.phase.steps:
            done = f"{schedule.phase_step:,} of its {schedule.phase.steps:,} steps"
            return f"{schedule.phase.optimizer} found no further decrease after {done}"
        if limits.max_seconds is not None and self.stopwatch.seconds >= limits.max_seconds:
            return f"training.max_seconds, {limits.max_seconds:g}, are over"
        return ""

    def log_end(self, files: dict[str, Path], summary: Any) -> None:
        """Hand figures and summary to the loggers, and close them."""
        for logger in self.trainer.loggers:
            if isinstance(logger, QuietWandbLogger):
                logger.finish(files, finite(asdict(summary)))
            logger.save()


@contextmanager
def written_down(config: RunConfig, folder: Path) -> Iterator[None]:
    """`config.yaml` in the folder. A run that is refused before its first record or checkpoint takes it away again, so
    that the same command without the mistake is not told that the folder holds a run; a resumed one whose settings are
    refused puts back what was there."""
    path = folder / "config.yaml"
    before = path.read_text() if path.is_file() else None
    if first_process():
        cli.save(config, path)
    try:
        yield
    except Exception as error:
        left = (found for pattern in ("*.ckpt", "metrics.csv") for found in folder.rglob(pattern))
        if first_process():
            if before is not None and isinstance(error, ValueError):
                write_whole(path, before)
            elif config.resume is None and not any(left):
                path.unlink(missing_ok=True)
        raise


def strategy_for(options: dict[str, Any]) -> str | Strategy:
    """Ours where Lightning would take DDP for these devices and nodes, else what was asked for."""
    if options["strategy"] not in ("auto", "ddp"):
        return options["strategy"]
    silent = {"logger": False, "enable_progress_bar": False, "enable_checkpointing": False, "callbacks": None}
    found = Trainer(**options | silent).strategy
    return DataParallel() if type(found) is DDPStrategy else options["strategy"]
