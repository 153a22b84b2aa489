"""Fused kernels for residuals of coordinate networks: jets through dense layers, loss and all gradients."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from functools import partial
from typing import Any

import torch
import triton
from torch import Tensor

from pinnfuse.errors import BackendUnavailable
from pinnfuse.jets.engine import JetEngine
from pinnfuse.jets.plan import JetPlan, Output
from pinnfuse.jets.program import Program
from pinnfuse.jets.space import ChannelSpace
from pinnfuse.jets.trace import Recognised
from pinnfuse.kernels.jets import choices, config
from pinnfuse.kernels.jets.looped import loops
from pinnfuse.kernels.jets.network import dense_stack
from pinnfuse.kernels.jets.paths import path, too_large
from pinnfuse.kernels.jets.runner import TritonEngine
from pinnfuse.kernels.jets.scheduled import ScheduledEngine
from pinnfuse.kernels.measured import unmeasured
from pinnfuse.remembered import Remembered


def obstacle(recognised: Recognised | None, points: Tensor, plan: JetPlan | None) -> str:
    """Why the fused kernels cannot run here, "" if they can."""
    if points.device.type != "cuda" and not _interpreting():
        return f"the points are on {points.device.type}; Triton kernels need a CUDA card"
    if points.device.type == "cuda" and torch.cuda.get_device_capability(points.device) < (8, 0):
        return "the card's compute capability is below 8.0"
    if points.shape[0] == 0:
        return "there are no points"
    if recognised is None:
        return "the network has no closed form"
    found = path(recognised.program, plan)
    return "" if found.kernels else found.reason


def _interpreting() -> bool:
    """Kernels run on the CPU only where a test asks for it: `auto` must not pick an interpreter."""
    return triton.knobs.runtime.interpret and os.environ.get("PINNFUSE_INTERPRET") == "1"


def engine(
    program: Program,
    operands: list[Tensor],
    space: ChannelSpace,
    outputs: Sequence[Output],
    coefficients: Sequence[float],
    plan: JetPlan | None,
    precision: str,
) -> JetEngine:
    """The engine of one call. Raises BackendUnavailable for a space beyond the limits that `obstacle` knows."""
    if reason := too_large(space):
        remedy = "Ask for fewer derivatives at once, or use backend='torch'."
        raise BackendUnavailable(f"backend 'triton': {reason}. {remedy}")
    like = operands[0]
    channels = (space, tuple(outputs)) if plan is None else plan  # the plan names both
    key = (program, channels, tuple(coefficients), precision, like.dtype, like.device, config.refused())
    if (known := _known.get(key)) is not None:
        return known.on(operands)
    by_schedule = partial(ScheduledEngine, program, operands, space, outputs, coefficients, plan, precision)
    if path(program, plan).kernels == "schedule":
        return by_schedule()
    by_stack = partial(TritonEngine, program, operands, space, outputs, coefficients, plan, precision)
    device, width = like.device, max(dense_stack(program).widths[1:-1])
    name = choices.key(width, len(space), precision, device)
    base = config.launch(width, len(space), precision, loops(space), config.is_hopper(device))
    configuration = choices.known(name)
    if configuration is None and choices.tunes(device):

        def seconds(option: config.Launch) -> float:
            built = by_schedule() if option.scheduled else by_stack(configuration=option)
            return _seconds(built, program.widths[0], len(outputs))

        configuration = choices.tune(name, choices.candidates(base, width), seconds)
    if (configuration or base).scheduled:
        return by_schedule()
    made = by_stack(configuration=configuration)
    if configuration is not None or not unmeasured(device):  # else it is still to be measured
        _known.keep(key, made.on([]))
    return made


_known: Remembered[Any, TritonEngine] = Remembered(64)
"""Engines without operands: all that a call need not find out again."""


def _seconds(engine: JetEngine, columns: int, outputs: int, count: int = 16384) -> float:
    """Time of forward and adjoint at random points, the best of five."""
    like = engine.operands[0]
    points = torch.rand(count, columns, dtype=like.dtype, device=like.device)
    gradient = torch.rand(outputs, count, dtype=like.dtype, device=like.device)
    times = []
    for _ in range(6):
        _synchronize(like.device)
        start = time.perf_counter()
        engine.adjoint(points, gradient, [True] * len(engine.operands))
        _synchronize(like.device)
        times.append(time.perf_counter() - start)
    return min(times[1:])


def _synchronize(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


__all__ = ["ScheduledEngine", "TritonEngine", "engine", "obstacle", "path", "too_large"]
