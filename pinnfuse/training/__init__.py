"""Runs: `fit` for a problem of your own; configuration, command line and output folder of `train.py`."""

from typing import TYPE_CHECKING, Any

from pinnfuse.training.config import RecordConfig, RunConfig

if TYPE_CHECKING:
    from pinnfuse.training.fitting import fit
    from pinnfuse.training.main import main
    from pinnfuse.training.run import Run

__all__ = ["RecordConfig", "Run", "RunConfig", "fit", "main"]


def __getattr__(name: str) -> Any:
    if name == "main":
        from pinnfuse.training.main import main

        return main
    if name == "fit":
        from pinnfuse.training.fitting import fit

        return fit
    if name == "Run":
        from pinnfuse.training.run import Run

        return Run
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
