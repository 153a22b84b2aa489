"""The largest batch that fits into memory: measured at two sizes, fitted, and tried."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

from pinnfuse.profiling.usage import MB, memory_report, peak_memory


@dataclass(frozen=True)
class BatchSize:
    """What was found. `limit` says what bounds the size: "memory", or "largest" where more would fit (or memory does
    not grow with the batch, as that of `FusedResidualLoss` does not beyond some thousand points)."""

    size: int
    limit: str
    bytes_per_sample: float
    bytes_fixed: float
    budget: int
    peak: int
    """of a step with `size`, measured"""

    def __str__(self) -> str:
        return (
            f"{self.size:,} samples ({self.limit}): {self.bytes_per_sample:,.0f} bytes each, {self.bytes_fixed:,.0f} "
            f"besides; a step takes {self.peak / MB:,.1f} of {self.budget / MB:,.1f} MB"
        )


def auto_batch_size(
    model: nn.Module,
    residual: Callable[[nn.Module, Any], Tensor],
    fraction: float = 0.8,
    *,
    draw: Callable[[int], Any],
    start: int = 256,
    largest: int = 2**24,
    budget: int | None = None,
    device: torch.device | str | None = None,
) -> BatchSize:
    """The number of samples for which a step takes `fraction` of the memory that is free now.

    A step is `residual(model, draw(n))` and the gradients of all parameters. Memory is measured for `start` and more
    samples until it grows, a line through the last two sizes gives a guess, and the guess is run: it becomes the next
    size where much is left, and shrinks while it does not fit.

    Args:
        residual: loss of (model, samples), e.g. `FusedResidualLoss(pde)` or `lambda net, a: loss(net(a))`.
        draw: `draw(n)` makes n samples on the device, e.g. `lambda n: torch.rand(n, 2, device="cuda")`.
        start: samples of the first measurement.
        largest: never more.
        budget: bytes, instead of `fraction` of what is free.
        device: that of the parameters by default.

    Raises:
        ValueError: numbers that make no sense.
        MemoryError: not even `start` samples fit.
    """
    if not 0 < fraction <= 1 or start < 1 or largest < start:
        raise ValueError(
            f"auto_batch_size: needs 0 < `fraction` <= 1 and 1 <= `start` <= `largest`; got {fraction}, {start}, "
            f"{largest}."
        )
    first = next((p.device for p in model.parameters()), torch.device("cpu"))
    device = torch.device(device or first)
    parameters = [p for p in model.parameters() if p.requires_grad]
    budget = int(fraction * memory_report(device).available * MB) if budget is None else int(budget)

    def measure(n: int) -> float:
        """Bytes of a step, infinite where it does not fit."""

        def step() -> Any:
            return torch.autograd.grad(residual(model, draw(n)), parameters, allow_unused=True)

        try:
            return peak_memory(step, device)
        except (torch.OutOfMemoryError, MemoryError):
            torch.cuda.empty_cache()
            return math.inf

    measure(start)  # compilation, workspaces
    sizes = [start]
    peaks = [measure(start)]
    if peaks[0] > budget:
        raise MemoryError(
            f"auto_batch_size: {start} samples take {peaks[0] / MB:,.1f} MB of {budget / MB:,.1f}. Use a smaller "
            "`start` or model."
        )
    while sizes[-1] < largest and (len(sizes) < 2 or peaks[-1] < 1.5 * peaks[-2]):
        sizes.append(min(2 * sizes[-1], largest))
        peaks.append(measure(sizes[-1]))
        if peaks[-1] > budget:
            break
    while True:  # a line through the last two, until it holds or bounds nothing
        slope, fixed = _line(sizes, peaks)
        guess = largest if not slope else min(largest, max(start, int((budget - fixed) / slope)))
        guess = min(guess, 16 * sizes[-1])
        peak = measure(guess)
        if peak > 0.75 * budget or guess == largest or guess <= sizes[-1]:
            break
        sizes.append(guess)
        peaks.append(peak)
    while peak > budget and guess > start:
        smaller = 0.9 if math.isinf(peak) else min(0.98, (budget - fixed) / max(peak - fixed, 1.0))
        guess = max(start, int(guess * smaller))
        peak = measure(guess)
    return BatchSize(guess, "largest" if guess == largest else "memory", slope, fixed, budget, int(peak))


def _line(sizes: list[int], peaks: list[float]) -> tuple[float, float]:
    """Slope >= 0 and value at 0 of the line through the last two finite measurements."""
    finite = [(n, p) for n, p in zip(sizes, peaks, strict=True) if math.isfinite(p)][-2:]
    if len(finite) < 2:
        n, p = finite[0]
        return p / n, 0.0
    (n1, p1), (n2, p2) = finite
    slope = max((p2 - p1) / (n2 - n1), 0.0)
    return slope, p1 - slope * n1 if slope else max(p1, p2)
