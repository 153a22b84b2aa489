"""Train a problem of one's own in one call."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from lightning.pytorch import Trainer
from rich.console import Console
from torch import nn

from pinnfuse.callbacks import FirstAndLastLook, GracefulStop, RunProgress, Stopwatch, from_spec
from pinnfuse.callbacks.speedup import training_step
from pinnfuse.datamodules import CollocationDataModule
from pinnfuse.models import PINN, for_problem
from pinnfuse.problems import Problem, TrainingSpec
from pinnfuse.tracking import History
from pinnfuse.training import threads as cores
from pinnfuse.training.quiet import quiet


def fit(
    problem: Problem,
    net: nn.Module | None = None,
    *,
    training: TrainingSpec | None = None,
    backend: str = "auto",
    seed: int = 0,
    accelerator: str = "auto",
    threads: int | None = None,
    log_every: int = 50,
    validate_every: int = 500,
    out: str | Path | None = None,
    progress: bool = True,
) -> PINN:
    """Train a network on a problem through all phases, and compare it with the reference.

    Nothing is printed but a progress bar. Ctrl-C ends the training after the step, and the rest goes on.

    Args:
        problem: what to solve.
        net: [N, coordinates] -> [N, fields]; None builds the problem's default network.
        training: phases, points, precision; None takes the problem's default.
        backend: see `pinnfuse.FusedResidualLoss`.
        seed: of the points, and of a network that is built here.
        accelerator: "cpu", "gpu", or "auto": a CUDA card if there is one.
        threads: of torch on a CPU, meanwhile; None tries which number is fastest (unless OMP_NUM_THREADS says it).
        log_every, validate_every: steps between two rows of losses, and between two comparisons with the reference.
        out: folder for `metrics.csv` and `figures/`, made if missing; None writes nothing.
        progress: show the bar.

    Returns:
        The trained module, in evaluation mode: `.rel_l2` {metric: error}, `.net`, `.predict_numpy(points)`, and
        `.loss.interior.parameter_values()` for trained parameters of the PDE.

    Raises:
        ValueError: settings that do not fit together.
        NonFiniteLoss: the loss became NaN or infinite.
    """
    if net is None:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            net = for_problem(problem, hard=(training or problem.training).hard)
    module = PINN(problem, net, training, backend, log_every)
    data = CollocationDataModule(problem, module.training_spec, seed)
    inner = module.training_spec.inner_steps
    folder = None if out is None else Path(out)
    if folder is not None:
        folder.mkdir(parents=True, exist_ok=True)
    history = History(None if folder is None else folder / "metrics.csv")
    limit = Stopwatch(data.points_per_step, module.training_spec.max_seconds)
    bar = RunProgress(problem.name.replace("_", " "), data.steps, Console(quiet=not progress))
    options = trainer_options(data.steps, log_every, max(1, validate_every // inner), accelerator)
    with quiet(), cores.restored(), torch.random.fork_rng(devices=[]):
        if options["accelerator"] == "cpu":
            use_threads(cores.wanted(threads), module, data)
        trainer = Trainer(
            **options,
            logger=history,
            callbacks=[
                GracefulStop(),
                limit,
                *from_spec(module.training_spec, seed),
                FirstAndLastLook(inner_steps=inner),
                bar,
            ],
        )
        trainer.fit(module, data)
        trainer.validate(module, data, verbose=False)
        history.save()
        module.to(trainer.strategy.root_device).eval()  # Lightning has put it on the CPU
    if folder is not None:
        from pinnfuse.figures import Report

        Report(problem, module.predict_numpy, folder / "figures").draw(history.series(), module.phase_starts)
    return module


def trainer_options(steps: int, log_every: int, validate_batches: int, accelerator: str) -> dict[str, Any]:
    """Arguments of Lightning's `Trainer` for a `PINN`: one epoch without end, validation by steps, no noise."""
    if accelerator == "auto":
        accelerator = "gpu" if torch.cuda.is_available() else "cpu"
    return {
        "accelerator": accelerator,
        "devices": 1,
        "max_epochs": -1,
        "max_steps": steps,
        "val_check_interval": validate_batches,
        "check_val_every_n_epoch": None,
        "num_sanity_val_steps": 0,
        "log_every_n_steps": log_every,
        "enable_checkpointing": False,
        "enable_model_summary": False,
        "use_distributed_sampler": False,
    }


def use_threads(wanted: int | None, module: PINN, data: CollocationDataModule) -> int:
    """Set torch's number of threads to the wanted one, or to the fastest in a trial of a few steps; returns it."""
    if wanted is None:
        return cores.by_trial(training_step(module.net, module.loss, data.draw(0)), torch.get_num_threads())
    torch.set_num_threads(wanted)
    return wanted
