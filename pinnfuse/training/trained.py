"""The network that a run left behind, for whoever wants its fields."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from pinnfuse import problems
from pinnfuse.models import for_problem
from pinnfuse.models.transform import set_constants
from pinnfuse.problems import Problem
from pinnfuse.problems.windows import Windowed, edges, window
from pinnfuse.training import cli
from pinnfuse.training.config import RunConfig
from pinnfuse.training.folder import read_checkpoint

WEIGHTS = "weights.pt"
"""Written by `keep_weights`: a checkpoint without optimiser and loops."""


def trained(folder: str | Path, **options: Any) -> tuple[Problem, nn.Module]:
    """Problem and network of a run's folder, in the precision of the run, on the CPU; of all finished windows, if any.

    Args:
        folder: of the run, with `config.yaml` and checkpoints, or `weights.pt` in their place.
        options: replace those of the problem (a file that lies elsewhere now).

    Raises:
        ValueError: there is no checkpoint, or it belongs to another problem.
    """
    folder = Path(folder)
    moved = [f"--options.{name}={value}" for name, value in options.items()]
    config = cli.parse(["--config", str(folder / "config.yaml"), *moved])
    problem = problems.get(config.pde, config.problem, **config.options)
    if config.training.windows == 1:
        return problem, network_of(problem, config, folder)
    ends = edges(problem, config.training.windows)
    done = [path for path in sorted(folder.glob("window_*")) if find_weights(path) is not None]
    if not done:
        raise ValueError(f"trained: no window of {folder} has a checkpoint.")
    parts = [window(problem, ends[k], ends[k + 1], None if k == 0 else unused) for k in range(len(done))]
    nets = [network_of(part, config, path) for part, path in zip(parts, done, strict=True)]
    return window(problem, ends[0], ends[len(nets)]), Windowed(nets, ends, problem.domain.axis("t"))


def find_weights(folder: Path) -> Path | None:
    """The last checkpoint of a run, else its best one; before both `weights.pt`."""
    paths = [folder / WEIGHTS, *(folder / "checkpoints" / f"{name}.ckpt" for name in ("last", "best"))]
    return next((path for path in paths if path.is_file()), None)


def keep_weights(folder: str | Path, out: str | Path) -> None:
    """Copy of a run (and its windows) that `trained` reads, without all that only a resumed run needs."""
    folder, out = Path(folder), Path(out)
    for part in (folder, *sorted(folder.glob("window_*"))):
        there = out / part.relative_to(folder)
        there.mkdir(parents=True, exist_ok=True)
        for name in ("config.yaml", "summary.json", "metrics.csv"):
            if (part / name).is_file():
                (there / name).write_bytes((part / name).read_bytes())
        if (path := find_weights(part)) is not None:
            checkpoint = read_checkpoint(str(path))
            torch.save({key: checkpoint[key] for key in ("state_dict", "pinnfuse")}, there / WEIGHTS)


def network_of(problem: Problem, config: RunConfig, folder: Path) -> nn.Module:
    """The network of one run, or of one window of one, on the CPU."""
    path = find_weights(folder)
    if path is None:
        raise ValueError(f"trained: there is no checkpoint in {folder}.")
    spec = config.training
    net = for_problem(problem, config.model, spec.hard, **config.network).to(getattr(torch, spec.precision))
    saved = read_checkpoint(str(path))["state_dict"]
    try:
        net.load_state_dict({name[4:]: value for name, value in saved.items() if name.startswith("net.")})
    except RuntimeError as error:
        raise ValueError(
            f"trained: {path} holds another network than {folder / 'config.yaml'} says.\n{error}"
        ) from error
    set_constants(net, saved.get("loss.interior._extra_state", {}))
    return net.requires_grad_(False)


def unused(points: Tensor, jet: str) -> Tensor:
    raise AssertionError("the state of a window that is not trained again")
