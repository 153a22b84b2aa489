"""One run: from a `RunConfig` to a folder with a trained network, its record and its figures."""

from __future__ import annotations

import inspect
import os
import time
import zipfile
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from lightning.pytorch import Trainer
from lightning.pytorch.loggers import Logger
from lightning.pytorch.strategies import DDPStrategy, Strategy
from lightning.pytorch.utilities.exceptions import MisconfigurationException
from rich.console import Console

from pinnfuse import problems
from pinnfuse.callbacks import (
    Checkpoints,
    FirstLook,
    GracefulStop,
    PeerWatch,
    RunProgress,
    SpeedupMonitor,
    Stopwatch,
    from_spec,
)
from pinnfuse.datamodules import CollocationDataModule
from pinnfuse.models import PINN, DataParallel, for_problem
from pinnfuse.optimizers import total_steps
from pinnfuse.problems import Problem
from pinnfuse.tracking import History, QuietWandbLogger
from pinnfuse.training import cli
from pinnfuse.training import threads as cores
from pinnfuse.training.config import RunConfig
from pinnfuse.training.fitting import trainer_options, use_threads
from pinnfuse.training.quiet import first_process
from pinnfuse.training.summary import Summary, device_name, finite, versions

_FOLDER = "PINNFUSE_RUN_FOLDER"  # tells the processes that a distributed run launches where the first one writes


class Run:
    """A run that is set up but not started. `fit` trains, `finish` writes summary and figures.

    Args:
        config: resolved, see `pinnfuse.training.parse`.
        console: of the progress bar.
        problem: in place of the one that the configuration names (a window of it).
    """

    def __init__(self, config: RunConfig, console: Console | None = None, problem: Problem | None = None):
        self.config = config
        self.problem = problem or problems.get(config.pde, config.problem, **config.options)
        self.folder = run_folder(config)
        if first_process():
            make_folder(self.folder, config.resume)
        self.checkpoint = find_checkpoint(config.resume) if config.resume else None
        training = config.training
        planned = total_steps(training.phases)
        self.steps = planned if config.max_steps is None else min(config.max_steps, planned)
        torch.manual_seed(config.seed)
        net = for_problem(self.problem, config.model, training.hard, **config.network)
        self.module = PINN(self.problem, net, training, config.backend, config.record.log_every)
        self.resumed_at = self._resume(self.checkpoint) if self.checkpoint else 0
        self.data = CollocationDataModule(self.problem, training, config.seed, planned)
        self.stopwatch = Stopwatch(self.data.points_per_step, training.max_seconds)
        self.speedup = SpeedupMonitor(self.stopwatch, config.record.speedup_steps, at_end=config.record.speedup_at_end)
        self.checkpoints = Checkpoints(self.folder / "checkpoints", config.record.checkpoint_seconds)
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
                f"--resume: {path} holds another network or problem than these options describe. "
                f"Leave out options that change them.\n{error}"
            ) from error
        return int(checkpoint["pinnfuse"]["step"])

    def _trainer(self, console: Console) -> Trainer:
        config, record = self.config, self.config.record
        inner = config.training.inner_steps
        title = self.problem.name.replace("_", " ")
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
                self.speedup,
                *from_spec(config.training, config.seed),
                self.checkpoints,
                FirstLook(record.validate_first, inner),
                RunProgress(title, self.steps, console),
            ],
        }
        try:
            options["strategy"] = strategy_for(options | config.trainer)
            return Trainer(**options | config.trainer)
        except (MisconfigurationException, TypeError, ImportError) as error:
            raise ValueError(f"Lightning refuses these settings (--devices, --strategy, --trainer): {error}") from error

    def _loggers(self) -> list[Logger]:
        loggers: list[Logger] = [self.history]
        if self.config.logger == "wandb":
            loggers.append(QuietWandbLogger(self.folder, self.config.record.project, asdict(self.config)))
        return loggers

    def prepare(self, say: Callable[[str], None] = lambda text: None) -> None:
        """What takes seconds before the first step, where a caller wants to say so; `fit` would do it, too.

        Args:
            say: told what is being done.
        """
        say("computing the reference solution (kept for later runs)")
        self.problem.evaluation_points()
        for logger in self.trainer.loggers:
            if isinstance(logger, QuietWandbLogger):
                say("starting Weights & Biases")
                logger.experiment  # noqa: B018  # which starts it
        say("trying how many threads are fastest")
        self._choose_threads()

    def _choose_threads(self) -> None:
        if self.trainer.strategy.root_device.type == "cpu" and self.trainer.world_size == 1:
            self.config.threads = use_threads(cores.wanted(self.config.threads), self.module, self.data)

    def fit(self) -> None:
        """Train to the end of the schedule, a limit, or Ctrl-C."""
        self._choose_threads()
        if first_process():
            cli.save(self.config, self.folder / "config.yaml")
        if self.checkpoint:
            self.history.resume(self.resumed_at)
        safe: dict[str, Any] = (
            {"weights_only": True} if "weights_only" in inspect.signature(Trainer.fit).parameters else {}
        )
        self.trainer.fit(self.module, self.data, ckpt_path=self.checkpoint, **safe)

    def finish(self) -> Summary:
        """Compare with the reference, write `summary.json` and `figures/`; returns the summary."""
        self.trainer.validate(self.module, self.data, verbose=False)
        summary = self.summary()
        if self.trainer.is_global_zero:
            summary.write(self.folder / "summary.json")
            files = self.draw() if self.config.record.figures else {}
            for logger in self.trainer.loggers:
                if isinstance(logger, QuietWandbLogger):
                    logger.finish(files, finite(asdict(summary)))
                logger.save()
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


def resume_with(folder: Path) -> str:
    """What goes on with a run."""
    return f"go on with: python train.py --resume {folder}"


def strategy_for(options: dict[str, Any]) -> str | Strategy:
    """Ours where Lightning would take DDP for these devices and nodes, else what was asked for."""
    if options["strategy"] not in ("auto", "ddp"):
        return options["strategy"]
    silent = {"logger": False, "enable_progress_bar": False, "enable_checkpointing": False, "callbacks": None}
    found = Trainer(**options | silent).strategy
    return DataParallel() if type(found) is DDPStrategy else options["strategy"]


def run_folder(config: RunConfig) -> Path:
    """Where the run writes; by default a new folder, the same in all processes of the run."""
    if config.out is None:
        config.out = os.environ.get(_FOLDER) or str(Path("runs") / f"{config.pde}-{config.problem}-{_unique()}")
        os.environ[_FOLDER] = config.out
    return Path(config.out)


def _unique() -> str:
    """The time; where others than Lightning start the processes, the number of the job, which all of them know."""
    if os.environ.get("TORCHELASTIC_RUN_ID") is None and int(os.environ.get("SLURM_NTASKS") or 1) == 1:
        return time.strftime("%Y%m%d-%H%M%S")
    for name in ("SLURM_JOB_ID", "TORCHELASTIC_RUN_ID"):
        if os.environ.get(name, "none") != "none":
            return os.environ[name]
    raise ValueError("--out: must be given under torchrun without --rdzv-id: its processes share no name for the run.")


def make_folder(folder: Path, resume: str | None) -> None:
    """Create it; ValueError if that is impossible, or if it holds another run that would be overwritten."""
    if resume is None and (folder / "config.yaml").exists():
        resumable = any((folder / "checkpoints").glob("*.ckpt"))
        remedy = f"Give another folder, or {f'go on with --resume {folder}' if resumable else 'delete that one'}."
        raise ValueError(f"--out: {folder} holds a run already. {remedy}")
    try:
        (folder / "checkpoints").mkdir(parents=True, exist_ok=True)
        (folder / ".writable").touch()
        (folder / ".writable").unlink()
    except OSError as error:
        raise ValueError(f"--out: cannot write to {folder} ({error}). Give a folder that can be written.") from error


def find_checkpoint(resume: str) -> str:
    """The checkpoint that `--resume` means: a file, or `checkpoints/last.ckpt` of a run's folder."""
    path = Path(resume)
    if path.is_dir():
        path = path / "checkpoints" / "last.ckpt"
    if not path.is_file():
        raise ValueError(f"--resume: there is no checkpoint {path}. Give the folder of a run, or a .ckpt file in it.")
    return str(path)


def read_checkpoint(path: str) -> dict[str, Any]:
    """A checkpoint of a run; ValueError if it is damaged or something else."""
    try:
        with zipfile.ZipFile(path) as parts:
            if damaged := parts.testzip():  # torch.load does not look at the checksums
                raise ValueError(f"the checksum of {damaged} is wrong")
        checkpoint = torch.load(path, map_location="cpu", weights_only=True)
        checkpoint["pinnfuse"]["step"]
    except Exception as error:
        reason = str(error).strip().partition("\n")[0] or type(error).__name__
        raise ValueError(
            f"--resume: {path} is damaged, or not a checkpoint of a run ({reason}). "
            "Resume from the other one in its folder (last.ckpt or best.ckpt), or start anew without --resume."
        ) from error
    return checkpoint
