"""One run: from a `RunConfig` to a folder with a trained network, its record and its figures."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from rich.console import Console

from pinnfuse import problems
from pinnfuse.callbacks import SpeedupMonitor, Stopwatch, from_spec
from pinnfuse.datamodules import CollocationDataModule
from pinnfuse.models import PINN, for_problem
from pinnfuse.problems import Problem
from pinnfuse.training import threads as cores
from pinnfuse.training.base import TrainingRun
from pinnfuse.training.config import RunConfig
from pinnfuse.training.fitting import use_threads
from pinnfuse.training.summary import Summary, device_name, versions


class Run(TrainingRun):
    """A run of a problem. `fit` trains, `finish` writes summary and figures.

    Args:
        config: resolved, see `pinnfuse.training.parse`.
        console: of the progress bar.
        problem: in place of the one that the configuration names (a window of it).
    """

    holds = "network or problem"
    module: PINN
    data: CollocationDataModule

    def __init__(self, config: RunConfig, console: Console | None = None, problem: Problem | None = None):
        self.problem = problem or problems.get(config.pde, config.problem, **config.options)
        super().__init__(config)
        training, record = config.training, config.record
        net = for_problem(self.problem, config.model, training.hard, **config.network)
        self.module = PINN(self.problem, net, training, config.backend, record.log_every)
        self.data = CollocationDataModule(self.problem, training, config.seed, self.planned)
        self.stopwatch = Stopwatch(self.data.points_per_step, training.max_seconds)
        self.speedup = SpeedupMonitor(self.stopwatch, record.speedup_steps, at_end=record.speedup_at_end)
        callbacks = [self.speedup, *from_spec(training, config.seed)]
        self.set_up(console or Console(), self.problem.name.replace("_", " "), callbacks, training.inner_steps)

    def _prepare(self, say: Callable[[str], None]) -> None:
        say("computing the reference solution (kept for later runs)")
        self.problem.evaluation_points()
        if self.trainer.strategy.root_device.type == "cpu" and self.trainer.world_size == 1:
            wanted = cores.wanted(self.config.threads)
            if wanted is None:
                say("choosing the number of threads")
            self.config.threads = use_threads(wanted, self.module, self.data)

    def finish(self) -> Summary:
        """Compare with the reference, write `summary.json` and `figures/`; returns the summary."""
        self.trainer.validate(self.module, self.data, verbose=False)
        summary = self.summary()
        if self.trainer.is_global_zero:
            summary.write(self.folder / "summary.json")
            files = self.draw() if self.config.record.figures else {}
            self.log_end(files, summary)
        return summary

    def summary(self) -> Summary:
        """Of the run so far."""
        ours, nested = self.speedup.ours, self.speedup.baseline
        device = self.trainer.strategy.root_device
        self.module.to(device)  # Lightning has put it on the CPU
        points = self.data.draw(0, device=device)["interior"].points
        return Summary(
            pde=self.problem.pde_name,
            problem=self.problem.name,
            backend=self.module.loss.interior.explain(self.module.net, points).backend,
            precision=self.config.training.precision,
            device=device_name(device),
            seed=self.config.seed,
            steps=self.module.global_step,
            seconds=self.stopwatch.seconds,
            loss=self.module.last_loss,
            rel_l2=dict(self.module.rel_l2),
            parameters={
                name: {"found": float(value.detach()), "true": self.problem.true_parameters.get(name)}
                for name, value in self.module.loss.interior.parameter_values().items()
            },
            step_ms=ours.step_ms if ours else None,
            autograd_step_ms=nested.step_ms if nested else None,
            speedup=self.speedup.speedup,
            peak_memory_mb=ours.memory_mb if ours else None,
            autograd_peak_memory_mb=nested.memory_mb if nested else None,
            versions=versions(),
        )

    def draw(self) -> dict[str, Path]:
        """Draw the figures; returns {name: file}."""
        from pinnfuse.figures import Report

        report = Report(self.problem, self.module.predict_numpy, self.folder / "figures", self.config.record.animations)
        return report.draw(self.history.series(), self.module.phase_starts)
