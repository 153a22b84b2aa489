"""Files of a command as an artifact in Weights & Biases."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from pinnfuse.tracking.wandb import logged_in


def upload(files: Sequence[Path], project: str, kind: str, folder: str | Path) -> None:
    """One run in `folder/wandb` that holds the files as an artifact; offline without an account."""
    import wandb

    run = wandb.init(
        project=project,
        dir=folder,
        mode=os.environ.get("WANDB_MODE") or ("online" if logged_in() else "offline"),  # type: ignore[arg-type]
        settings=wandb.Settings(silent=True, quiet=True, console="off"),
    )
    artifact = wandb.Artifact(project, type=kind)
    for path in files:
        artifact.add_file(str(path))
    run.log_artifact(artifact)
    run.finish()
