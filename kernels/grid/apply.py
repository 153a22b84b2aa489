"""Launch a generated linear operator, out[b, o, *space] = sum of its terms of u[b, c, *space]; any strides."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import lru_cache
from types import ModuleType
from typing import Any

import torch
import triton.language as tl
from torch import Tensor

from pinnfuse.kernels.grid.layout import Layout
from pinnfuse.kernels.grid.source import generate
from pinnfuse.kernels.grid.tile import Tile
from pinnfuse.kernels.jets import cache
from pinnfuse.kernels.launching import Prepared
from pinnfuse.remembered import Remembered

TILES = {1: Tile(1024, 1, 4), 2: Tile(64, 8, 4), 3: Tile(64, 8, 4)}
"""Per number of axes. H200, laplacian of 2048^2 x 8, share of the copy rate: 64 x 8 and 128 x 8 84 %, 128 x 4 83 %,
256 x 4 80 %, 128 x 16 69 %; one point a thread at once instead of four 70 %. Other numbers of axes: not measured."""


Shape = tuple[tuple[int, ...], tuple[int, ...]]


class Kernel:
    """A kernel over the points of `[batch, components, *space]` arrays, with what its launches have in common.

    Args:
        function: the generated kernel.
        dimension: number of axes.
        vectors: which of its arrays have a component stride.
        tile: points of a program, and warps.
        flags: names of constants that say which arrays are there, with their places: an array may be None.
    """

    def __init__(
        self, function: Any, dimension: int, vectors: Sequence[int], tile: Tile, flags: Mapping[str, int] | None = None
    ):
        self.function, self.dimension, self.vectors, self.tile = function, dimension, tuple(vectors), tile
        self.flags = dict(flags or {})
        self._launches: Remembered[Any, Prepared] = Remembered(1024)

    def __call__(self, arrays: Sequence[Tensor | None], weights: Tensor, tile: Tile | None = None) -> None:
        """Launch; the arrays have one dtype, `weights` are float64 for float64 and float32 for the others."""
        first = arrays[-1]
        assert first is not None
        self.prepared(arrays, weights, tile)([first if a is None else a for a in arrays] + [weights])

    def prepared(self, arrays: Sequence[Tensor | None], weights: Tensor, tile: Tile | None = None) -> Prepared:
        """The launch on arrays of these shapes, strides and dtype, all of them and then the weights."""
        shapes = tuple([None if a is None else (a.shape, a.stride()) for a in arrays])
        first = arrays[-1]
        assert first is not None
        key = (shapes, first.dtype, weights.device, tile)
        found = self._launches.get(key)
        if found is None:
            prepared = self._prepare(shapes, tile or self.tile, weights.dtype == torch.float64)
            found = self._launches.keep(key, prepared)
        return found

    def _prepare(self, shapes: tuple[Shape | None, ...], tile: Tile, double: bool) -> Prepared:
        known = next(s for s in shapes if s is not None)
        nx, ny, nz = _extents(known[0], self.dimension)
        tile = fitted(tile, nx, ny)
        tiles_x, tiles_y = -(-nx // tile.x), -(-ny // tile.y)
        batch = 1 if self.dimension == 1 else known[0][0]
        steps = [(0,) * 5 if s is None else _strides(s[1], self.dimension) for s in shapes]
        unit = all(step[4] == 1 for s, step in zip(shapes, steps, strict=True) if s is not None)
        vector = tile.vector if unit and all(n % tile.vector == 0 for s in steps for n in s[:4]) else 1
        strides: list[int] = []
        for k, s in enumerate(steps):
            scaled = [n // vector for n in s[:4]] + [s[4]]
            strides += scaled if k in self.vectors else [scaled[0], *scaled[2:]]
        constants: dict[str, Any] = {
            "BX": tile.x,
            "BY": tile.y,
            "VEC": vector,
            "UNIT": unit,
            "WIDE": max(_extent(*s) for s in shapes if s is not None) >= 2**31,
            "ACC": tl.float64 if double else tl.float32,
            **{name: shapes[place] is not None for name, place in self.flags.items()},
        }
        grid = (batch * nz * tiles_x * tiles_y,)
        integers = (nx, ny, nz, tiles_x, tiles_y, *strides)
        return Prepared(self.function, grid, integers, constants, **tile.options(double))


@lru_cache(maxsize=256)
def module(layout: Layout) -> ModuleType:
    return cache.load(generate(layout), "stencil")


@lru_cache(maxsize=256)
def kernel(layout: Layout) -> Kernel:
    return Kernel(module(layout).apply_kernel, layout.dimension, (0, 1), TILES[layout.dimension])


def _extents(shape: tuple[int, ...], dimension: int) -> tuple[int, int, int]:
    """nx, ny, nz; one-dimensional fields have their batch along y."""
    space = shape[2:]
    if dimension == 1:
        return space[0], shape[0], 1
    return space[-1], space[-2], space[0] if dimension == 3 else 1


def _strides(strides: tuple[int, ...], dimension: int) -> tuple[int, int, int, int, int]:
    """Of batch, component, z, y, x."""
    b, c, *space = strides
    if dimension == 1:
        return 0, c, 0, b, space[0]
    return b, c, space[0] if dimension == 3 else 0, space[-2], space[-1]


def _extent(shape: tuple[int, ...], strides: tuple[int, ...]) -> int:
    """Largest offset inside one batch entry, or of the whole tensor where the batch is an axis of the tile."""
    first = 0 if len(shape) == 3 else 1
    return sum((n - 1) * abs(s) for n, s in zip(shape[first:], strides[first:], strict=True))


@lru_cache(maxsize=256)
def fitted(tile: Tile, nx: int, ny: int) -> Tile:
    """A narrower tile for a narrow field, higher so that a program has as many points."""
    x, y = tile.x, tile.y
    while x > 16 and x >= 2 * nx:
        x, y = x // 2, y * 2
    while y > 1 and y >= 2 * ny:
        y //= 2
    if (x, y) == (tile.x, tile.y):
        return tile
    return Tile(x, y, tile.warps if x * y >= 512 else 1, vector=tile.vector)
