"""Where the time of a step goes: operations, CUDA calls and kernels; behind `pinnfuse profile`."""

from pinnfuse.profiling.run import Profile, profile
from pinnfuse.profiling.trace import Kernel

__all__ = ["Kernel", "Profile", "profile"]
