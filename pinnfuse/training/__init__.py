"""Runs: configuration, command line, output folder. What `train.py` calls."""

from typing import TYPE_CHECKING, Any

from pinnfuse.training.config import RecordConfig, RunConfig

if TYPE_CHECKING:
    from pinnfuse.training.main import main
    from pinnfuse.training.run import Run

__all__ = ["RecordConfig", "Run", "RunConfig", "main"]


def __getattr__(name: str) -> Any:
    if name == "main":
        from pinnfuse.training.main import main

        return main
    if name == "Run":
        from pinnfuse.training.run import Run

        return Run
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
