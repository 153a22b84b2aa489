"""One run of a surrogate: from a `SurrogateConfig` to a folder with a trained network, its record and its figures."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import torch
from rich.console import Console

from pinnfuse import tasks
from pinnfuse.callbacks import Stopwatch
from pinnfuse.datamodules.grids import GridDataModule
from pinnfuse.files import write_whole
from pinnfuse.models.operators import for_task
from pinnfuse.models.surrogate import GridSurrogate
from pinnfuse.tasks import MapTask, WindowTask
from pinnfuse.tracking import QuietWandbLogger
from pinnfuse.training import surrogate_measures
from pinnfuse.training.base import TrainingRun
from pinnfuse.training.summary import device_name, versions
from pinnfuse.training.surrogate_config import SurrogateConfig
from pinnfuse.training.surrogate_summary import SurrogateSummary


class SurrogateRun(TrainingRun):
    """A run of a task; the interface of `Run`.

    Args:
        config: resolved, see `pinnfuse.training.cli.parse`.
        console: of the progress bar.
    """

    holds = "network or task"
    config: SurrogateConfig
    module: GridSurrogate
    data: GridDataModule

    def __init__(self, config: SurrogateConfig, console: Console | None = None):
        self.task = tasks.get(config.pde, **config.options)
        super().__init__(config, config.model)
        training = config.training
        net = for_task(self.task, config.model, **config.network)
        self.module = GridSurrogate(self.task, net, training, config.backend, config.record.log_every)
        device = "cuda" if config.accelerator in ("auto", "gpu") and torch.cuda.is_available() else "cpu"
        self.data = GridDataModule(self.task, training, config.seed, config.data, self.planned, device=device)
        self.stopwatch = Stopwatch(self.data.points_per_step, training.max_seconds)
        self.set_up(console or Console(), f"{config.pde.replace('_', ' ')}, {config.model}")

    def _prepare(self, say: Callable[[str], None]) -> None:
        if self.config.threads is not None:
            if self.config.threads < 1:
                raise ValueError(f"`threads` must be at least 1, or left out; got {self.config.threads}")
            torch.set_num_threads(self.config.threads)
        say("reading the samples" if self.config.data else "computing samples (kept for later runs)")
        self.data.prepare(lambda done, count: say(f"computing samples (kept for later runs): {done} of {count}"))
        if not self.checkpoint:
            self.module.calibrate(self.data.examples())

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
            self.log_end(files, summary)
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
            step=module.explain_step(),
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
