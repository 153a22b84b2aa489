"""Launch the generated kernels of a discrete PDE: loss and residuals, gradient, derivatives by coefficients."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from types import ModuleType
from typing import Any

import torch
import triton.language as tl
from torch import Tensor

from pinnfuse.kernels.grid.tile import Tile
from pinnfuse.kernels.jets import cache
from pinnfuse.kernels.launching import Prepared
from pinnfuse.remembered import Remembered

SEEDED, SAVED, RECOMPUTED = 0, 1, 2
"""Where the gradient takes the slopes of the loss from: given ones, stored residuals, residuals formed once more."""
PROGRAMS = 4096
"""Of the loss kernel, over all samples: each adds up many tiles, so that few partial sums remain."""


LOSS = {1: Tile(256, 1, 4), 2: Tile(128, 4, 4), 3: Tile(64, 8, 8)}
GRADIENT = {1: Tile(256, 1, 4), 2: Tile(128, 4, 4), 3: Tile(64, 8, 8)}
GRADIENT_AT_WALLS = {1: Tile(256, 1, 4), 2: Tile(64, 4, 4), 3: Tile(64, 8, 8)}
AGAIN = {1: Tile(256, 1, 4), 2: Tile(64, 8, 8), 3: Tile(64, 8, 8)}
"""Per number of axes; `AGAIN` where the gradient forms residuals again. H200, Navier-Stokes at 2048^2 x 8, milliseconds
of loss + gradient (`benchmarks/grid_residual_tiles.py`), periodic and between walls:

    64 x 8, 8 warps      0.370 + 0.669      0.367 + 0.686         64 x 4, 4 warps      0.351 + 0.582      0.371 + 0.632
    128 x 4, 4 warps     0.323 + 0.533      0.340 + 0.849         128 x 2, 4 warps     0.358 + 0.574      0.354 + 0.644
    128 x 4, 8 warps     0.328 + 0.660      0.360 + 0.692         32 x 8, 4 warps      0.356 + 0.598      0.403 + 0.644

One and three axes: not measured."""
FEW = 3
BOUNDED_LOSS, BOUNDED_GRADIENT = Tile(128, 4, 4, 96), Tile(64, 8, 4, 128)
"""In the plane, between walls, of at most `FEW` fields. The branch of tiles at an edge takes the registers, which the
others pay for by fewer programs at a time. H200, gradient of Navier-Stokes: 128 x 4 with 176 registers, 8 warps on a
multiprocessor, 0.849 ms; 128 x 2 with 168, 12 warps, 0.631; periodic, 128, 16 warps, 0.526. The loss takes 128 (72
periodic). Within a bound the branch of edges spills what it must (Triton 3.6: 4 words of the gradient, none of the
loss), the other nothing. 64 x 8 has half the edge tiles of 128 x 4. The bounds are not measured yet; more fields may
need more everywhere."""


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
    walls: bool
    """Some axis is not periodic."""

    @property
    def layout(self) -> Any:
        """All that a launch depends on, but for the numbers."""
        f, w = self.fields, self.weights
        others = [t.stride() for t in (*self.parameters, *self.data)]
        weights = None if w is None else w.stride()
        return (f.shape, f.stride(), f.dtype, f.device, self.dtype, tuple(others), weights, self.shape, self.walls)

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


@lru_cache(maxsize=64)
def _launches(source: str) -> Remembered[Any, Prepared]:
    """Launches of a source's kernels that were prepared."""
    return Remembered(1024)


def _launch(source: str, key: Any, prepare: Callable[[], Prepared]) -> Prepared:
    known = _launches(source)
    found = known.get(key)
    return known.keep(key, prepare()) if found is None else found


@lru_cache(maxsize=1024)
def too_large(shape: tuple[int, ...], strides: tuple[int, ...]) -> bool:
    """Offsets inside one level of fields [B, T, C, *space] are 32-bit."""
    space, points = shape[3:], 1
    for n in space:
        points *= n
    extent = sum((n - 1) * s for n, s in zip(space, strides[3:], strict=True))
    return max(extent, points) >= 2**31


def loss(source: str, a: Arguments, keep: bool, tile: Tile | None = None) -> tuple[Tensor, Tensor, Tensor | None]:
    """The loss, mean of w r^2 per equation, and the residuals [B, T', E, *space] if they are to be kept."""
    launch = _launch(source, ("loss", a.layout, keep, tile), lambda: _prepare_loss(source, a, keep, tile))
    equations = a.shape[2]
    partial, means, total = a.new(equations, launch.grid[0] * launch.grid[1]), a.new(equations), a.new()
    residuals = a.new(*a.shape) if keep else None
    kept = partial if residuals is None else residuals
    launch((*_pointers(a), a.equation_weights, partial, _counter(a.fields.device), means, total, kept))
    return total, means, residuals


def _prepare_loss(source: str, a: Arguments, keep: bool, tile: Tile | None) -> Prepared:
    tile = tile or (_narrowed(BOUNDED_LOSS, a.space) if _bounded(a) else fitted(a.space, LOSS))
    blocks, items = _blocks(a, tile)
    samples, steps = a.shape[:2]
    programs = max(1, min(items * steps, PROGRAMS // samples))
    integers = (*_strides(a), *_seed_strides(a.weights, a), *a.space, *blocks, steps, a.count)
    constants = {"WEIGHTED": a.weights is not None, "KEEP": keep, **_constants(a, tile)}
    return _prepared(module(source).loss_kernel, (programs, samples), integers, constants, tile)


def gradient(
    source: str, a: Arguments, mode: int, upstream: Tensor, residuals: Tensor | None, tile: Tile | None = None
) -> Tensor:
    """The gradient [B, T, C, *space], contiguous, of the loss (`upstream` its 0-d gradient) or of residuals (SEEDED:
    `residuals` is their gradient, in any strides)."""
    strides = _seed_strides(residuals, a)
    key = ("gradient", a.layout, mode, strides, tile)
    launch = _launch(source, key, lambda: _prepare_gradient(source, a, mode, strides, tile))
    out = torch.empty(a.fields.shape, dtype=a.fields.dtype, device=a.fields.device)
    launch((*_slope_pointers(a, upstream, residuals), out))
    return out


def _prepare_gradient(source: str, a: Arguments, mode: int, strides: tuple[int, ...], tile: Tile | None) -> Prepared:
    if tile is None and mode != RECOMPUTED and _bounded(a):
        tile = _narrowed(BOUNDED_GRADIENT, a.space)
    tile = tile or fitted(a.space, AGAIN if mode == RECOMPUTED else GRADIENT_AT_WALLS if a.walls else GRADIENT)
    blocks, items = _blocks(a, tile)
    integers = (*_strides(a), *strides, *_seed_strides(a.weights, a), *a.space, *blocks, a.shape[1], a.count)
    constants = {"MODE": mode, "WEIGHTED": mode != SEEDED and a.weights is not None, **_constants(a, tile)}
    size = (items * a.fields.shape[1], a.shape[0])
    return _prepared(module(source).gradient_kernel, size, integers, constants, tile)


def coefficients(
    source: str, a: Arguments, mode: int, upstream: Tensor, residuals: Tensor | None
) -> tuple[Tensor, Tensor]:
    """Derivatives by parameters, [P, B], and by data columns, [D, B, T', *space]; arguments as in `gradient`."""
    strides = _seed_strides(residuals, a)
    key = ("coefficients", a.layout, mode, strides)
    launch = _launch(source, key, lambda: _prepare_coefficients(source, a, mode, strides))
    samples, steps = a.shape[:2]
    partial = a.new(len(a.parameters), samples, launch.grid[0])
    out = a.new(len(a.data), samples, steps, *a.space)
    launch((*_slope_pointers(a, upstream, residuals), partial, out))
    return partial.sum(2), out


def _prepare_coefficients(source: str, a: Arguments, mode: int, strides: tuple[int, ...]) -> Prepared:
    tile = fitted(a.space, AGAIN)
    blocks, items = _blocks(a, tile)
    samples, steps = a.shape[:2]
    programs = max(1, min(items * steps, PROGRAMS // samples))
    integers = (*_strides(a), *strides, *_seed_strides(a.weights, a), *a.space, *blocks, steps, a.count)
    constants = {"MODE": mode, "WEIGHTED": mode != SEEDED and a.weights is not None, **_constants(a, tile)}
    return _prepared(module(source).coefficient_kernel, (programs, samples), integers, constants, tile)


def _prepared(
    kernel: Any, grid: tuple[int, ...], integers: tuple[int, ...], constants: dict[str, Any], tile: Tile
) -> Prepared:
    """With those constants that the kernel has, in the order of its arguments, of which they are the last."""
    ordered = {name: constants[name] for name in kernel.arg_names if name in constants}
    return Prepared(kernel, grid, integers, ordered, **tile.options(constants["ACC"] == tl.float64))


def _pointers(a: Arguments) -> tuple[Tensor, ...]:
    """Fields, data, parameters, point weights."""
    return (a.fields, *a.data, *a.parameters, a.equation_weights if a.weights is None else a.weights)


def _slope_pointers(a: Arguments, upstream: Tensor, residuals: Tensor | None) -> tuple[Tensor, ...]:
    return (*_pointers(a), a.equation_weights, upstream, upstream if residuals is None else residuals)


def _strides(a: Arguments) -> tuple[int, ...]:
    parameters = (p.stride(0) if p.dim() else 0 for p in a.parameters)
    return (*a.fields.stride()[:-1], *parameters, *(s for d in a.data for s in d.stride()))


def _seed_strides(tensor: Tensor | None, a: Arguments) -> tuple[int, ...]:
    return (0,) * len(a.shape) if tensor is None else tensor.stride()


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


def _bounded(a: Arguments) -> bool:
    return a.walls and len(a.space) == 2 and a.fields.shape[2] <= FEW


def fitted(space: tuple[int, ...], tiles: dict[int, Tile]) -> Tile:
    """The tile of this many axes; narrower for a narrow field, and higher so that a program has as many points."""
    return _narrowed(tiles[len(space)], space)


@lru_cache(maxsize=256)
def _narrowed(tile: Tile, space: tuple[int, ...]) -> Tile:
    x, y, rows = tile.x, tile.y, space[-2] if len(space) > 1 else 1
    while x > 16 and x >= 2 * space[-1]:
        x, y = x // 2, (y * 2 if len(space) > 1 else 1)
    while y > 1 and y >= 2 * rows:
        y //= 2
    return tile if (x, y) == (tile.x, tile.y) else Tile(x, y, tile.warps if x * y >= 256 else 1)


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
