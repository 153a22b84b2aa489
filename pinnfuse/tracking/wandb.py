"""Weights & Biases, without an account, a network or a prompt."""

from __future__ import annotations

import netrc
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlparse

from lightning.fabric.utilities.rank_zero import rank_zero_only
from lightning.pytorch.loggers import WandbLogger


def logged_in() -> bool:
    """Whether this machine holds a W&B key, in WANDB_API_KEY or ~/.netrc; asks neither the network nor the user."""
    if os.environ.get("WANDB_API_KEY"):
        return True
    host = urlparse(os.environ.get("WANDB_BASE_URL", "https://api.wandb.ai")).hostname or ""
    try:
        return netrc.netrc(os.environ.get("NETRC")).authenticators(host) is not None
    except (OSError, netrc.NetrcParseError):
        return False


class QuietWandbLogger(WandbLogger):
    """`WandbLogger` into `folder/wandb`: offline unless the user is logged in or sets WANDB_MODE; silent.

    Args:
        folder: of the run.
        project: name of the W&B project.
        config: the resolved configuration.
    """

    def __init__(self, folder: Path, project: str, config: Mapping[str, Any]):
        import wandb

        mode = os.environ.get("WANDB_MODE") or ("online" if logged_in() else "offline")
        super().__init__(
            project=project,
            name=Path(folder).name,
            save_dir=folder,
            mode=mode,
            config=dict(config),
            settings=wandb.Settings(silent=True, quiet=True, console="off", x_disable_stats=mode == "offline"),
        )
        self._wandb_init.pop("anonymous", None)  # W&B warns of it, even of None

    @rank_zero_only
    def finish(self, figures: Mapping[str, Path], summary: Mapping[str, Any]) -> None:
        """Add the figures as images (GIFs as videos are images, too) and the summary, and close the run."""
        import wandb

        run = self.experiment
        if figures:
            run.log({f"figures/{name}": wandb.Image(str(path)) for name, path in figures.items()})
        run.summary.update(dict(summary))
        run.finish()
        self._experiment = None
