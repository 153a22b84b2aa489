"""One run of a surrogate: from a `SurrogateConfig` to a folder with a trained network, its record and its figures."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import torch
from lightning.pytorch import Trainer
from lightning.pytorch.loggers import Logger
from lightning.pytorch.utilities.exceptions import MisconfigurationException
from rich.console import Console

from pinnfuse import tasks
from pinnfuse.callbacks import Checkpoints, FirstLook, GracefulStop, PeerWatch, RunProgress, Stopwatch
from pinnfuse.datamodules.grids import GridDataModule
from pinnfuse.models.operators import for_task
from pinnfuse.models.surrogate import GridSurrogate
from pinnfuse.optimizers import total_steps
from pinnfuse.tasks import MapTask, WindowTask
from pinnfuse.tracking import History, QuietWandbLogger
from pinnfuse.training import cli, surrogate_measures
from pinnfuse.training.files import write_whole
from pinnfuse.training.fitting import trainer_options
from pinnfuse.training.quiet import first_process
from pinnfuse.training.run import (
    find_checkpoint,
    make_folder,
    read_checkpoint,
    resume_with,
    run_folder,
    strategy_for,
)
from pinnfuse.training.summary import device_name, finite, versions
from pinnfuse.training.surrogate_config import SurrogateConfig
from pinnfuse.training.surrogate_summary import SurrogateSummary


class SurrogateRun:
    """A run that is set up but not started; the interface of `Run`.

    Args:
        config: resolved, see `pinnfuse.training.cli.parse`.
        console: of the progress bar.
    """

    def __init__(self, config: SurrogateConfig, console: Console | None = None):
        self.config = config
        self.task = tasks.get(config.pde, **config.options)
        self.folder = run_folder(replace(config, problem=config.model))
        config.out = str(self.folder)
        if first_process():
            make_folder(self.folder, config.resume)
        self.checkpoint = find_checkpoint(config.resume) if config.resume else None
        training = config.training
        planned = total_steps(training.phases)
        self.steps = planned if config.max_steps is None else min(config.max_steps, planned)
        torch.manual_seed(config.seed)
        net = for_task(self.task, config.model, **config.network)
        self.module = GridSurrogate(self.task, net, training, config.backend, config.record.log_every)
        self.resumed_at = self._resume(self.checkpoint) if self.checkpoint else 0
        device = "cuda" if config.accelerator in ("auto", "gpu") and torch.cuda.is_available() else "cpu"
        self.data = GridDataModule(self.task, training, config.seed, config.data, planned, device=device)
        self.stopwatch = Stopwatch(self.data.points_per_step, training.max_seconds)
        self.stop = GracefulStop()
        self.history = History(None if config.logger == "none" else self.folder / "metrics.csv")
        self.trainer = self._trainer(console or Console())

    def _resume(self, path: str) -> int:
        """Check that the checkpoint is whole and fits; returns the steps it has done. The trainer loads it."""
        checkpoint = read_checkpoint(path)
        try:
            self.module.load_state_dict(checkpoint["state_dict"])
        except RuntimeError as error:
            raise ValueError(
                f"--resume: {path} holds another network or task than these options describe. Leave out options that "
                f"change them.\n{error}"
            ) from error
        return int(checkpoint["pinnfuse"]["step"])

    def _trainer(self, console: Console) -> Trainer:
        config, record = self.config, self.config.record
        options = trainer_options(self.steps, record.log_every, max(1, record.validate_every), config.accelerator)
        loggers: list[Logger] = [self.history]
        if config.logger == "wandb":
            loggers.append(QuietWandbLogger(self.folder, record.project, asdict(config)))
        options |= {
            "devices": config.devices,
            "num_nodes": config.num_nodes,
            "strategy": config.strategy,
            "logger": loggers,
            "callbacks": [
                PeerWatch(resume_with(self.folder)),
                self.stop,
                self.stopwatch,
                Checkpoints(self.folder / "checkpoints", record.checkpoint_seconds),
                FirstLook(record.validate_first),
                RunProgress(f"{config.pde.replace('_', ' ')}, {config.model}", self.steps, console),
            ],
        }
        try:
            options["strategy"] = strategy_for(options | config.trainer)
            return Trainer(**options | config.trainer)
        except (MisconfigurationException, TypeError, ImportError) as error:
            raise ValueError(f"Lightning refuses these settings (--devices, --strategy, --trainer): {error}") from error

    def prepare(self, say: Callable[[str], None] = lambda text: None) -> None:
        """What takes seconds before the first step: samples, W&B.

        Args:
            say: told what is being done.
        """
        if self.config.threads is not None:
            if self.config.threads < 1:
                raise ValueError(f"`threads` must be at least 1, or left out; got {self.config.threads}")
            torch.set_num_threads(self.config.threads)
        say("reading the samples" if self.config.data else "computing samples (kept for later runs)")
        self.data.prepare(lambda done, count: say(f"computing samples (kept for later runs): {done} of {count}"))
        if not self.checkpoint:
            self.module.calibrate(self.data.examples())
        for logger in self.trainer.loggers:
            if isinstance(logger, QuietWandbLogger):
                say("starting Weights & Biases")
                logger.experiment  # noqa: B018  # which starts it

    def fit(self) -> None:
        """Train to the end of the schedule, a limit, or Ctrl-C."""
        self.prepare()
        if first_process():
            cli.save(self.config, self.folder / "config.yaml")
        if self.checkpoint:
            self.history.resume(self.resumed_at)
        safe: dict[str, Any] = (
            {"weights_only": True} if "weights_only" in inspect.signature(Trainer.fit).parameters else {}
        )
        self.trainer.fit(self.module, self.data, ckpt_path=self.checkpoint, **safe)

    def finish(self) -> SurrogateSummary:
        """Compare with held-out solutions, write `summary.json` and `figures/`; returns the summary."""
        self.trainer.validate(self.module, self.data, verbose=False)
        self.module.to(self.trainer.strategy.root_device).eval()  # Lightning has put it on the CPU
        found = surrogate_measures.predicted(self.module, self.data)
        summary = self.summary(found)
        if self.trainer.is_global_zero:
            summary.write(self.folder / "summary.json")
            files = self.draw(found) if self.config.record.figures else {}
            rollout = [
                {"time": time} | dict(zip(self.task.fields, errors.tolist(), strict=True))
                for time, errors in zip(found.times, found.errors, strict=False)
            ]
            if rollout:
                rows = [",".join(rollout[0]), *(",".join(f"{value:.9g}" for value in row.values()) for row in rollout)]
                write_whole(self.folder / "rollout.csv", "\n".join(rows) + "\n")
            for logger in self.trainer.loggers:
                if isinstance(logger, QuietWandbLogger):
                    for row in rollout:
                        logger.experiment.log({f"rollout/{name}": value for name, value in row.items()})
                    logger.finish(files, finite(asdict(summary)))
                logger.save()
        return summary

    def summary(self, found: surrogate_measures.Predicted) -> SurrogateSummary:
        """Of the run so far."""
        module, config, spec = self.module, self.config, self.config.training
        batch = surrogate_measures.batches(module, self.data)[0]
        times = surrogate_measures.costs(module, batch, config.record.speedup_steps) if self._measures else {}
        cost = times["step_ms"] / times["data_step_ms"] if times else None
        fields = self.task.residual(batch.inputs, batch.targets).fields
        return SurrogateSummary(
            pde=config.pde,
            model=str(config.model),
            backend=module.physics.explain(fields).backend,
            precision=spec.precision,
            device=device_name(module.device),
            seed=config.seed,
            steps=module.global_step,
            seconds=self.stopwatch.seconds,
            loss=module.last_loss,
            rel_l2=dict(module.rel_l2),
            rollout_rel_l2=(
                {name: float(e) for name, e in zip(self.task.fields, found.errors[-1], strict=True)}
                if found.times
                else {}
            ),
            physics=module.last_physics,
            data_physics=surrogate_measures.data_physics(module, self.data),
            samples=len(self.data.train),
            held_out=len(self.data.held_out),
            labelled=min(spec.labelled_samples, len(self.data.train)),
            shape=list(self.task.shape),
            parameters=sum(p.numel() for p in module.net.parameters()),
            physics_ms=times.get("physics_ms"),
            step_ms=times.get("step_ms"),
            data_step_ms=times.get("data_step_ms"),
            physics_cost=cost,
            eager_step_ms=times.get("eager_step_ms"),
            fine_tuning=surrogate_measures.fine_tuning(module, self.data) if spec.fine_tune_steps else None,
            versions=versions(),
        )

    @property
    def _measures(self) -> bool:
        return self.config.record.speedup_steps > 0

    def draw(self, found: surrogate_measures.Predicted) -> dict[str, Path]:
        """Draw the figures; returns {name: file}."""
        from pinnfuse.figures.surrogate_report import SurrogateReport

        task = self.task
        report = SurrogateReport(
            grid=task.grid,
            names=task.fields,
            given=task.given if isinstance(task, MapTask) else None,
            inputs=found.inputs,
            prediction=found.prediction,
            reference=found.reference,
            errors=found.errors,
            times=found.times,
            window=task.step * task.ahead if isinstance(task, WindowTask) else 0.0,
            folder=self.folder / "figures",
        )
        return report.draw(self.history.series(), tuple(task.pde.equations), self.module.phase_starts)
