"""Lightning callbacks: checkpoints, a clean stop, timing, the speed-up against nested autograd, the progress bar."""

from pinnfuse.callbacks.checkpoints import Checkpoints
from pinnfuse.callbacks.progress import RunProgress
from pinnfuse.callbacks.speedup import Cost, SpeedupMonitor
from pinnfuse.callbacks.stop import GracefulStop
from pinnfuse.callbacks.stopwatch import Stopwatch

__all__ = ["Checkpoints", "Cost", "GracefulStop", "RunProgress", "SpeedupMonitor", "Stopwatch"]
