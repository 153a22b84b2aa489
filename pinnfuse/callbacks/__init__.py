"""Lightning callbacks: checkpoints, an early validation, a clean stop, timing, a target of the error, speed-up, the
progress bar, a watch over the other processes."""

from pinnfuse.callbacks.balance import LossBalancing
from pinnfuse.callbacks.checkpoints import Checkpoints
from pinnfuse.callbacks.chosen import from_spec
from pinnfuse.callbacks.curriculum import Curriculum
from pinnfuse.callbacks.looks import FirstAndLastLook
from pinnfuse.callbacks.progress import RunProgress
from pinnfuse.callbacks.refine import Refinement
from pinnfuse.callbacks.speedup import Cost, SpeedupMonitor
from pinnfuse.callbacks.stop import GracefulStop
from pinnfuse.callbacks.stopwatch import Stopwatch
from pinnfuse.callbacks.target import TargetError
from pinnfuse.callbacks.watch import PeerWatch

__all__ = [
    "Checkpoints",
    "Cost",
    "Curriculum",
    "FirstAndLastLook",
    "GracefulStop",
    "LossBalancing",
    "PeerWatch",
    "Refinement",
    "RunProgress",
    "SpeedupMonitor",
    "Stopwatch",
    "TargetError",
    "from_spec",
]
