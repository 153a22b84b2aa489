"""How a problem is trained by default: which network, how many points, which optimisers in which order."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from pinnfuse.balancing import check_knots
from pinnfuse.domains import METHODS
from pinnfuse.errors import nearest
from pinnfuse.optimizers.schedule import Phase

_CHOICES = {
    "balance": ("none", "gradient_norm", "ntk", "relobralo"),
    "point_weights": ("none", "attention", "self_adaptive", "causal"),
    "refine": ("none", "rad", "rar_d"),
}


@dataclass
class ModelSpec:
    """A network by name."""

    name: str = "mlp"
    """Name in `pinnfuse.models`"""
    kwargs: dict[str, Any] = field(default_factory=lambda: {"width": 50, "depth": 4, "activation": "tanh"})
    """Arguments of that class; sizes of input and output, bounds and periods come from the problem"""


@dataclass
class TrainingSpec:
    """Points, precision and phases of a run."""

    interior: int = 4096
    """Points in the interior"""
    boundary: int = 256
    """Points of each condition"""
    sampler: str = "sobol"
    """"sobol", "lhs" (Latin hypercube), "uniform" or "grid\""""
    resample_every: int = 200
    """Steps between fresh points; 0 keeps the first ones, which a small set overfits: loss falls, error stays"""
    inner_steps: int = 1
    """Optimisation steps in one step of Lightning's loop, which costs more than a small network"""
    graph: bool = True
    """On CUDA, run the steps as CUDA graphs where that is possible"""
    precision: str = "float64"
    """"float32" or "float64\""""
    phases: list[Phase] = field(default_factory=lambda: quasi_newton())
    """Optimisers, one after the other"""
    loss_weights: dict[str, float] = field(default_factory=dict)
    """Weight by name of an equation or a condition; overrides the condition's own"""
    initialise: bool = False
    """Before the first step, fit the network's output layer to equations and conditions (needs a closed form)"""
    balance: str = "none"
    """Weights of the terms during training: "none", "gradient_norm", "ntk" or "relobralo\""""
    balance_every: int = 100
    """Steps between two updates of these weights"""
    point_weights: str = "none"
    """Weights of the interior points: "none", "attention", "self_adaptive" (both with resample_every 0) or "causal\""""
    point_options: dict[str, Any] = field(default_factory=dict)
    """Arguments of their class in `pinnfuse.balancing`, e.g. {tolerance: 10.0} of causal ones"""
    refine: str = "none"
    """Points where the residual is large: "none", "rad" or "rar_d\""""
    refine_every: int = 1000
    """Steps between two choices of them"""
    windows: int = 1
    """Windows of time, trained one after the other, each from the end of the one before"""
    curriculum: dict[str, list[list[float]]] = field(default_factory=dict)
    """Constant of the PDE -> [step, value] pairs: the value from that step on, e.g. {nu: [[0, 0.01], [500, 0.001]]}"""
    hard: bool = True
    """Use the problem's exact output transform, where it has one"""
    max_seconds: float | None = None
    """Wall-clock limit of the fit"""
    target_error: float | None = None
    """Stop at the first comparison with the reference whose relative L2 error (the first shown) is no larger"""

    def __post_init__(self) -> None:
        if self.sampler not in METHODS:
            raise ValueError(f"TrainingSpec: `sampler` must be one of {', '.join(METHODS)}; got {self.sampler!r}.")
        if self.precision not in ("float32", "float64"):
            raise ValueError(f"TrainingSpec: `precision` must be 'float32' or 'float64'; got {self.precision!r}.")
        for name in ("interior", "boundary", "inner_steps", "windows", "balance_every", "refine_every"):
            if getattr(self, name) < 1:
                raise ValueError(f"TrainingSpec: `{name}` must be at least 1; got {getattr(self, name)!r}.")
        for name in ("max_seconds", "target_error"):
            if getattr(self, name) is not None and not getattr(self, name) > 0:
                raise ValueError(
                    f"TrainingSpec: `{name}` must be positive, or null for no limit; got {getattr(self, name)!r}."
                )
        if self.point_options and self.point_weights == "none":
            raise ValueError(
                f"TrainingSpec: `point_options` {self.point_options!r} belong to `point_weights`, which is 'none'."
            )
        for name, known in _CHOICES.items():
            if getattr(self, name) not in known:
                given = getattr(self, name)
                raise ValueError(f"TrainingSpec: unknown `{name}` {given!r}. {nearest(str(given), known)}")
        if self.point_weights in ("attention", "self_adaptive") and (self.resample_every or self.refine != "none"):
            raise ValueError(
                f"TrainingSpec: `point_weights` {self.point_weights!r} belong to fixed points; set resample_every to 0 "
                "and refine to none."
            )
        for name, knots in self.curriculum.items():
            check_knots(name, knots, "TrainingSpec")
        if self.resample_every < 0:
            raise ValueError(f"TrainingSpec: `resample_every` must be >= 0; got {self.resample_every!r}.")


def quasi_newton(adam: int = 300, steps: int = 3000, lr: float = 3e-3) -> list[Phase]:
    """A short Adam phase to leave the initialisation, then self-scaled Broyden.

    Source: Urban, Stefanou & Pons, Unveiling the optimization process of PINNs, J. Comput. Phys. 523 (2025) 113656.
    """
    return [Phase(optimizer="adam", steps=adam, lr=lr), Phase(optimizer="ssbroyden", steps=steps)]
