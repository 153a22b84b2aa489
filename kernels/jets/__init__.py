"""Fused kernels for residuals of coordinate networks: jets through dense layers, loss and all gradients."""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from functools import partial

import torch
import triton
from torch import Tensor

from pinnfuse.errors import BackendUnavailable
from pinnfuse.jets.plan import JetPlan, Output
from pinnfuse.jets.program import Program
from pinnfuse.jets.space import ChannelSpace
from pinnfuse.jets.trace import Recognised
from pinnfuse.kernels.jets import choices, config
from pinnfuse.kernels.jets.channels import ACTIVATIONS
from pinnfuse.kernels.jets.looped import loops
from pinnfuse.kernels.jets.network import dense_stack
from pinnfuse.kernels.jets.pointwise import NotGenerated
from pinnfuse.kernels.jets.runner import TritonEngine, module
from pinnfuse.kernels.jets.source import Spec

MAX_CHANNELS = 24
MAX_ORDER = 4


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
    try:
        stack = dense_stack(recognised.program)
        for name in stack.activations:
            if name not in ACTIVATIONS:
                raise NotGenerated(f"the activation {name} has no Triton code")
        if plan is not None:
            if too_large := _too_large(plan.space):
                raise NotGenerated(too_large)
            module(Spec.of(stack, plan.space, plan.outputs, plan))
    except NotGenerated as reason:
        return str(reason)
    return ""


def _too_large(space: ChannelSpace) -> str:
    """Why the space is beyond the kernels, "" if it is not."""
    if space.order <= MAX_ORDER and (len(space) <= MAX_CHANNELS or loops(space)):
        return ""
    return (
        f"{len(space)} channels of order {space.order}; at most {MAX_CHANNELS} of order {MAX_ORDER} fit, "
        "or any number of first derivatives with operators such as a Laplacian"
    )


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
) -> TritonEngine:
    """The engine of one call. Raises BackendUnavailable for a space beyond the limits that `obstacle` knows."""
    if too_large := _too_large(space):
        raise BackendUnavailable(
            f"backend 'triton': {too_large}. Ask for fewer derivatives at once, or use backend='torch'."
        )
    build = partial(TritonEngine, program, operands, space, outputs, coefficients, plan, precision)
    device, width = operands[0].device, max(dense_stack(program).widths[1:-1])
    name = choices.key(width, len(space), precision, device)
    configuration = choices.known(name)
    if configuration is None and choices.tunes(device):
        base = config.launch(width, len(space), precision, loops(space))
        options = choices.candidates(base, width)
        configuration = choices.tune(name, options, lambda option: _seconds(build(configuration=option)))
    return build(configuration=configuration)


def _seconds(engine: TritonEngine, count: int = 16384) -> float:
    """Time of forward and adjoint at random points, the best of five."""
    like = engine.network.first
    points = torch.rand(count, engine.stack.widths[0], dtype=like.dtype, device=like.device)
    gradient = torch.rand(len(engine.outputs_read), count, dtype=like.dtype, device=like.device)
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


__all__ = ["TritonEngine", "engine", "obstacle"]
