"""Steps per second of Physarum, checked bit by bit before they are timed; behind `pinnfuse bench physarum`."""

from pinnfuse.bench.physarum.runner import run

__all__ = ["run"]
