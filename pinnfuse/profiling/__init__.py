"""Where the time and the memory of a step go; behind `pinnfuse profile`."""

from pinnfuse.profiling.batch_size import BatchSize, auto_batch_size
from pinnfuse.profiling.comparison import Comparison, compare
from pinnfuse.profiling.memory import Memory, MemoryReport, memory, memory_report
from pinnfuse.profiling.run import Profile, profile
from pinnfuse.profiling.trace import Kernel

__all__ = [
    "BatchSize",
    "Comparison",
    "Kernel",
    "Memory",
    "MemoryReport",
    "Profile",
    "auto_batch_size",
    "compare",
    "memory",
    "memory_report",
    "profile",
]
