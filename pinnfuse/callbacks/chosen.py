"""The callbacks that a training spec asks for."""

from __future__ import annotations

from lightning.pytorch import Callback

from pinnfuse.callbacks.balance import LossBalancing
from pinnfuse.callbacks.refine import Refinement
from pinnfuse.callbacks.target import TargetError
from pinnfuse.problems import TrainingSpec


def from_spec(spec: TrainingSpec, seed: int = 0) -> list[Callback]:
    """Balancing of terms, refinement of points and a target of the error, where they are wanted."""
    found: list[Callback] = []
    if spec.balance != "none":
        found.append(LossBalancing(spec.balance, spec.balance_every))
    if spec.refine != "none":
        found.append(Refinement(spec.refine, spec.refine_every, seed=seed))
    if spec.target_error is not None:
        found.append(TargetError(spec.target_error))
    return found
