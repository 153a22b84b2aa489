"""The linear two-variable model of agents and field: when feedback beats damping."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor


class LinearPhysarum(NamedTuple):
    """Result of `linear_physarum`; tensors of the broadcast shape."""

    grows: Tensor
    """bool: a small disturbance grows"""
    rate: Tensor
    """largest real part of the eigenvalues, per unit of time"""
    matrix: Tensor
    """[..., 2, 2], d(agents, field)/dt"""


def linear_physarum(
    alpha: Tensor | float, beta: Tensor | float, gamma: Tensor | float, kappa: Tensor | float
) -> LinearPhysarum:
    r"""Small disturbances a of the agents' density and c of the field about a uniform state,

    $$ \dot a = \beta c - \kappa a, \qquad \dot c = \alpha a - \gamma c, $$

    with deposit $\alpha$, response $\beta$, decay $\gamma$, damping $\kappa$, all >= 0. The eigenvalues are real,
    $(-(\gamma+\kappa) \pm \sqrt{(\gamma-\kappa)^2 + 4 \alpha \beta})/2$, and the larger is positive exactly when
    $\alpha \beta > \gamma \kappa$: deposit x response against decay x damping. Tensors broadcast, so a sweep is a call.

    Raises:
        ValueError: a negative or non-finite number.
    """
    names = ("alpha", "beta", "gamma", "kappa")
    given = [torch.as_tensor(v, dtype=torch.float64) for v in (alpha, beta, gamma, kappa)]
    for name, value in zip(names, given, strict=True):
        if not bool(torch.isfinite(value).all()) or bool((value < 0).any()):
            raise ValueError(
                f"linear_physarum: `{name}` must be finite and >= 0; the lowest is {float(value.min()):g}."
            )
    a, b, g, k = torch.broadcast_tensors(*given)
    rate = (((g - k) ** 2 + 4 * a * b).sqrt() - (g + k)) / 2
    matrix = torch.stack([torch.stack([-k, b], dim=-1), torch.stack([a, -g], dim=-1)], dim=-2)
    return LinearPhysarum(a * b > g * k, rate, matrix)
