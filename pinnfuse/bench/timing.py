"""Times of steps: CUDA events on a card, the wall clock elsewhere; the engines take turns, so that a busy machine or a
warm card affects all of them alike."""

from __future__ import annotations

import math
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

Call = Callable[[Tensor], Any]
SHORT = 0.2
"""Milliseconds between two events on a card, at least: recording them costs the host as much as a small step."""


def copies(device: torch.device, size: int) -> int:
    """How many sets of inputs of `size` bytes pass twice through the card's cache before one is used again."""
    if device.type != "cuda":
        return 2
    cache = getattr(torch.cuda.get_device_properties(device), "L2_cache_size", 50 * 2**20)
    return max(2, min(64, -(-2 * cache // size)))


def times(
    steps: Mapping[str, Call], inputs: Sequence[Tensor], device: torch.device, seconds: float
) -> dict[str, list[float]]:
    """Milliseconds of a step per engine, about `seconds` of them each: at least 5 samples and at most 1,000.

    Every engine runs once more before (warm-up), then in rounds; a round gives each engine about a tenth of its time.
    On a card a sample is one step, or the mean of so many that they take `SHORT`. A step with a `wait` only queues its
    work, where torch does not see it: a sample is the mean of a round by the wall clock, waited for once.
    """
    card = device.type == "cuda"
    found: dict[str, list[float]] = {name: [] for name in steps}
    counts: dict[str, int] = {}
    repeats: dict[str, int] = {}
    clocks = {name: _queued if hasattr(s, "wait") else _events if card else _wall for name, s in steps.items()}
    for name, step in steps.items():
        first = max(statistics.median(clocks[name](step, inputs, 3, 1)), 1e-3)
        repeats[name] = math.ceil(SHORT / first) if card else 1
        counts[name] = max(1, min(100, int(100 * seconds / (first * repeats[name]))))
    total = {name: 0.0 for name in steps}
    for _ in range(10):
        for name, step in steps.items():
            if len(found[name]) < 5 or total[name] < 1e3 * seconds:
                new = clocks[name](step, inputs, counts[name], repeats[name])
                found[name] += new
                total[name] += sum(new) * repeats[name]
    return found


def quantiles(samples: Sequence[float]) -> dict[str, float | int]:
    """Median, 20 % and 80 % quantiles, number of samples."""
    fifths = statistics.quantiles(samples, n=5, method="inclusive") if len(samples) > 1 else [samples[0]] * 4
    return {"q20": fifths[0], "median": statistics.median(samples), "q80": fifths[3], "count": len(samples)}


def _wall(step: Call, inputs: Sequence[Tensor], count: int, repeat: int = 1) -> list[float]:
    found = []
    for i in range(count):
        start = time.perf_counter()
        for k in range(i * repeat, (i + 1) * repeat):
            step(inputs[k % len(inputs)])
        found.append(1e3 * (time.perf_counter() - start) / repeat)
    return found


def _queued(step: Any, inputs: Sequence[Tensor], count: int, repeat: int = 1) -> list[float]:
    step(inputs[-1])
    step.wait()
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    start = time.perf_counter()
    for k in range(count * repeat):
        step(inputs[k % len(inputs)])
    step.wait()
    return [1e3 * (time.perf_counter() - start) / (count * repeat)]


def _events(step: Call, inputs: Sequence[Tensor], count: int, repeat: int = 1) -> list[float]:
    marks = [(torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)) for _ in range(count)]
    step(inputs[-1])  # fills the queue, so that the first event does not wait for the host
    for i, (start, end) in enumerate(marks):
        start.record()
        for k in range(i * repeat, (i + 1) * repeat):
            step(inputs[k % len(inputs)])
        end.record()
    torch.cuda.synchronize()
    return [start.elapsed_time(end) / repeat for start, end in marks]


def launches(call: Callable[[], Any]) -> int:
    """Kernels, copies and fills that one call starts on the card.

    `torch.use_deterministic_algorithms` adds fills of new memory, unless `torch.utils.deterministic` says not to.
    """
    from torch.profiler import ProfilerActivity, profile

    torch.cuda.synchronize()
    with profile(activities=[ProfilerActivity.CUDA], acc_events=True) as traced:
        call()
        torch.cuda.synchronize()
    return sum(event.device_type == torch.autograd.DeviceType.CUDA for event in traced.events())


def peak_memory(step: Call, points: Tensor, device: torch.device) -> float:
    """MB (10^6 bytes) that a step adds at its peak: on a card the allocator's, elsewhere that of all tensors alive."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
        torch.cuda.reset_peak_memory_stats(device)
        before = torch.cuda.memory_allocated(device)
        step(points)
        torch.cuda.synchronize(device)
        return (torch.cuda.max_memory_allocated(device) - before) / 1e6
    from pinnfuse.profiling.storage import PeakStorage

    with PeakStorage() as storage:
        step(points)
    return storage.peak / 1e6


def graph(step: Call, inputs: Tensor) -> Call:
    """The step on these inputs as a CUDA graph, which takes the host out of the time; returns what the step returns."""
    captured = torch.cuda.CUDAGraph()
    with torch.cuda.graph(captured):
        result = step(inputs)  # the caller ran it before: nothing is compiled in here

    def replay(points: Tensor) -> Any:
        captured.replay()
        return result

    return replay
