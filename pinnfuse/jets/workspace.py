"""Memory that is used again, so that a chunk of points runs in the memory of the chunk before it.

Fresh memory costs a CPU one page fault for each 4 KB at its first use, and is cold in every cache.
"""

from __future__ import annotations

import math
import mmap
from collections.abc import Iterable, Iterator
from contextlib import contextmanager

import torch
from torch import Tensor

from pinnfuse.jets.lanes import watched
from pinnfuse.jets.values import DenseJet

Shape = tuple[int, ...]


class Workspace:
    """Lends uninitialised jets, and lends them again once they were given back. For one thread.

    Args:
        arena: where the jets lie; None: in memory of their own, which torch frees with the last reference.
    """

    def __init__(self, arena: Arena | None = None) -> None:
        self._arena = arena
        self._idle: dict[tuple[Shape, torch.dtype], list[DenseJet]] = {}
        self._lent: dict[int, DenseJet] = {}
        self._points: int | None = None

    def jet(self, like: Tensor, *shape: int) -> DenseJet:
        """An uninitialised jet [K, n, width] with the dtype and device of `like`."""
        idle = self._idle.get((shape, like.dtype))
        jet = idle.pop() if idle else DenseJet(self._new(like, shape))
        self._lent[jet.data.data_ptr()] = jet
        return jet

    def channel(self, like: Tensor) -> Tensor:
        """An uninitialised [n, width] like another."""
        return self.jet(like, 1, *like.shape).channels[0]

    def give_back(self, tensor: Tensor, unless: Iterable[DenseJet] = ()) -> None:
        """End the loan that `tensor` is a part of, unless one of some jets lies there too; other memory is ignored."""
        start = self._start(tensor)
        if start is not None and all(self._start(jet.data) != start for jet in unless):
            self._put(self._lent.pop(start))

    def restart(self, points: int) -> None:
        """End all loans; the next ones are for another chunk, of a number of points."""
        if points == self._points:
            for jet in reversed(self._lent.values()):
                self._put(jet)
        else:  # other shapes: in the same memory
            self._idle.clear()
            if self._arena is not None:
                self._arena.clear()
        self._lent.clear()
        self._points = points

    def _start(self, tensor: Tensor) -> int | None:
        """The address of the loan in which a tensor lies."""
        address = tensor.data_ptr()
        if address in self._lent:
            return address
        return next((a for a, jet in self._lent.items() if a < address < a + jet.data.nbytes), None)

    def _new(self, like: Tensor, shape: Shape) -> Tensor:
        if self._arena is None or like.device.type != "cpu":
            return like.new_empty(shape)
        return self._arena.tensor(shape, like.dtype)

    def _put(self, jet: DenseJet) -> None:
        self._idle.setdefault((tuple(jet.data.shape), jet.data.dtype), []).append(jet)


class Arena:
    """Blocks of memory of a CPU, in huge pages where the system has them, that are filled from the start."""

    def __init__(self) -> None:
        self._blocks: list[Tensor] = []
        self.clear()

    def clear(self) -> None:
        """Everything that was given out may be given out again."""
        self._block, self._used = 0, 0

    def tensor(self, shape: Shape, dtype: torch.dtype) -> Tensor:
        size = math.prod(shape) * dtype.itemsize
        if size > BLOCK_BYTES:
            return torch.empty(shape, dtype=dtype)
        if self._used + size > BLOCK_BYTES:
            self._block, self._used = self._block + 1, 0
        if self._block == len(self._blocks):
            self._blocks.append(_block())
        start, self._used = self._used, self._used + -(-size // ALIGNMENT) * ALIGNMENT
        return self._blocks[self._block][start : start + size].view(dtype).view(shape)

    @property
    def nbytes(self) -> int:
        return len(self._blocks) * BLOCK_BYTES


def _block() -> Tensor:
    memory = mmap.mmap(-1, BLOCK_BYTES, **PRIVATE)
    if hasattr(mmap, "MADV_HUGEPAGE"):
        memory.madvise(mmap.MADV_HUGEPAGE)
    with torch.inference_mode(False):
        return torch.frombuffer(memory, dtype=torch.uint8)


@contextmanager
def borrowed() -> Iterator[Workspace]:
    """A workspace in an arena that is kept for the next call, one for each thread at work; in torch's own memory where
    somebody is watching what it allocates."""
    if watched():
        yield Workspace()
        return
    try:
        arena = _spare.pop()
    except IndexError:
        arena = Arena()
    try:
        yield Workspace(arena)
    finally:
        arena.clear()
        if sum(a.nbytes for a in _spare) + arena.nbytes <= KEPT_BYTES:
            _spare.append(arena)


_spare: list[Arena] = []
BLOCK_BYTES = 16 * 2**20
ALIGNMENT = 64
KEPT_BYTES = 256 * 2**20
PRIVATE = {"flags": mmap.MAP_PRIVATE} if hasattr(mmap, "MAP_PRIVATE") else {}
"""Otherwise a process and those forked from it would write to the same memory."""
