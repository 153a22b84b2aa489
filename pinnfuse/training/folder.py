"""The folder of a run: its name, its checkpoints, and what goes on with it."""

from __future__ import annotations

import os
import time
import zipfile
from pathlib import Path
from typing import Any

import torch

from pinnfuse.training.config import RunConfig

_FOLDER = "PINNFUSE_RUN_FOLDER"  # tells the processes that a distributed run launches where the first one writes


def run_folder(config: RunConfig, kind: str | None = None) -> Path:
    """Where the run writes, `config.out`; by default a new folder, the same in all processes of the run.

    Args:
        kind: second part of the new folder's name; the problem's by default.
    """
    if config.out is None:
        name = f"{config.pde}-{kind or config.problem}-{_unique()}"
        config.out = os.environ.get(_FOLDER) or str(Path("runs") / name)
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


def resume_with(folder: Path) -> str:
    """What goes on with a run."""
    return f"go on with: python train.py --resume {folder}"
