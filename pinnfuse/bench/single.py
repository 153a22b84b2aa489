"""Times of one operation, and of two that compute the same: the article's `benchmark_operator`."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

import torch
from torch import Tensor

from pinnfuse.bench import timing

OUTSIDE = 1.5
"""A call may end on the device later than its events say by this factor, and 0.2 ms a call; beyond, work was launched
where the events do not see it."""


@dataclass(frozen=True)
class Timing:
    """Milliseconds a call: of the first one (compilation, context), and of `count` after the warm-up."""

    name: str
    device: str
    first: float
    median: float
    mean: float
    q20: float
    q80: float
    count: int

    def __str__(self) -> str:
        return f"{self.name}: {self.median:.4g} ms ({self.q20:.4g} to {self.q80:.4g}), first call {self.first:.4g} ms"


def benchmark_operator(
    func: Callable[..., Any],
    tensor: Tensor,
    name: str = "",
    *,
    warm_up: int = 10,
    runs: int = 100,
    backward: bool = False,
    flush: bool = False,
) -> Timing:
    """Time `func(tensor)`.

    On a card by CUDA events around every call, the device waited for before and after; elsewhere by the wall clock.

    Args:
        func: what is timed; must do its work on the current stream.
        warm_up, runs: calls before, and calls that count.
        backward: time the gradient with respect to `tensor` too, for an upstream gradient made before.
        flush: write over the card's L2 cache before every call, so that the input comes from memory.

    Raises:
        ValueError: numbers below 1.
        RuntimeError: work went on after the events said it was done (another stream): such times mean nothing.
    """
    if warm_up < 1 or runs < 1:
        raise ValueError(f"benchmark_operator: `warm_up` and `runs` must be >= 1; got {warm_up} and {runs}.")
    call = _with_gradient(func, tensor) if backward else lambda: func(tensor)
    device = tensor.device
    clock = _events if device.type == "cuda" else _wall
    wipe = torch.empty(2 * _cache(device), dtype=torch.int8, device=device).zero_ if flush else None
    first = _wall(call, 1, None, device)[0]
    _wall(call, warm_up, None, device)
    samples = clock(call, runs, wipe, device)
    found = timing.quantiles(samples)
    return Timing(
        name or getattr(func, "__name__", "operation"),
        str(device),
        first,
        float(found["median"]),
        sum(samples) / len(samples),
        float(found["q20"]),
        float(found["q80"]),
        len(samples),
    )


@dataclass(frozen=True)
class Pair:
    """Two operations on one tensor: times, how many times faster the second is, and how far apart their results are:
    `max_relative` is relative to the first one's largest magnitude."""

    first: Timing
    second: Timing
    ratio: float
    max_absolute: float
    max_relative: float

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)

    def __str__(self) -> str:
        return (
            f"{self.first}\n{self.second}\n{self.second.name} is {self.ratio:.2f}x as fast; largest difference "
            f"{self.max_absolute:.3g}, {self.max_relative:.3g} of the largest value"
        )


def benchmark_pair(
    first: Callable[[Tensor], Tensor],
    second: Callable[[Tensor], Tensor],
    tensor: Tensor,
    names: tuple[str, str] = ("native", "fused"),
    **options: Any,
) -> Pair:
    """`benchmark_operator` of both, with the same options, and the difference of their results."""
    a, b = first(tensor).detach().double(), second(tensor).detach().double()
    if a.shape != b.shape:
        raise ValueError(f"benchmark_pair: both must return one shape; got {list(a.shape)} and {list(b.shape)}.")
    difference = float((a - b).abs().max())
    times = [benchmark_operator(f, tensor, name, **options) for f, name in zip((first, second), names, strict=True)]
    largest = float(a.abs().max())
    return Pair(
        times[0], times[1], times[0].median / times[1].median, difference, difference / largest if largest else 0.0
    )


def _with_gradient(func: Callable[..., Tensor], tensor: Tensor) -> Callable[[], Any]:
    given = tensor.detach().requires_grad_()
    upstream = torch.randn_like(func(given).detach())
    return lambda: torch.autograd.grad(func(given), given, upstream)


def _cache(device: torch.device) -> int:
    """Bytes of the last cache."""
    if device.type != "cuda":
        return 32 * 2**20
    return getattr(torch.cuda.get_device_properties(device), "L2_cache_size", 50 * 2**20)


def _wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def _wall(call: Callable[[], Any], runs: int, wipe: Callable[[], Any] | None, device: torch.device) -> list[float]:
    found = []
    for _ in range(runs):
        if wipe is not None:
            wipe()
        _wait(device)
        start = time.perf_counter()
        call()
        _wait(device)
        found.append(1e3 * (time.perf_counter() - start))
    return found


def _events(call: Callable[[], Any], runs: int, wipe: Callable[[], Any] | None, device: torch.device) -> list[float]:
    marks = [(torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)) for _ in range(runs)]
    _wait(device)
    for start, end in marks:
        if wipe is not None:
            wipe()
        start.record()
        call()
        end.record()
    marks[-1][1].synchronize()
    done = time.perf_counter()
    _wait(device)
    late = 1e3 * (time.perf_counter() - done)
    found = [start.elapsed_time(end) for start, end in marks]
    if late > 0.2 * runs + (OUTSIDE - 1) * sum(found):
        raise RuntimeError(
            f"benchmark_operator: the device worked {late:.3g} ms longer than the events of {runs} calls "
            f"({sum(found):.3g} ms) saw: something runs on another stream. Join it to the current stream in `func`."
        )
    return found
