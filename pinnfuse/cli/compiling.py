"""`pinnfuse compile`: the kernels of a problem's loss, compiled for a card that is not here.

For images of containers and for nodes without a card: Triton's cache is filled before the first job starts.
"""

from __future__ import annotations

import os
from collections import defaultdict
from pathlib import Path
from typing import TYPE_CHECKING

from jsonargparse import ArgumentParser, Namespace
from rich.console import Console
from rich.table import Table

if TYPE_CHECKING:
    import torch

    from pinnfuse.kernels.absent import Compiled


def parser() -> ArgumentParser:
    made = ArgumentParser(
        description="Compile the kernels of a problem's loss and gradients for a card that is not here. They lie in "
        "Triton's cache (TRITON_CACHE_DIR); a job finds them there under the same path, with the same Triton."
    )
    made.add_argument("--card", type=str, required=True, help="a100, h100, h200 or b200")
    made.add_argument("--pde", type=str, required=True, help="as train.py")
    made.add_argument("--problem", type=str, default=None, help="as train.py")
    made.add_argument("--model", type=str, default=None, help="another network than the problem's own")
    made.add_argument("--width", type=int, default=None, help="of the hidden layers")
    made.add_argument("--depth", type=int, default=None, help="number of hidden layers")
    made.add_argument("--points", type=int, default=65536, help="of a step")
    made.add_argument("--precision", type=str, default="float32", help="float32, tf32, bf16x3 or float64")
    return made


def run(options: Namespace, console: Console) -> int:
    """Compile, and show what was compiled; returns the exit status."""
    import torch

    from pinnfuse import precision as precisions
    from pinnfuse.kernels.absent import card

    if options.points < 1:
        raise ValueError(f"--points: expected a positive integer; got {options.points}.")
    dtype = torch.float64 if options.precision == "float64" else torch.float32
    precisions.resolve(options.precision, dtype, "pinnfuse compile")
    with console.status(f"compiling for {options.card}"), card(options.card) as compiled:
        _steps(options, dtype)
    _show(compiled, console)
    return 0


def _steps(options: Namespace, dtype: torch.dtype) -> None:
    """Every way in which a training asks for a loss: with and without weights of the points, and residuals alone."""
    import torch

    from pinnfuse import FusedResidualLoss, models, problems

    problem = problems.get(options.pde, options.problem)
    sizes = {name: options[name] for name in ("width", "depth") if options[name] is not None}
    net = models.for_problem(problem, options.model, **sizes).to("cuda", dtype)
    loss = FusedResidualLoss(problem.pde, backend="triton", precision=options.precision).to("cuda", dtype)
    low, high = torch.tensor([problem.domain.bounds[c] for c in problem.pde.coordinates], dtype=dtype).unbind(1)
    points = low + (high - low) * torch.rand(options.points, len(low), dtype=dtype)
    data = {name: torch.zeros(len(points), dtype=dtype) for name in problem.pde.data}
    for weights in (None, torch.ones(len(points), 1, dtype=dtype)):
        loss(net, points, weights, data).backward()
        evaluation = loss.evaluate(net, points, weights, data)
        evaluation.loss.backward()
    loss.residuals(net, points, data).sum().backward()
    with torch.no_grad():
        loss(net, points, None, data)


def _show(compiled: list[Compiled], console: Console) -> None:
    rows: dict[str, list[float]] = defaultdict(list)
    for kernel in compiled:
        rows[kernel.kernel].append(sum(kernel.seconds.values()))
    table = Table("kernel", "variants", "compiled now", "seconds")
    for name, seconds in rows.items():
        table.add_row(name, str(len(seconds)), str(sum(s > 0 for s in seconds)), f"{sum(seconds):.1f}")
    console.print(table)
    folder = os.environ.get("TRITON_CACHE_DIR") or str(Path.home() / ".triton" / "cache")
    console.print(f"{len(compiled)} kernels in {folder}", soft_wrap=True, highlight=False)
