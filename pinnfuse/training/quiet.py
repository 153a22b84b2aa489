"""Lightning's tips and warnings that someone who trains a problem cannot act on."""

from __future__ import annotations

import logging
import os
import warnings
from collections.abc import Iterator
from contextlib import contextmanager

_LOGGERS = ("lightning.pytorch", "lightning.fabric", "lightning", "pytorch_lightning")
_PATTERNS = (
    ".*does not have many workers.*",  # points are drawn on the device: no workers by design
    ".*isinstance\\(treespec, LeafSpec\\).*",  # Lightning against a newer torch
    ".*LeafSpec.*is deprecated.*",
    ".*You defined a `validation_step` but have no `val_dataloader`.*",
    ".*GPU available but not used.*",
    ".*it is recommended to use .self.log.*sync_dist=True.*",  # values are reduced before they are logged
    ".*lr_scheduler.step\\(\\).*",
    ".*`max_epochs` was not set.*",
    ".*The number of training batches.*",
    ".*Profiler.*",
    ".*Warning: Profiler clears events.*",
)


def silence() -> None:
    """Keep the terminal to the progress bar, the closing line, and what a user can act on."""
    import lightning.pytorch  # noqa: F401  # which sets its own levels

    for name in _LOGGERS:
        logging.getLogger(name).setLevel(logging.ERROR)
    for pattern in _PATTERNS:
        warnings.filterwarnings("ignore", pattern)


@contextmanager
def quiet() -> Iterator[None]:
    """`silence` for a while."""
    import lightning.pytorch  # noqa: F401

    levels = {name: logging.getLogger(name).level for name in _LOGGERS}
    with warnings.catch_warnings():
        silence()
        try:
            yield
        finally:
            for name, level in levels.items():
                logging.getLogger(name).setLevel(level)


def first_process() -> bool:
    """Whether this is the process that writes; Lightning, torchrun and SLURM tell the others by these variables."""
    return all(int(os.environ.get(name) or 0) == 0 for name in ("RANK", "LOCAL_RANK", "NODE_RANK", "SLURM_PROCID"))
