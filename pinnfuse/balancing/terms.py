r"""Weights of the terms of a loss, L = sum_i w_i L_i, from what the terms do.

Each scheme is a plain object: `update(...)` takes what was measured (a tensor [T], one entry a term, on any device) and
returns new weights [T]. None waits for the device; all state is in `state_dict()`.

Sources: Wang, Teng and Perdikaris, SIAM J. Sci. Comput. 43 (2021) A3055, and Wang, Sankaran, Wang and Perdikaris,
arXiv:2308.08468 (gradient norms); Wang, Yu and Perdikaris, J. Comput. Phys. 449 (2022) 110768 (NTK); Bischof and Kraus,
arXiv:2110.09813 (ReLoBRaLo).
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor


class _Averaged:
    r"""w <- m w + (1 - m) w_new, with w_new = sum_j s_j / s_i: every term gets the same share of the measure s."""

    def __init__(self, momentum: float = 0.9):
        if not 0 <= momentum < 1:
            raise ValueError(f"{type(self).__name__}: `momentum` must lie in [0, 1); got {momentum!r}.")
        self.momentum = momentum
        self.weights: Tensor | None = None

    def update(self, measure: Tensor) -> Tensor:
        """New weights [T] from the measure [T] of the terms without their weights, >= 0; a zero keeps its weight."""
        tiny = torch.finfo(measure.dtype).tiny
        old = torch.ones_like(measure) if self.weights is None else self.weights.to(measure)
        new = torch.where(measure > tiny, measure.sum() / measure.clamp_min(tiny), old)
        self.weights = new if self.weights is None else self.momentum * old + (1 - self.momentum) * new
        return self.weights

    def state_dict(self) -> dict[str, Any]:
        return {"weights": self.weights}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.weights = state["weights"]


class GradientNorm(_Averaged):
    """Measure: the norm of each term's gradient with respect to the network's parameters."""


class NTK(_Averaged):
    """Measure: the mean over points of |d r / d parameters|^2, the trace of a term's tangent kernel over its size."""


class ReLoBRaLo:
    r"""Relative loss balancing with random lookback.

    With b(L, L') = T softmax_i(L_i / (tau L'_i)) the weights become

        w <- alpha (rho w + (1 - rho) b(L, L_0)) + (1 - alpha) b(L, L_last),      rho Bernoulli(beta)

    Args:
        alpha: memory, in [0, 1).
        temperature: tau, > 0; large gives equal weights.
        beta: probability of not looking back to the start.
        seed: of rho; the k-th draw depends on (seed, k) alone.
    """

    def __init__(self, alpha: float = 0.999, temperature: float = 1.0, beta: float = 0.999, seed: int = 0):
        if not (0 <= alpha < 1 and temperature > 0 and 0 <= beta <= 1):
            raise ValueError(
                "ReLoBRaLo: expected `alpha` in [0, 1), `temperature` > 0, `beta` in [0, 1]; "
                f"got {alpha!r}, {temperature!r}, {beta!r}."
            )
        self.alpha, self.temperature, self.beta, self.seed = alpha, temperature, beta, seed
        self.weights: Tensor | None = None
        self.first: Tensor | None = None
        self.last: Tensor | None = None
        self.updates = 0

    def update(self, losses: Tensor) -> Tensor:
        """New weights [T] from the terms [T] without their weights."""
        losses = losses.detach()
        if self.first is None or self.last is None or self.weights is None:
            self.first, self.weights = losses.clone(), torch.ones_like(losses)
        else:
            rho = float(torch.rand(1, generator=torch.Generator().manual_seed(self.seed + self.updates)) < self.beta)
            memory = rho * self.weights.to(losses) + (1 - rho) * self._share(losses, self.first.to(losses))
            self.weights = self.alpha * memory + (1 - self.alpha) * self._share(losses, self.last.to(losses))
        self.last = losses.clone()
        self.updates += 1
        return self.weights

    def _share(self, losses: Tensor, before: Tensor) -> Tensor:
        tiny = torch.finfo(losses.dtype).tiny
        return len(losses) * torch.softmax(losses / (self.temperature * before.clamp_min(tiny)), 0)

    def state_dict(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in ("weights", "first", "last", "updates")}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        for name, value in state.items():
            setattr(self, name, value)
