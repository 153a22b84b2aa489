"""Launch generated kernels of sampling on tensors of any strides."""

from __future__ import annotations

import math
from functools import lru_cache
from types import ModuleType
from typing import Any

import torch
import triton.language as tl
from torch import Tensor

from pinnfuse.kernels.grid.interpolation import finish_kernel
from pinnfuse.kernels.grid.sample_source import generate
from pinnfuse.kernels.grid.sampling import Sampling
from pinnfuse.kernels.jets import cache
from pinnfuse.kernels.launching import launch

BLOCK, WARPS = 128, 4
"""Points of a program. Not measured on a card yet."""
FINISH = 1024
REST = 2.0**24
"""How much smaller the units are of what a double loses as an integer."""


@lru_cache(maxsize=256)
def module(sampling: Sampling) -> ModuleType:
    return cache.load(generate(sampling), "sample")


def forward(sampling: Sampling, numbers: Tensor, field: Tensor, points: Tensor, out: Tensor) -> None:
    """out[n, c, p] of field[n, c, *space] at points[n, p, d]; `numbers` in the precision of positions."""
    arguments = (out, field, points, numbers, *_sizes(points, field.shape), *field.stride(), *out.stride())
    _launch(module(sampling).forward_kernel, arguments, points, out.shape[0] * out.shape[1], field.dtype, numbers)


def slopes(
    sampling: Sampling, numbers: Tensor, gradient: Tensor, field: Tensor, points: Tensor, grad_points: Tensor
) -> None:
    """grad_points[n, p, d], contiguous: the sum over channels of gradient[n, c, p] times the slope of the value."""
    arguments = (gradient, grad_points, field, points, numbers, *_sizes(points, field.shape), *field.stride())
    arguments = (*arguments, *gradient.stride())
    _launch(module(sampling).slope_kernel, arguments, points, points.shape[0], field.dtype, numbers)


def scatter(
    sampling: Sampling, numbers: Tensor, gradient: Tensor, points: Tensor, largest: float, grad_field: Tensor
) -> None:
    """grad_field[n, c, *space], contiguous: the transposed operator on gradient[n, c, p], the same bits every time.

    `largest` bounds the size of a weight. Sums are formed of 64-bit integers, in units of 2^-62 times a bound on all of
    them; a gradient that is not finite makes the result no number.
    """
    double = gradient.dtype == torch.float64
    bound = gradient.abs().amax().double() * (largest * points.shape[1])
    unit = torch.exp2(torch.ceil(torch.log2(bound.clamp(min=2.0**-900))) - 62)
    unit = torch.where(bound.isfinite(), unit, math.nan).reshape(1)
    total = torch.zeros(grad_field.shape, dtype=torch.int64, device=gradient.device)
    rest = torch.zeros_like(total) if double else total
    constants = {"DOUBLE": double, "REST": REST}
    arguments = (gradient, total, rest, 1 / unit, points, numbers, *_sizes(points, grad_field.shape))
    arguments = (*arguments, *gradient.stride())
    items = gradient.shape[0] * gradient.shape[1]
    _launch(module(sampling).scatter_kernel, arguments, points, items, gradient.dtype, numbers, **constants)
    size = (-(-total.numel() // FINISH),)
    constants = {**constants, "BLOCK": FINISH}
    launch(finish_kernel, size, (grad_field, total, rest, unit, total.numel()), constants, num_warps=4)


def _sizes(points: Tensor, field: torch.Size) -> tuple[int, ...]:
    return points.shape[1], field[1], -(-points.shape[1] // BLOCK), *field[2:]


def _launch(
    kernel: Any,
    arguments: tuple[Any, ...],
    points: Tensor,
    items: int,
    dtype: torch.dtype,
    numbers: Tensor,
    **constants: Any,
) -> None:
    precise = {torch.float64: tl.float64}
    constants = {
        "BLOCK": BLOCK,
        "ACC": precise.get(dtype, tl.float32),
        "POS": precise.get(numbers.dtype, tl.float32),
        **constants,
    }
    size = (-(-points.shape[1] // BLOCK) * items,)
    launch(kernel, size, (*arguments, *points.stride()), constants, num_warps=WARPS)
