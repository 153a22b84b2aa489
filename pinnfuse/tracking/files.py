"""Files of a command as an artifact in Weights & Biases."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from pinnfuse.tracking.wandb import start_run


def upload(files: Sequence[Path], project: str, kind: str, folder: str | Path) -> None:
    """One run in `folder/wandb` that holds the files as an artifact; offline without an account."""
    import wandb

    run = start_run(project, folder)
    artifact = wandb.Artifact(project, type=kind)
    for path in files:
        artifact.add_file(str(path))
    run.log_artifact(artifact)
    run.finish()
