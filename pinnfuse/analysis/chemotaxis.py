"""Coefficients of a chemotaxis equation from rollouts of Physarum, and how much of the rollouts they explain."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import torch
from torch import Tensor

from pinnfuse.grid import FusedGridResidualLoss, Grid
from pinnfuse.simulation import solve
from pinnfuse.simulation.physarum.continuum import COEFFICIENTS, keller_segel_pde


@dataclass(frozen=True)
class Chemotaxis:
    """A fitted equation, see `pinnfuse.simulation.physarum.continuum`.

    Attributes:
        coefficients: by name.
        explained: per equation, 1 - mean squared residual / mean squared rate of change: 1 is a perfect equation, 0 no
            better than "nothing changes".
    """

    coefficients: dict[str, float]
    explained: dict[str, float]

    def predict(self, start: Tensor, spacing: float, times: list[float]) -> Tensor:
        """The equation's solution [B, len(times), 2, H, W] from levels [B, 2, H, W] at time 0."""
        grid = Grid("y x", spacing, boundary="periodic")
        return solve(keller_segel_pde(self.coefficients), start, grid, times)


def fit_chemotaxis(
    levels: Tensor, spacing: float, step: float, start: Mapping[str, float], backend: str = "auto", iterations: int = 60
) -> Chemotaxis:
    """Train the coefficients through `FusedGridResidualLoss` (midpoint rule in time) with L-BFGS.

    Args:
        levels: [B, T, 2, H, W], density and field on a torus, from `rollout`; float32 or float64.
        spacing: cells between points (`coarse`).
        step: steps between levels (`every`).
        start: coefficients to start from, e.g. `expected(sim)`.
        backend: of the residual.
        iterations: of L-BFGS at most.

    Raises:
        ValueError: levels of another shape, or without change.
    """
    if levels.dim() != 5 or levels.shape[2] != 2 or levels.shape[1] < 2:
        raise ValueError(f"fit_chemotaxis: `levels` must be [B, T >= 2, 2, H, W]; got {list(levels.shape)}.")
    rates = (levels.diff(dim=1) / step).square().mean(dim=(0, 1, 3, 4))
    if not bool((rates > 0).all()):
        raise ValueError("fit_chemotaxis: a field does not change, so there is nothing to learn. Run more steps.")
    grid = Grid("y x", spacing, boundary="periodic")
    loss = FusedGridResidualLoss(
        keller_segel_pde(start, trainable=True), grid, step, "midpoint", backend, equation_weights=(1 / rates).tolist()
    ).to(levels.device, levels.dtype)
    optimizer = torch.optim.LBFGS(loss.parameters(), max_iter=iterations, line_search_fn="strong_wolfe")

    def closure() -> Tensor:
        optimizer.zero_grad()
        value = loss(levels)
        value.backward()
        return value

    optimizer.step(closure)
    with torch.no_grad():
        means = loss.evaluate(levels).per_equation
        values = {n: float(v) for n, v in loss.parameter_values().items()}
    explained = {name: 1 - float(value / rate) for (name, value), rate in zip(means.items(), rates, strict=True)}
    return Chemotaxis({name: values[name] for name in COEFFICIENTS}, explained)
