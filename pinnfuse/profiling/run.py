"""Profile a step: the first call apart, warm-up, then a trace of some steps."""

from __future__ import annotations

import json
import os
import tempfile
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch.profiler import ProfilerActivity

from pinnfuse.profiling import trace
from pinnfuse.profiling.trace import Kernel


@dataclass
class Profile:
    """What was found; times in microseconds, per step unless it says otherwise."""

    name: str
    device: str
    steps: int
    first_call: float
    """of the first call in this process: libraries, compilation, context"""
    steady: float
    """wall time of a step without the profiler, the device waited for at the end of all"""
    launches: float
    """kernels a step; 0 on a CPU"""
    device_time: float
    """of all kernels"""
    ranges: dict[str, float]
    """host time of each named range"""
    kernels: list[Kernel]
    """all steps together"""
    operations: int
    """torch operations a step"""
    files: list[Path] = field(default_factory=list)


def profile(
    step: Callable[[], Any],
    folder: str | Path,
    name: str,
    *,
    device: torch.device,
    steps: int = 20,
    warm_up: int = 5,
    named: Callable[[], AbstractContextManager[Any]] = nullcontext,
) -> Profile:
    """Run and trace `step`; writes `name.pt.trace.json` (Perfetto, chrome://tracing, TensorBoard) and `name.folded`
    (flame graphs, speedscope).

    Args:
        step: what is profiled; its first call is timed apart.
        folder: for the files, which are whole or not there.
        name: of the files.
        device: which the step uses.
        steps: traced, > 0.
        warm_up: steps before, > 0.
        named: context in which the step names its ranges.

    Raises:
        ValueError: numbers that are not positive, or a folder that cannot be written, before the first call.
    """
    if steps < 1 or warm_up < 1:
        raise ValueError(f"profile: `steps` and `warm_up` must be >= 1; got {steps} and {warm_up}.")
    folder = Path(folder)
    try:
        folder.mkdir(parents=True, exist_ok=True)
        scratch = tempfile.TemporaryDirectory(dir=folder)
    except OSError as error:
        raise ValueError(f"profile: cannot write to {folder}: {error.strerror}. Choose another folder.") from error
    with scratch as temporary:
        first = _timed(step, 1, device)
        _timed(step, warm_up, device)
        steady = _timed(step, steps, device)
        activities = [ProfilerActivity.CPU] + ([ProfilerActivity.CUDA] if device.type == "cuda" else [])
        with torch.profiler.profile(activities=activities) as profiler, named():
            for _ in range(steps):
                step()
            _wait(device)
        made = Path(temporary) / f"{name}.pt.trace.json"
        profiler.export_chrome_trace(str(made))
        events = json.loads(made.read_text(encoding="utf-8", errors="replace"))["traceEvents"]
        stacks = Path(temporary) / f"{name}.folded"
        stacks.write_text("\n".join(trace.folded(events)) + "\n")
        files = [folder / made.name, folder / stacks.name]
        for source, target in zip((made, stacks), files, strict=True):
            os.replace(source, target)
    kernels = trace.kernels(events)
    return Profile(
        name=name,
        device=str(device),
        steps=steps,
        first_call=first,
        steady=steady / steps,
        launches=sum(k.count for k in kernels) / steps,
        device_time=sum(k.microseconds for k in kernels) / steps,
        ranges={key: total / steps for key, (_, total) in trace.ranges(events).items()},
        kernels=kernels,
        operations=round(sum(e.get("cat") == "cpu_op" for e in events) / steps),
        files=files,
    )


def _timed(step: Callable[[], Any], count: int, device: torch.device) -> float:
    """Microseconds of `count` steps, the device waited for before and after."""
    _wait(device)
    start = time.perf_counter()
    for _ in range(count):
        step()
    _wait(device)
    return 1e6 * (time.perf_counter() - start)


def _wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)
