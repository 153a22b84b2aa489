r"""Coefficients of a chemotaxis equation from rollouts of Physarum, and how much of the rollouts they explain.

The equation is linear in its coefficients, so a residual is rate - X theta. Densities of agents are counts,
and counting noise is as large as the signal at the scale of a cell. Three measures keep it out of theta:

- The agents' equation is compared in smooth waves only, of at most `waves` periods. Agents that cross the edge of a
  block change its count at once, which looks like a much larger mobility at the blocks' own scale.
- Least squares with a midpoint rule would return a mobility of 0 for any colony in a steady state, whatever it does:
  the noise of a step stands in the rate and in X, and <rho_1 - rho_0, Delta (rho_0 + rho_1)> = 0 by symmetry. So X is
  multiplied by the same terms Z at the level before, which the noise of the step does not reach (instrumental
  variables): theta solves Z^T X theta = Z^T rate. Accuracy in time remains that of the midpoint rule, second order.
- Starts must be smooth and unlike each other (`smooth_start`): what only counting noise changes, teaches nothing.

Source: Söderström, Stoica, Instrumental variable methods for system identification (Springer, 1983).
"""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from pinnfuse.grid import FusedGridResidualLoss
from pinnfuse.grid.spectral import low_pass
from pinnfuse.simulation import solve
from pinnfuse.simulation.physarum.continuum import COEFFICIENTS, keller_segel_pde, torus

TERMS = (("mobility", "attraction"), ("diffusion", "decay", "production"))
"""Coefficients of the first and of the second equation."""
SATURATIONS = (0.1, 0.2, 0.4, 0.8, 1.6, 3.2, 100.0)
"""Slopes of the field that are tried, in units of its mean slope."""


@dataclass(frozen=True)
class Chemotaxis:
    """A fitted equation, see `pinnfuse.simulation.physarum.continuum`.

    Attributes:
        coefficients: by name.
        explained: per equation, 1 - mean squared residual / mean squared rate of change, of the waves compared: 1 is a
            perfect equation, 0 no better than "nothing changes".
    """

    coefficients: dict[str, float]
    explained: dict[str, float]

    def predict(self, start: Tensor, spacing: float, times: list[float]) -> Tensor:
        """The equation's solution [B, len(times), 2, H, W] from levels [B, 2, H, W] at times[0].

        Raises:
            ValueError: a negative mobility or diffusion, with which the equation has no solution.
        """
        if min(self.coefficients["mobility"], self.coefficients["diffusion"]) < 0:
            raise ValueError("Chemotaxis.predict: mobility and diffusion must be >= 0. Fit fewer waves or more agents.")
        return solve(keller_segel_pde(self.coefficients), start, torus(spacing), times)


def fit_chemotaxis(
    levels: Tensor,
    spacing: float,
    step: float,
    *,
    waves: float | None = None,
    saturation: float | None = None,
    backend: str = "auto",
) -> Chemotaxis:
    """Coefficients by instrumental variables, from residuals of `FusedGridResidualLoss` (midpoint rule in time).

    Args:
        levels: [B, T, 2, H, W], density and field on a torus, from `rollout`; float32 or float64.
        spacing: cells between points (`coarse`).
        step: steps between levels (`every`).
        waves: periods per shorter side of the shortest waves seen by the equation of the agents; as many as their start
            has. All by default, for densities without noise.
        saturation: slope of the field beyond which agents climb no faster; by default the one of several that
            explains most.
        backend: of the residual.

    Raises:
        ValueError: levels of another shape, without change, or that leave a coefficient undetermined.
    """
    if levels.dim() != 5 or levels.shape[2] != 2 or levels.shape[1] < 2:
        raise ValueError(f"fit_chemotaxis: `levels` must be [B, T >= 2, 2, H, W]; got {list(levels.shape)}.")
    if not bool((levels.diff(dim=1).abs().amax(dim=(0, 1, 3, 4)) > 0).all()):
        raise ValueError("fit_chemotaxis: a field does not change, so there is nothing to learn. Run more steps.")
    smooth = levels if waves is None else low_pass(levels, waves)
    slopes = [saturation] if saturation else [r * _mean_slope(smooth, spacing) for r in SATURATIONS]
    agents = [_fit(0, smooth, spacing, step, waves, slope, backend) for slope in slopes]
    best = max(range(len(slopes)), key=lambda k: agents[k][1])
    field = _fit(1, levels, spacing, step, None, slopes[best], backend)
    found = agents[best][0] | field[0] | {"saturation": slopes[best]}
    return Chemotaxis({n: found[n] for n in COEFFICIENTS}, {"agents": agents[best][1], "field": field[1]})


def _fit(
    equation: int, levels: Tensor, spacing: float, step: float, waves: float | None, slope: float, backend: str
) -> tuple[dict[str, float], float]:
    """Coefficients of one equation, and how much it explains."""
    names = TERMS[equation]
    rates, terms = _terms(equation, levels, spacing, step, slope, "midpoint", backend)
    _, before = _terms(equation, levels, spacing, step, slope, "forward_euler", backend)

    def column(values: Tensor) -> Tensor:
        return (values if waves is None else low_pass(values, waves)).flatten().double()

    x, z = (torch.stack([column(found[n]) for n in names], dim=1) for found in (terms, before))
    rate = column(rates)
    theta, info = torch.linalg.solve_ex(z.T @ x, z.T @ rate)
    if int(info) or not bool(torch.isfinite(theta).all()):
        raise ValueError(f"fit_chemotaxis: the levels do not determine {', '.join(names)}. Use other starts.")
    explained = 1 - float((rate - x @ theta).square().mean() / rate.square().mean())
    return dict(zip(names, theta.tolist(), strict=True)), explained


def _terms(
    equation: int, levels: Tensor, spacing: float, step: float, slope: float, scheme: str, backend: str
) -> tuple[Tensor, dict[str, Tensor]]:
    """The rates of change [B, T - 1, H, W], and what each coefficient multiplies on the right-hand side."""
    none = dict.fromkeys(COEFFICIENTS, 0.0) | {"saturation": slope}
    loss = FusedGridResidualLoss(keller_segel_pde(none), torus(spacing), step, scheme, backend)
    loss.to(levels.device, levels.dtype)

    def residual(**coefficients: float) -> Tensor:
        return loss.residuals(levels, parameters=none | coefficients)[:, :, equation]

    with torch.no_grad():
        rates = residual()
        return rates, {n: rates - residual(**{n: 1.0}) for n in TERMS[equation]}


def _mean_slope(levels: Tensor, spacing: float) -> float:
    """Mean over points and levels of |grad c|, at least a hair."""
    field = levels[:, :, 1].double()
    across, down = ((field.roll(-1, d) - field.roll(1, d)) / (2 * spacing) for d in (-1, -2))
    return max(float((across.square() + down.square()).sqrt().mean()), 1e-12)
