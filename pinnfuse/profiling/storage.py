"""Peak memory of tensors on the CPU, which has no counter of its own."""

from __future__ import annotations

import weakref
from typing import Any

import torch
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves


class PeakStorage(TorchDispatchMode):
    """Context that counts the bytes of all storages that operations inside it create, while they are alive.

    It sees forward and backward. It does not see scratch memory inside an operation, nor tensors from before.
    `peak` is the largest sum so far, in bytes; `held` the present one.
    """

    def __init__(self) -> None:
        super().__init__()
        self.held = self.peak = 0
        self._alive: dict[int, weakref.ref] = {}

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        known = {t.untyped_storage()._cdata for t in tree_leaves((args, kwargs)) if isinstance(t, torch.Tensor)}
        for tensor in tree_leaves(result):
            if isinstance(tensor, torch.Tensor):
                self._count(tensor.untyped_storage(), known)
        return result

    def _count(self, storage: torch.UntypedStorage, known: set[int]) -> None:
        key, size = storage._cdata, storage.nbytes()
        if key in self._alive or key in known:  # a view, or written in place
            return

        def freed(_: object) -> None:
            self.held -= size
            del self._alive[key]

        self._alive[key] = weakref.ref(storage, freed)
        self.held += size
        self.peak = max(self.peak, self.held)
