"""Time and memory of losses on this machine, each engine checked before it is timed; behind `pinnfuse bench`."""

from pinnfuse.bench.runner import run
from pinnfuse.bench.settings import Settings
from pinnfuse.bench.single import Pair, Timing, benchmark_operator, benchmark_pair

__all__ = ["Pair", "Settings", "Timing", "benchmark_operator", "benchmark_pair", "run"]
