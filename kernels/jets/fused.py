"""Launch the one-kernel step of narrow networks (hopper_fused.py)."""

from __future__ import annotations

from functools import lru_cache
from types import ModuleType
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from pinnfuse.kernels.jets import cache, config
from pinnfuse.kernels.jets.hopper_fused import WARPS, generate_fused
from pinnfuse.kernels.jets.primitives import split_weights_kernel
from pinnfuse.kernels.jets.spec import Spec
from pinnfuse.kernels.jets.sums import multiprocessors, sum_rows
from pinnfuse.kernels.launching import launch

if TYPE_CHECKING:
    from pinnfuse.kernels.jets.runner import TritonEngine


@lru_cache(maxsize=128)
def module(spec: Spec, lean: bool = False) -> ModuleType:
    return cache.load(generate_fused(spec, lean), "fused")


@lru_cache(maxsize=16)
def _columns_of(device: torch.device) -> Tensor:
    """Where column u of a weight gradient stands in sums in the order of memory: at the position of unit u's position,
    since the units of one factor stood at their positions, and the result was moved to positions again."""
    unit = [p // 32 * 32 + (p % 8) // 2 * 8 + (p % 32) // 8 * 2 + p % 2 for p in range(64)]
    at = {unit[unit[p]]: p for p in range(64)}
    return torch.tensor([at[u] for u in range(64)], device=device)


def applies(engine: TritonEngine, points: Tensor) -> bool:
    """Whether loss and gradients at these points take one kernel."""
    if not engine.chained or engine.plan is None or engine.stack.tail is not None:
        return False
    tiles, depth = -(-points.shape[0] // 64), engine.stack.hidden
    processors = multiprocessors(points.device)
    return config.fused(engine.config, depth, len(engine.space), engine.parts, tiles, processors)


def memory(engine: TritonEngine, points: Tensor) -> int:
    """Bytes that a step keeps, for each program: jets of all layers, and its sums."""
    net, channels, item = engine.network, len(engine.space), points.element_size()
    depth, size = net.hidden.shape[0], engine.width**2
    saved = (depth + 1) * item if engine.saves else 0
    each = channels * size * (depth * engine.parts * 2 + saved) + (engine.columns + net.hidden.numel()) * item
    return min(-(-points.shape[0] // 64), multiprocessors(points.device)) * each


def run(
    engine: TritonEngine,
    points: Tensor,
    coefficients: Tensor,
    given: tuple[Tensor, Tensor, Tensor, Tensor],
    residuals: Tensor,
    weighted: bool,
    keep: bool,
    columns: int,
) -> tuple[Tensor, Tensor]:
    """Sums [columns] and gradients of the hidden weights [L, 64, 64] of all points. `given`: trained parameters, data,
    weights of equations and of points."""
    net, parts, channels = engine.network, engine.parts, len(engine.space)
    depth, width = net.hidden.shape[0], engine.width
    tiles = -(-points.shape[0] // 64)
    programs = min(tiles, multiprocessors(points.device))
    halves = torch.empty(1, parts, *net.hidden.shape, dtype=torch.float16, device=points.device)
    scales = points.new_empty(1, depth, 1)
    blocks = {"H": width, "BLOCK": width, "PARTS": parts}
    args: tuple[object, ...] = (net.hidden, halves, scales, net.hidden.numel(), depth, 1)
    launch(split_weights_kernel, (depth,), args, blocks, num_warps=4)
    jets = torch.empty(programs, depth, channels, parts, width * width, dtype=torch.float16, device=points.device)
    jet_scales = points.new_empty(programs, depth, channels)
    saved = points.new_empty(programs, depth + 1, channels, width * width) if engine.saves else scales
    head = -(-columns // 16) * 16
    sums = points.new_empty(programs, head + net.hidden.numel())
    args = (points, net.first, net.first_bias, halves, scales, net.hidden_bias, net.last, net.last_bias, coefficients)
    args = (*args, *given, residuals, jets, jet_scales, saved, sums)
    args = (*args, points.shape[0], tiles, sums.shape[1], net.hidden.numel())
    constants = {"DEPTH": depth, "PARTS": parts, "WEIGHTED": weighted, "KEEP": keep, "WARPS": WARPS}
    launch(module(engine.spec, engine.config.lean).fused_kernel, (programs,), args, constants, num_warps=WARPS)
    total = sum_rows(sums)
    weights = total[head:].view_as(net.hidden)
    if engine.config.lean:
        weights = weights.index_select(2, _columns_of(points.device))
    return total[:columns], weights
