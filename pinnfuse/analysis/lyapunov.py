"""Sensitivity of maps: Jacobian columns, and the largest Lyapunov exponent."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor
from torch.func import jvp

Map = Callable[[Tensor], Tensor]


def average_sensitivity(
    f: Map, x: Tensor, *, columns: int | None = None, method: str = "jvp", size: float = 1e-6, seed: int = 0
) -> float:
    r"""Mean norm of the columns of the Jacobian, $\frac1n \sum_j \|\partial f / \partial x_j\|_2$.

    The continuous counterpart of a Boolean function's average sensitivity: how far the output moves when one input
    does.

    Args:
        f: the map; "jvp" differentiates through it.
        x: where, any shape, n numbers.
        columns: how many columns, drawn without replacement; all by default.
        method: "jvp", one forward-mode product per column, or "difference": central ones, for maps without derivatives.
        size: step of the differences.
        seed: of the draw.
    """
    if method not in ("jvp", "difference"):
        raise ValueError(f"average_sensitivity: `method` must be 'jvp' or 'difference'; got {method!r}.")
    generator = torch.Generator().manual_seed(seed)
    chosen = torch.randperm(x.numel(), generator=generator)[: columns or x.numel()]
    total = 0.0
    for j in chosen.tolist():
        e = torch.zeros_like(x)
        e.view(-1)[j] = 1
        column = jvp(f, (x,), (e,))[1] if method == "jvp" else (f(x + size * e) - f(x - size * e)) / (2 * size)
        total += float(column.norm())
    return total / len(chosen)


def largest_lyapunov(
    step: Map, state: Tensor, steps: int, *, warm_up: int = 0, size: float = 1e-7, every: int = 1, seed: int = 0
) -> float:
    r"""Largest Lyapunov exponent per step, from twins whose distance is reset to `size` every few steps.

    $\lambda = \frac{1}{n} \sum_k \ln (d_k / d_0)$: a twin starts at distance $d_0$ in a random direction, after `every`
    steps the distance $d_k$ is noted and the twin pulled back along the line to $d_0$.

    Args:
        step: maps a batch of states [B, ...] to the next; it may not couple members of the batch.
        state: [B, ...], float64 unless `size` is chosen for another type. The average over the batch is returned.
        steps: > 0, after the `warm_up`.
        warm_up: steps before, for the state to reach its attractor and the twin its direction.
        size: d0.
        every: steps between two resets; d should stay far below the size of the attractor.
        seed: of the first direction.

    Source: Benettin, Galgani, Strelcyn, Kolmogorov entropy and numerical experiments, Phys. Rev. A 14 (1976).
    """
    if steps < 1 or every < 1 or warm_up < 0:
        raise ValueError(f"largest_lyapunov: `steps` and `every` must be >= 1; got {steps} and {every}.")
    direction = torch.randn(state.shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    twin = state + size * _unit(direction.to(state))
    total = 0.0
    for k in range(-(-(warm_up + steps) // every)):
        for _ in range(every):
            state, twin = step(state), step(twin)
        difference = twin - state
        if k * every >= warm_up:
            total += float((_norm(difference) / size).log().mean())
        twin = state + size * _unit(difference)
    counted = -(-(warm_up + steps) // every) - -(-warm_up // every)
    return total / (counted * every)


def growth_rate(distances: Tensor, saturation: float = 0.1) -> float:
    """Exponent per step of distances d_0, d_1, ... between two runs: slope of ln d before d reaches `saturation` x its
    largest value; for systems that cannot be pulled back, such as agents."""
    d = distances.double()
    if len(d) < 3 or not bool((d > 0).all()):
        raise ValueError("growth_rate: needs at least three positive distances; start the twins apart.")
    beyond = (d >= saturation * d.max()).nonzero()
    last = max(3, int(beyond[0]) + 1 if len(beyond) else len(d))
    t = torch.arange(last, dtype=torch.float64)
    y = d[:last].log()
    t = t - t.mean()
    return float((t * (y - y.mean())).sum() / (t * t).sum())


def _norm(x: Tensor) -> Tensor:
    """[B]"""
    return x.flatten(1).norm(dim=1) if x.dim() > 1 else x.abs()


def _unit(x: Tensor) -> Tensor:
    n = _norm(x)
    if not bool((n > 0).all()):
        raise ValueError("largest_lyapunov: twins fell together; take a larger `size`, or a smaller `every`.")
    return x / n.reshape(-1, *[1] * (x.dim() - 1))
