"""The folder of a run: its name, its checkpoints, and what goes on with it."""

from __future__ import annotations

import errno
import os
import time
import zipfile
from pathlib import Path
from typing import IO, Any

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


def make_folder(folder: Path, resume: str | None) -> IO[str]:
    """Create it and lock it; the lock lives as long as what is returned, and ends with the process however that ends.

    Raises:
        ValueError: it cannot be written, holds another run that would be overwritten, or another process trains in it.
    """
    if resume is None and (folder / "config.yaml").exists():
        raise ValueError(f"--out: {folder} holds a run already. Give another folder, or go on with --resume {folder}.")
    try:
        (folder / "checkpoints").mkdir(parents=True, exist_ok=True)
        lock = (folder / ".lock").open("w")
    except OSError as error:
        raise ValueError(f"--out: cannot write to {folder} ({error}). Give a folder that can be written.") from error
    try:
        import fcntl  # not on Windows

        fcntl.lockf(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except (ImportError, OSError) as error:
        if getattr(error, "errno", None) in (errno.EACCES, errno.EAGAIN):  # else: there are no locks here
            raise ValueError(
                f"--out: another process is training in {folder}. Wait until it has ended, or give another folder."
            ) from error
    return lock


def find_checkpoint(resume: str) -> str | None:
    """The checkpoint that `--resume` means: a file, or the last one in a run's folder.

    None for a folder whose run was stopped before its first checkpoint: it starts anew, with its own settings.
    """
    path = Path(resume)
    if path.is_dir():
        found = (path / "checkpoints" / f"{name}.ckpt" for name in ("last", "best"))
        return next((str(p) for p in found if p.is_file()), None)
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
        for name, value in checkpoint["state_dict"].items():
            if isinstance(value, torch.Tensor) and not bool(value.isfinite().all()):
                raise ValueError(f"{name} holds NaN or infinities")
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
