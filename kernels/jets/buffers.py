"""Memory of one call: how many points go through together, and what is kept of them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch
from torch import Tensor

from pinnfuse.jets.engine import bytes_per_point
from pinnfuse.jets.program import Program
from pinnfuse.kernels.jets import config
from pinnfuse.kernels.jets.sums import multiprocessors

if TYPE_CHECKING:
    from pinnfuse.kernels.jets.runner import TritonEngine

SCRATCH_BYTES = 2 * 2**30
"""Most memory for the jets of a chunk of points, whatever a configuration says."""


@dataclass
class Buffers:
    """Jets a and adjoints z of hidden layers for one chunk, scales, saved z of the activations, partial sums; what
    programs that share the tangents of a tile leave each other.

    Adjoints of every layer, or of two that take turns where the engine is `layered`.
    """

    a: Tensor
    z: Tensor
    a_scale: Tensor
    z_scale: Tensor
    saved: Tensor
    sums: Tensor
    weights: Tensor
    shared: Tensor

    @classmethod
    def of(cls, engine: TritonEngine, count: int, like: Tensor, split: int) -> Buffers:
        layers, channels, rows = engine.stack.hidden + 1, len(engine.space), engine.config.rows
        adjoints = 2 if engine.layered else layers
        tiles = -(-min(count, engine.chunk) // rows)
        half = torch.float16 if engine.parts else like.dtype
        numbers = channels * tiles * rows * engine.width
        size = max(engine.parts, 1) * numbers
        scales = aligned(channels * tiles * (engine.width // engine.config.block))
        return cls(
            torch.empty(layers, size, dtype=half, device=like.device),
            torch.empty(adjoints, size, dtype=half, device=like.device),
            like.new_empty(layers, scales),
            like.new_empty(adjoints, scales),
            like.new_empty(layers, numbers if engine.saves else aligned(1)),
            like.new_empty(tiles, engine.columns),
            like.new_empty(split, engine.stack.hidden, engine.width, engine.width),
            like.new_empty(engine.config.groups if engine.grouped else 0, tiles * rows * engine.width),
        )


def aligned(count: int) -> int:
    """A length of rows that all begin where addresses are multiples of 16: Triton compiles a kernel again elsewhere."""
    return -(-count // 16) * 16


def bytes_of_a_point(engine: TritonEngine, given: Program | None) -> int:
    """Jets, adjoints and what else a chunk keeps; `given` are jets that an output transform reads."""
    space, stack = engine.space, engine.stack
    item = engine.itemsize
    layers = stack.hidden + 1
    kept = (layers + (2 if engine.layered else layers)) * (2 * engine.parts or item) + layers * engine.saves * item
    per_point = len(space) * engine.width * kept
    if stack.head is not None and engine.head is not None:
        per_point += bytes_per_point(stack.head, space, item) + 2 * len(space) * engine.width * item
    return per_point + (bytes_per_point(given, space, item) if given is not None else 0)


def points_of_a_chunk(engine: TritonEngine) -> int:
    """As many whole tiles as `scratch` holds, at least one."""
    c = engine.config
    tiles = max(1, min(c.scratch, SCRATCH_BYTES) // engine.bytes_per_point // c.rows)
    if c.thrifty and engine.hopper:  # chunks that every program takes an equal part of
        wave = config.programs(c, engine.width, multiprocessors(engine.device))
        tiles = max(tiles // wave * wave, min(tiles, wave))
    return tiles * c.rows
