"""What a run of a surrogate is made of."""

from __future__ import annotations

from dataclasses import dataclass, field

from pinnfuse.tasks import SurrogateSpec
from pinnfuse.training.config import RunConfig


@dataclass
class SurrogateConfig(RunConfig):
    """A run of `train.py` with a neural operator."""

    data: str | None = None
    """Folder of shards, .pt or HDF5 file to learn from; by default samples are computed, and kept in the cache"""
    training: SurrogateSpec = field(default_factory=SurrogateSpec)  # type: ignore[assignment]
    """Samples, terms of the loss and schedule"""
