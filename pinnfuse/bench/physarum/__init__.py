"""Steps per second of Physarum, checked bit by bit before they are timed; behind `pinnfuse bench physarum`."""

from pinnfuse.bench.physarum.runner import run
from pinnfuse.bench.physarum.split import run_split

__all__ = ["run", "run_split"]
