"""Weights & Biases, without an account, a network or a prompt."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from lightning.pytorch.loggers import WandbLogger


def logged_in() -> bool:
    """Whether this machine holds a W&B key; asks neither the network nor the user."""
    if os.environ.get("WANDB_API_KEY"):
        return True
    import requests.utils  # what wandb itself reads ~/.netrc with

    host = os.environ.get("WANDB_BASE_URL", "https://api.wandb.ai")
    return requests.utils.get_netrc_auth(host) is not None


def wandb_logger(folder: Path, project: str, name: str, config: Mapping[str, Any]) -> WandbLogger:
    """Logger into `folder/wandb`: offline unless the user is logged in or sets WANDB_MODE; silent on the terminal."""
    import wandb

    mode = os.environ.get("WANDB_MODE") or ("online" if logged_in() else "offline")
    settings = wandb.Settings(silent=True, console="off", quiet=True, x_disable_stats=mode != "online")
    return WandbLogger(
        project=project, name=name, save_dir=folder, offline=mode == "offline", config=dict(config), settings=settings,
        mode=mode,
    )
