"""Time and memory of losses on this machine, each engine checked before it is timed; behind `pinnfuse bench`."""

from pinnfuse.bench.runner import Settings, run

__all__ = ["Settings", "run"]
