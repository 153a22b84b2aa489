"""What a training schedule is: phases, each with an optimiser and a learning-rate decay."""

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from pinnfuse.errors import nearest

_KINDS = ("constant", "exponential", "cosine")


@dataclass
class Decay:
    """Learning rate over the steps of a phase, as a factor of the phase's `lr`.

    At step k of n: min(1, (k + 1) / warmup), times rate^(k / every) (exponential) or
    floor + (1 - floor) (1 + cos(pi k / n)) / 2 (cosine). The exponential stops falling at `floor`.
    """

    kind: str = "constant"
    """constant, exponential or cosine."""
    rate: float = 0.9
    """Exponential: factor per `every` steps, in (0, 1]."""
    every: int = 1000
    """Exponential: steps in which the rate falls by `rate`, >= 1."""
    warmup: int = 0
    """Steps of linear growth from almost zero; 0 for none."""
    floor: float = 0.0
    """Smallest factor, in [0, 1]."""

    def __post_init__(self) -> None:
        if self.kind not in _KINDS:
            raise ValueError(f"Decay: unknown `kind` {self.kind!r}. {nearest(str(self.kind), _KINDS)}")
        for name, good, expected in (
            ("rate", 0 < self.rate <= 1, "in (0, 1]"),
            ("every", self.every >= 1, ">= 1"),
            ("warmup", self.warmup >= 0, ">= 0"),
            ("floor", 0 <= self.floor <= 1, "in [0, 1]"),
        ):
            if not good:
                raise ValueError(f"Decay: `{name}` must be {expected}; got {getattr(self, name)!r}.")

    def factor(self, step: int, steps: int) -> float:
        """Factor at step 0, 1, ... of a phase of `steps` steps."""
        factor = 1.0
        if self.kind == "exponential":
            factor = max(self.floor, self.rate ** (step / self.every))
        elif self.kind == "cosine":
            factor = self.floor + (1 - self.floor) * 0.5 * (1 + math.cos(math.pi * min(1.0, step / steps)))
        return factor * min(1.0, (step + 1) / self.warmup) if self.warmup else factor


@dataclass
class Phase:
    """A stretch of training with one optimiser."""

    optimizer: str = "adam"
    """Name of the optimiser, one of `pinnfuse.optimizers.available()`."""
    steps: int = 10_000
    """Steps at most, >= 1. A quasi-Newton phase ends earlier when it has converged or stalled."""
    lr: float | None = None
    """Learning rate; null takes the optimiser's default. For quasi-Newton methods the first step tried, usually 1."""
    options: dict[str, Any] = field(default_factory=dict)
    """Further keyword arguments of the optimiser, e.g. {betas: [0.9, 0.99]} or {history_size: 100}."""
    decay: Decay = field(default_factory=Decay)
    """How the learning rate changes over the phase."""
    clip: float | None = None
    """First-order optimisers: largest norm of the gradient, longer ones are shortened; null for no limit."""

    def __post_init__(self) -> None:
        if self.clip is not None and not self.clip > 0:
            raise ValueError(f"Phase: `clip` must be positive, or null for no limit; got {self.clip!r}.")
        if not isinstance(self.steps, int) or self.steps < 1:
            raise ValueError(f"Phase: `steps` must be a whole number >= 1; got {self.steps!r}.")


def total_steps(phases: Sequence[Phase]) -> int:
    """Steps of all phases, if none ends early."""
    return sum(phase.steps for phase in phases)


def phase_at(phases: Sequence[Phase], step: int) -> tuple[int, int]:
    """(index of the phase, step inside it) for step 0, 1, ... of the whole schedule, if no phase ends early.

    Past the end: (number of phases, steps beyond).
    """
    for index, phase in enumerate(phases):
        if step < phase.steps:
            return index, step
        step -= phase.steps
    return len(phases), step
