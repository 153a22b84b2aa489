"""Memory that is used again, so that a chunk of points runs in the memory of the chunk before it.

Fresh memory costs a CPU one page fault for each 4 KB at its first use, and is cold in every cache.
"""

from __future__ import annotations

from collections.abc import Iterable

import torch
from torch import Tensor

from pinnfuse.jets.values import DenseJet


class Workspace:
    """Lends uninitialised jets, and lends them again once they were given back. For one thread."""

    def __init__(self) -> None:
        self._idle: dict[tuple[tuple[int, ...], torch.dtype], list[DenseJet]] = {}
        self._lent: dict[int, DenseJet] = {}

    def jet(self, like: Tensor, *shape: int) -> DenseJet:
        """An uninitialised jet [K, n, width] with the dtype and device of `like`."""
        idle = self._idle.get((shape, like.dtype))
        jet = idle.pop() if idle else DenseJet(like.new_empty(shape))
        self._lent[jet.data.data_ptr()] = jet
        return jet

    def channel(self, like: Tensor) -> Tensor:
        """An uninitialised [n, width] like another."""
        return self.jet(like, 1, *like.shape).channels[0]

    def give_back(self, tensor: Tensor, unless: Iterable[DenseJet] = ()) -> None:
        """End the loan of the memory of `tensor`, unless one of some jets lies there too; other memory is ignored."""
        address = tensor.untyped_storage().data_ptr()
        if address in self._lent and all(jet.data.untyped_storage().data_ptr() != address for jet in unless):
            self._put(self._lent.pop(address))

    def restart(self) -> None:
        """End all loans."""
        for jet in reversed(self._lent.values()):
            self._put(jet)
        self._lent.clear()

    def _put(self, jet: DenseJet) -> None:
        self._idle.setdefault((tuple(jet.data.shape), jet.data.dtype), []).append(jet)
