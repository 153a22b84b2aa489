"""Where the time and the memory of a step go; behind `pinnfuse profile`."""

from pinnfuse.profiling.batch_size import BatchSize, auto_batch_size
from pinnfuse.profiling.comparison import Comparison, compare
from pinnfuse.profiling.run import Profile, profile
from pinnfuse.profiling.trace import Kernel
from pinnfuse.profiling.usage import Memory, MemoryReport, memory, memory_report

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
