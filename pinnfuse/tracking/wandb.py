"""Weights & Biases, without an account, a network or a prompt."""

from __future__ import annotations

import netrc
import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlparse

from lightning.fabric.utilities.rank_zero import rank_zero_only
from lightning.pytorch.loggers import WandbLogger

if TYPE_CHECKING:
    from wandb import Run


def logged_in() -> bool:
    """Whether this machine holds a W&B key, in WANDB_API_KEY or ~/.netrc; asks neither the network nor the user."""
    if os.environ.get("WANDB_API_KEY"):
        return True
    host = urlparse(os.environ.get("WANDB_BASE_URL", "https://api.wandb.ai")).hostname or ""
    try:
        return netrc.netrc(os.environ.get("NETRC")).authenticators(host) is not None
    except (OSError, netrc.NetrcParseError):
        return False


def errors() -> tuple[type[Exception], ...]:
    """W&B's errors, for an `except` clause; none where it is not installed, which other loggers do without."""
    try:
        from wandb.errors import Error
    except ModuleNotFoundError:
        return ()
    return (Error,)


def _options(project: str, config: Mapping[str, Any] | None, name: str | None) -> dict[str, Any]:
    """What every run is started with: silent, and offline unless the user is logged in or sets WANDB_MODE."""
    import wandb

    mode = os.environ.get("WANDB_MODE") or ("online" if logged_in() else "offline")
    quiet = wandb.Settings(silent=True, quiet=True, console="off", x_disable_stats=mode == "offline")
    return {"project": project, "name": name, "config": dict(config or {}), "mode": mode, "settings": quiet}


def start_run(
    project: str, folder: str | Path, config: Mapping[str, Any] | None = None, name: str | None = None
) -> Run:
    """A run whose files lie in `folder/wandb`: silent, and offline unless the user is logged in or sets WANDB_MODE.

    Args:
        project: name of the W&B project.
        folder: must exist.
        config: shown with the run.
        name: of the run; W&B invents one.
    """
    import wandb

    return wandb.init(dir=folder, **_options(project, config, name))


class QuietWandbLogger(WandbLogger):
    """`WandbLogger` with what `start_run` starts; the run begins with the first use of `experiment`.

    Args:
        folder: of the run.
        project: name of the W&B project.
        config: the resolved configuration.
    """

    def __init__(self, folder: Path, project: str, config: Mapping[str, Any]):
        super().__init__(save_dir=folder, **_options(project, config, Path(folder).name))
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
