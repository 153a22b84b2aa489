"""Steps per second of training through `Trainer.fit`: plain, captured, with inner steps, with new points every step.

    python benchmarks/training_steps.py benchmarks/results [--steps 3000] [--rounds 3]     # plain: a tenth of the steps

burgers, 6 hidden layers of 64, 4,096 points, Adam. A row is the median over the rounds (variants take turns);
compilation, capture and the first 200 steps are not counted. Writes `<out>/<card>/training_steps.json`.
"""

from __future__ import annotations

import dataclasses
import json
import statistics
import time
from pathlib import Path
from typing import Any

import torch
from jsonargparse import auto_cli
from lightning.pytorch import Callback, Trainer

from pinnfuse import problems
from pinnfuse.bench import machine
from pinnfuse.datamodules import CollocationDataModule
from pinnfuse.models import PINN, for_problem
from pinnfuse.optimizers import Phase
from pinnfuse.problems import TrainingSpec
from pinnfuse.training.quiet import silence

FIRST = 200
PLAIN = TrainingSpec(interior=4096, sampler="uniform", resample_every=0, precision="float32", graph=False)
INNER = dataclasses.replace(PLAIN, graph=True, inner_steps=100)
VARIANTS = {  # what matters most comes first: a run that is cut off has it
    "captured, 100 inner steps": INNER,
    "captured, 100 inner steps, new points every step": dataclasses.replace(INNER, resample_every=1),
    "captured": dataclasses.replace(PLAIN, graph=True),
    "plain": PLAIN,
    "captured, 100 inner steps, new points every 200 steps": dataclasses.replace(
        INNER, resample_every=200, sampler="sobol"
    ),
}


class Clock(Callback):
    """Seconds of the steps after the first ones."""

    def __init__(self) -> None:
        self.marks: list[tuple[int, float]] = []

    def on_train_batch_end(self, trainer: Trainer, *unused: Any) -> None:
        step = trainer.global_step
        if (not self.marks and step >= FIRST) or step == trainer.max_steps:
            if torch.cuda.is_available():
                torch.cuda.synchronize()
            self.marks.append((step, time.perf_counter()))

    @property
    def steps_per_second(self) -> float:
        (first, start), (last, end) = self.marks[0], self.marks[-1]
        return (last - first) / (end - start)


def measure(spec: TrainingSpec, steps: int) -> tuple[float, str, float]:
    """Steps per second, how steps ran, and the last loss."""
    problem = problems.get("burgers")
    torch.manual_seed(0)
    spec = dataclasses.replace(spec, phases=[Phase("adam", steps, 1e-3)])
    net = for_problem(problem, "mlp", width=64, depth=6)
    module, clock = PINN(problem, net, spec, log_every=1000), Clock()
    quiet = {"logger": False, "enable_checkpointing": False, "enable_progress_bar": False, "max_epochs": -1}
    trainer = Trainer(
        **quiet, devices=1, max_steps=steps, limit_val_batches=0, enable_model_summary=False, callbacks=[clock]
    )
    trainer.fit(module, CollocationDataModule(problem, spec))
    return clock.steps_per_second, module.explain(), module.last_loss


def main(out: str, steps: int = 3000, rounds: int = 3) -> None:
    silence()
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    found: dict[str, list[tuple[float, str, float]]] = {}
    for _ in range(rounds):
        for name, spec in VARIANTS.items():
            runs = found.setdefault(name, [])
            runs.append(measure(spec, steps if spec.graph else max(FIRST + 100, steps // 10)))
            print(f"{runs[-1][0]:9.1f} steps/s  {name}", flush=True)
            write(out, device, steps, found)
    for name, runs in found.items():
        median = statistics.median(r[0] for r in runs)
        print(f"{median:9.1f} steps/s, median  {name}  {runs[-1][1].splitlines()[-1]}")


def write(out: str, device: torch.device, steps: int, found: dict[str, list[tuple[float, str, float]]]) -> None:
    """`<out>/<card>/training_steps.json` with what was measured so far."""
    rows = {
        name: {
            "steps_per_second": round(statistics.median(r[0] for r in runs), 1),
            "all": [round(r[0], 1) for r in runs],
            "loss": runs[-1][2],
            "how": runs[-1][1].splitlines(),
        }
        for name, runs in found.items()
    }
    folder = Path(out) / machine.name(device).replace(" ", "_")
    folder.mkdir(parents=True, exist_ok=True)
    result = machine.head(device) | {"steps": steps, "rows": rows}
    (folder / "training_steps.json").write_text(json.dumps(result, indent=2) + "\n")


if __name__ == "__main__":
    auto_cli(main, description=(__doc__ or "").splitlines()[0])
