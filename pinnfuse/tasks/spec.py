"""How a surrogate is trained by default: samples, batches, terms of the loss, optimisers."""

from __future__ import annotations

from dataclasses import dataclass, field

from pinnfuse.errors import nearest
from pinnfuse.optimizers import Decay, Phase

LOSSES = ("both", "data", "physics")
STARTS = ("first", "any")


def one_adam(steps: int = 1000, lr: float = 2e-3) -> list[Phase]:
    """Adam whose rate grows for a while and falls as a cosine."""
    return [Phase("adam", steps, lr, decay=Decay("cosine", warmup=min(50, max(1, steps // 10))), clip=1.0)]


@dataclass
class SurrogateSpec:
    """Samples, terms of the loss and phases of a surrogate's run."""

    samples: int = 256
    """Training samples: instances of the equation, each a solution of it"""
    held_out: int = 32
    """Samples that are only compared with"""
    batch: int = 16
    """Samples in one step of one process"""
    loss: str = "both"
    """"both" (data and physics), "data" or "physics" (solutions are then compared with, never trained on)"""
    labelled: float = 1.0
    """Share of the training samples whose solutions the data term may see; the physics term sees all inputs"""
    unlabelled_starts: str = "first"
    """Windows of samples without solutions begin at the "first" level, which no solver made, or at "any" """
    mirrored: bool = False
    """Each batch as one of its eight mirror images and transposes, where these are solutions, too (darcy)"""
    data_weight: float = 1.0
    """Of the data term, the mean over samples of the relative L2 error"""
    physics_weight: float = 0.1
    """Of the physics term, the residual over that of knowing nothing (no solution, no change), root mean squares"""
    precision: str = "float32"
    """"float32" or "float64\""""
    phases: list[Phase] = field(default_factory=one_adam)
    """Optimisers, one after the other"""
    fine_tune_steps: int = 0
    """At the end, steps on the residual of one held-out instance alone (no solution is used)"""
    fine_tune_lr: float = 1e-3
    """Learning rate of these steps (Adam)"""
    fine_tune_anchor: float = 0.0
    """Weight of the squared relative distance from the prediction before them"""
    max_seconds: float | None = None
    """Wall-clock limit of the fit"""
    graph: bool = True
    """On CUDA, run the steps as CUDA graphs where that is possible"""

    def __post_init__(self) -> None:
        if self.precision not in ("float32", "float64"):
            raise ValueError(f"SurrogateSpec: `precision` must be 'float32' or 'float64'; got {self.precision!r}.")
        if self.loss not in LOSSES:
            raise ValueError(f"SurrogateSpec: unknown `loss` {self.loss!r}. {nearest(str(self.loss), LOSSES)}")
        if self.unlabelled_starts not in STARTS:
            raise ValueError(
                f"SurrogateSpec: `unlabelled_starts` must be 'first' or 'any'; got {self.unlabelled_starts!r}."
            )
        for name, least in (("samples", 1), ("held_out", 1), ("batch", 1), ("fine_tune_steps", 0)):
            if getattr(self, name) < least:
                raise ValueError(f"SurrogateSpec: `{name}` must be at least {least}; got {getattr(self, name)!r}.")
        if not 0 <= self.labelled <= 1:
            raise ValueError(f"SurrogateSpec: `labelled` must be in [0, 1]; got {self.labelled!r}.")
        if self.loss != "physics" and self.labelled_samples < 1:
            raise ValueError(
                f"SurrogateSpec: the data term needs a sample; `labelled` = {self.labelled:g} of {self.samples} is "
                "none. Raise it, or set loss to physics."
            )
        for name in ("data_weight", "physics_weight", "fine_tune_anchor"):
            if not getattr(self, name) >= 0:
                raise ValueError(f"SurrogateSpec: `{name}` must be >= 0; got {getattr(self, name)!r}.")
        if not self.fine_tune_lr > 0:
            raise ValueError(f"SurrogateSpec: `fine_tune_lr` must be > 0; got {self.fine_tune_lr!r}.")

    @property
    def labelled_samples(self) -> int:
        """How many samples the data term may see, the first ones."""
        return 0 if self.loss == "physics" else round(self.labelled * self.samples)
