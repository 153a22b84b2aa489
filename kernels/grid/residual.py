"""Launch the generated kernels of a discrete PDE: loss and residuals, gradient, derivatives by coefficients."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from types import ModuleType
from typing import Any

import torch
import triton.language as tl
from torch import Tensor

from pinnfuse.kernels.jets import cache
from pinnfuse.kernels.launching import launch

SEEDED, SAVED, RECOMPUTED = 0, 1, 2
"""Where the gradient takes the slopes of the loss from: given ones, stored residuals, residuals formed once more."""
PROGRAMS = 4096
"""Of the loss kernel, over all samples: each adds up many tiles, so that few partial sums remain."""


@dataclass(frozen=True)
class Tile:
    """Points of one program along the last two axes, and its warps."""

    x: int
    y: int
    warps: int


TILES = {1: Tile(256, 1, 4), 2: Tile(64, 8, 8), 3: Tile(64, 8, 8)}
"""Per number of axes. Two points a thread: 80 registers for Navier-Stokes, four: 170 (compiled for sm_90). Not measured
on a card yet: `benchmarks/grid_residual_tiles.py` does that."""


@dataclass(frozen=True)
class Arguments:
    """One call: fields [B, T, C, *space] with a last stride of 1, parameters (0-d or [B]), data [B, T', *space] in any
    strides, point weights in the residuals' shape [B, T', E, *space] in any strides or None, equation weights [E]."""

    fields: Tensor
    parameters: tuple[Tensor, ...]
    data: tuple[Tensor, ...]
    weights: Tensor | None
    equation_weights: Tensor
    shape: tuple[int, ...]

    @property
    def dtype(self) -> torch.dtype:
        return self.equation_weights.dtype

    @property
    def space(self) -> tuple[int, ...]:
        return self.shape[3:]

    @property
    def count(self) -> int:
        """Residuals of one equation."""
        total = self.shape[0] * self.shape[1]
        for n in self.space:
            total *= n
        return total

    def new(self, *shape: int) -> Tensor:
        return torch.empty(shape, dtype=self.dtype, device=self.fields.device)


@lru_cache(maxsize=64)
def module(source: str) -> ModuleType:
    return cache.load(source, "residual")


def too_large(fields: Tensor) -> bool:
    """Offsets inside one level are 32-bit."""
    space = fields.shape[3:]
    extent = sum((n - 1) * s for n, s in zip(space, fields.stride()[3:], strict=True))
    return max(extent, space.numel()) >= 2**31


def loss(source: str, a: Arguments, keep: bool, tile: Tile | None = None) -> tuple[Tensor, Tensor, Tensor | None]:
    """The loss, mean of w r^2 per equation, and the residuals [B, T', E, *space] if they are to be kept."""
    tile = tile or fitted(a.space)
    blocks, items = _blocks(a, tile)
    samples, steps, equations = a.shape[:3]
    programs = max(1, min(items * steps, PROGRAMS // samples))
    partial, means, total = a.new(equations, samples * programs), a.new(equations), a.new(1)
    residuals = a.new(*a.shape) if keep else None
    pointers = (*_pointers(a), a.equation_weights, partial, _counter(a.fields.device), means, total)
    strides = (*_strides(a), *_seed_strides(a.weights, a))
    arguments = (*pointers, partial if residuals is None else residuals, *strides, *a.space, *blocks, steps, a.count)
    constants = {"WEIGHTED": a.weights is not None, "KEEP": keep, **_constants(a, tile)}
    launch(module(source).loss_kernel, (programs, samples), arguments, constants, num_warps=tile.warps)
    return total[0], means, residuals


def gradient(
    source: str, a: Arguments, mode: int, upstream: Tensor, residuals: Tensor | None, tile: Tile | None = None
) -> Tensor:
    """The gradient [B, T, C, *space], contiguous, of the loss (`upstream` its 0-d gradient) or of residuals (SEEDED:
    `residuals` is their gradient, in any strides)."""
    tile = tile or fitted(a.space)
    blocks, items = _blocks(a, tile)
    out = torch.empty(a.fields.shape, dtype=a.fields.dtype, device=a.fields.device)
    arguments = (*_slope_arguments(a, upstream, residuals), out, *_slope_strides(a, residuals, mode))
    arguments = (*arguments, *a.space, *blocks, a.shape[1], a.count)
    constants = {"MODE": mode, "WEIGHTED": mode != SEEDED and a.weights is not None, **_constants(a, tile)}
    size = (items * a.fields.shape[1], a.shape[0])
    launch(module(source).gradient_kernel, size, arguments, constants, num_warps=tile.warps)
    return out


def coefficients(
    source: str, a: Arguments, mode: int, upstream: Tensor, residuals: Tensor | None
) -> tuple[Tensor, Tensor]:
    """Derivatives by parameters, [P, B], and by data columns, [D, B, T', *space]; arguments as in `gradient`."""
    tile = fitted(a.space)
    blocks, items = _blocks(a, tile)
    samples, steps = a.shape[:2]
    programs = max(1, min(items * steps, PROGRAMS // samples))
    partial = a.new(len(a.parameters), samples, programs)
    out = a.new(len(a.data), samples, steps, *a.space)
    arguments = (*_slope_arguments(a, upstream, residuals), partial, out, *_slope_strides(a, residuals, mode))
    arguments = (*arguments, *a.space, *blocks, steps, a.count)
    constants = {"MODE": mode, "WEIGHTED": mode != SEEDED and a.weights is not None, **_constants(a, tile)}
    launch(module(source).coefficient_kernel, (programs, samples), arguments, constants, num_warps=tile.warps)
    return partial.sum(2), out


def _pointers(a: Arguments) -> tuple[Tensor, ...]:
    """Fields, data, parameters, point weights."""
    return (a.fields, *a.data, *a.parameters, a.equation_weights if a.weights is None else a.weights)


def _slope_arguments(a: Arguments, upstream: Tensor, residuals: Tensor | None) -> tuple[Tensor, ...]:
    return (*_pointers(a), a.equation_weights, upstream, upstream if residuals is None else residuals)


def _strides(a: Arguments) -> tuple[int, ...]:
    parameters = (p.stride(0) if p.dim() else 0 for p in a.parameters)
    return (*a.fields.stride()[:-1], *parameters, *(s for d in a.data for s in d.stride()))


def _seed_strides(tensor: Tensor | None, a: Arguments) -> tuple[int, ...]:
    return (0,) * len(a.shape) if tensor is None else tensor.stride()


def _slope_strides(a: Arguments, residuals: Tensor | None, mode: int) -> tuple[int, ...]:
    return (*_strides(a), *_seed_strides(residuals, a), *_seed_strides(a.weights, a))


def _constants(a: Arguments, tile: Tile) -> dict[str, Any]:
    return {"ACC": tl.float64 if a.dtype == torch.float64 else tl.float32, "BX": tile.x, "BY": tile.y}


def _blocks(a: Arguments, tile: Tile) -> tuple[tuple[int, ...], int]:
    """Numbers of tiles along the last two axes, and in all at one time."""
    sizes = (tile.y, tile.x)[-min(2, len(a.space)) :]
    blocks = tuple(-(-n // size) for n, size in zip(a.space[-2:], sizes, strict=True))
    total = 1
    for n in (*blocks, *a.space[:-2]):
        total *= n
    return blocks, total


@lru_cache(maxsize=256)
def fitted(space: tuple[int, ...]) -> Tile:
    """The tile of this many axes; narrower for a narrow field, and higher so that a program has as many points."""
    tile = TILES[len(space)]
    x, y, rows = tile.x, tile.y, space[-2] if len(space) > 1 else 1
    while x > 16 and x >= 2 * space[-1]:
        x, y = x // 2, (y * 2 if len(space) > 1 else 1)
    while y > 1 and y >= 2 * rows:
        y //= 2
    return Tile(x, y, tile.warps if x * y >= 256 else 1)


_counters: dict[Any, Tensor] = {}


def _counter(device: torch.device) -> Tensor:
    """Zero, and zero again after every loss kernel; one per stream, since kernels of one stream take turns."""
    if device.type != "cuda":
        return torch.zeros(1, dtype=torch.int32)
    if torch.cuda.is_current_stream_capturing():
        return torch.zeros(1, dtype=torch.int32, device=device)  # graphs may be replayed side by side
    key = (device, torch.cuda.current_stream(device).cuda_stream)
    if key not in _counters:
        _counters[key] = torch.zeros(1, dtype=torch.int32, device=device)
    return _counters[key]


__all__ = ["RECOMPUTED", "SAVED", "SEEDED", "Arguments", "Tile", "coefficients", "gradient", "loss"]
