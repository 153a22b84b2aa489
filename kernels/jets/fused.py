"""Launch the one-kernel step of narrow networks (hopper_fused.py)."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from types import ModuleType
from typing import TYPE_CHECKING

import torch
import triton
from torch import Tensor

from pinnfuse.kernels.jets import cache, config
from pinnfuse.kernels.jets.buffers import aligned
from pinnfuse.kernels.jets.hopper_fused import WARPS, generate_fused
from pinnfuse.kernels.jets.primitives import split_weights_kernel
from pinnfuse.kernels.jets.spec import Spec
from pinnfuse.kernels.jets.sums import multiprocessors
from pinnfuse.kernels.jets.totals import totals_kernel
from pinnfuse.kernels.launching import Prepared

if TYPE_CHECKING:
    from pinnfuse.kernels.jets.runner import TritonEngine


@lru_cache(maxsize=128)
def module(spec: Spec, lean: bool = False) -> ModuleType:
    return cache.load(generate_fused(spec, lean), "fused")


def applies(engine: TritonEngine, points: Tensor) -> bool:
    """Whether loss and gradients at these points take one kernel."""
    if not engine.chained or engine.plan is None or engine.stack.tail is not None:
        return False
    tiles, depth = -(-points.shape[0] // 64), engine.stack.hidden
    processors = multiprocessors(points.device)
    return config.fused(engine.config, depth, len(engine.space), engine.parts, tiles, processors)


def memory(engine: TritonEngine, points: Tensor) -> int:
    """Bytes that a step keeps, for each program: jets of all layers, and its sums."""
    channels, item = len(engine.space), points.element_size()
    depth, size = engine.stack.hidden, engine.width**2
    saved = (depth + 1) * item if engine.saves else 0
    each = channels * size * (depth * engine.parts * 2 + saved) + (engine.columns + depth * size) * item
    return min(-(-points.shape[0] // 64), multiprocessors(points.device)) * each


@dataclass(frozen=True)
class Result:
    """Sums [columns] over points, input weights as [64, d]; gradients of the hidden weights [L, 64, 64]; losses."""

    sums: Tensor
    hidden: Tensor
    per_equation: Tensor
    loss: Tensor


def run(
    engine: TritonEngine,
    points: Tensor,
    coefficients: Tensor,
    given: tuple[Tensor, Tensor, Tensor, Tensor],
    residuals: Tensor,
    weighted: bool,
    keep: bool,
) -> Result:
    """Loss and gradients. `given`: trained parameters, data, weights of equations and of points."""
    key = (points.shape[0], weighted, keep)
    launches = engine.prepared.get(key)
    if launches is None:
        launches = engine.prepared.keep(key, _Launches(engine, *key))
    return launches(engine, points, coefficients, given, residuals)


class _Launches:
    """The three launches of a step and the sizes of what they write, for one number of points."""

    def __init__(self, engine: TritonEngine, count: int, weighted: bool, keep: bool):
        stack, parts, channels, width = engine.stack, engine.parts, len(engine.space), engine.width
        plan, depth, size = engine.plan, engine.stack.hidden, engine.width**2
        assert plan is not None
        tiles = -(-count // 64)
        programs = min(tiles, multiprocessors(engine.device))
        self.columns = engine.columns
        self.head = aligned(engine.columns)
        self.layers = (depth, width, width)
        self.equations = len(plan.residuals)
        row = self.head + depth * size
        self.halves = (parts, depth, size)
        self.jets = (programs, depth, channels, parts, size)
        self.scales = (programs, depth, channels)
        self.saved = (programs, depth + 1, channels, size) if engine.saves else (1,)
        self.sums = (programs, row)
        blocks = {"H": width, "BLOCK": width, "PARTS": parts}
        self.split = Prepared(split_weights_kernel, (depth,), (depth * size, depth, 1), blocks, num_warps=4)
        constants = {"DEPTH": depth, "PARTS": parts, "WEIGHTED": weighted, "KEEP": keep, "WARPS": WARPS}
        kernel = module(engine.spec, engine.config.lean).fused_kernel
        self.step = Prepared(kernel, (programs,), (count, tiles, row, depth * size), constants, num_warps=WARPS)
        d, first = stack.widths[0], stack.widths[-1] * width
        numbers = (programs, row, first, self.columns - d * width, self.head, count)
        constants = {"EQUATIONS": self.equations, "D": d, "PERMUTED": engine.config.lean}
        constants |= {"COLUMNS": max(32, triton.next_power_of_2(self.equations)), "ROWS": 64}
        grid = (triton.cdiv(row, constants["COLUMNS"]) + 1,)
        self.totals = Prepared(totals_kernel, grid, numbers, constants, num_warps=4)

    def __call__(
        self,
        engine: TritonEngine,
        points: Tensor,
        coefficients: Tensor,
        given: tuple[Tensor, Tensor, Tensor, Tensor],
        residuals: Tensor,
    ) -> Result:
        net, new = engine.network, points.new_empty
        halves = new(self.halves, dtype=torch.float16)
        scales = new(self.layers[0])
        self.split((net.hidden, halves, scales))
        jets, jet_scales = new(self.jets, dtype=torch.float16), new(self.scales)
        saved, sums = new(self.saved), new(self.sums)
        network = (net.first, net.first_bias, halves, scales, net.hidden_bias, net.last, net.last_bias)
        self.step((points, *network, coefficients, *given, residuals, jets, jet_scales, saved, sums))
        total, means, loss = new(self.sums[1]), new(self.equations), new(())
        self.totals((sums, given[2], total, means, loss))
        return Result(total[: self.columns], total[self.head :].view(self.layers), means, loss)
