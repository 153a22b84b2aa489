"""Samples of a task computed once, in shards on disk: checked when read, continued after a kill.

A folder holds `task.json`, what the samples depend on, and for every shard `train-00000.pt` with `train-00000.json`,
its first sample, their number and its SHA-256. Each file is written beside its final name and renamed, the JSON last;
a shard without it, or of another sum, is computed again, all others are kept.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from pinnfuse.datasets.samples import Samples
from pinnfuse.files import whole_file, write_whole
from pinnfuse.reference.cache import directory
from pinnfuse.tasks import Task
from pinnfuse.tasks.task import Arrays

SHARD = 64
"""Samples of one file."""
HELD_OUT = 2**30
"""Index of the first held-out sample: more training samples never reach it."""
FIRST = {"train": 0, "held_out": HELD_OUT}


def identity(task: Task, seed: int) -> dict[str, Any]:
    """What samples depend on, as JSON holds it."""
    return {"task": task.name, "version": task.version, "seed": seed, "options": dict(task.options)}


def folder_of(task: Task, seed: int) -> Path:
    """In the user's cache directory ($PINNFUSE_CACHE), named after the task and a digest of `identity`."""
    key = json.dumps(identity(task, seed), sort_keys=True)
    return directory() / "datasets" / f"{task.name}-{hashlib.sha256(key.encode()).hexdigest()[:16]}"


def generated(
    task: Task,
    split: str,
    count: int,
    seed: int = 0,
    *,
    folder: Path | None = None,
    shard: int = SHARD,
    device: torch.device | str = "cpu",
    report: Callable[[int, int], None] | None = None,
) -> Samples:
    """The first `count` samples of a split, from the folder or computed; what is computed is kept there.

    Args:
        split: "train" or "held_out".
        folder: None takes `folder_of(task, seed)`. One that cannot be written is no error: then nothing is kept.
        shard: samples of one file, a multiple of `task.block`; the samples do not depend on it.
        device: where the solver runs.
        report: called with (samples done, count) after every shard.
    """
    if shard < 1 or shard % task.block:
        raise ValueError(f"generated: `shard` must be a multiple of {task.block}, the task's block; got {shard}.")
    if split not in FIRST:
        raise ValueError(f"generated: `split` must be one of {list(FIRST)}; got {split!r}.")
    folder = folder_of(task, seed) if folder is None else Path(folder)
    with contextlib.suppress(OSError):
        folder.mkdir(parents=True, exist_ok=True)
        write_whole(folder / "task.json", json.dumps(identity(task, seed), indent=2))
    parts = []
    for start in range(0, count, shard):
        wanted = min(shard, count - start)
        path = folder / f"{split}-{start // shard:05d}.pt"
        part = read_shard(path, start, wanted)
        if part is None:
            part = task.generate(FIRST[split] + start, wanted, seed, device)
            with contextlib.suppress(OSError):
                write_shard(path, part, start)
        parts.append({name: tensor[:wanted] for name, tensor in part.items()})
        if report is not None:
            report(start + wanted, count)
    return Samples(parts)


def write_shard(path: Path, arrays: Arrays, first: int) -> None:
    """The file, then its JSON: a shard that has one is whole."""
    path.with_suffix(".json").unlink(missing_ok=True)
    with whole_file(path) as temporary:
        torch.save(arrays, temporary)
        note = {"first": first, "samples": len(next(iter(arrays.values()))), "sha256": digest(temporary)}
    write_whole(path.with_suffix(".json"), json.dumps(note))


def read_shard(path: Path, first: int, least: int) -> Arrays | None:
    """A whole shard from sample `first` on, of at least so many, mapped from the file; None if there is none."""
    try:
        note = json.loads(path.with_suffix(".json").read_text())
        if note["first"] != first or note["samples"] < least or digest(path) != note["sha256"]:
            return None
        return torch.load(path, map_location="cpu", weights_only=True, mmap=True)
    except (OSError, ValueError, KeyError, TypeError, RuntimeError):
        return None


def digest(path: Path) -> str:
    """SHA-256 of a file."""
    found = hashlib.sha256()
    with path.open("rb") as file:
        while piece := file.read(1 << 20):
            found.update(piece)
    return found.hexdigest()
