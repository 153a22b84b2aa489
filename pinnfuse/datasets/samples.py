"""Samples in memory or mapped from files, in parts of any size."""

from __future__ import annotations

import bisect
from collections.abc import Sequence
from itertools import accumulate

import torch
from torch import Tensor

from pinnfuse.tasks.task import Arrays


class Samples:
    """Named arrays whose first dimension counts samples, held in parts.

    Args:
        parts: each `{name: [n, ...]}`, the same names and trailing shapes in all.
    """

    def __init__(self, parts: Sequence[Arrays]):
        self.parts = list(parts)
        self.ends = list(accumulate(len(next(iter(part.values()))) for part in self.parts))

    def __len__(self) -> int:
        return self.ends[-1] if self.ends else 0

    @property
    def shapes(self) -> dict[str, torch.Size]:
        """{name: shape of one sample}."""
        return {name: tensor.shape[1:] for name, tensor in self.parts[0].items()}

    @property
    def bytes(self) -> int:
        return sum(tensor.nbytes for part in self.parts for tensor in part.values())

    def rows(self, indices: Tensor, pinned: bool = False) -> Arrays:
        """The samples of these indices `[n]`, copied in that order; into page-locked memory if `pinned`."""
        found = {}
        for name, tensor in self.parts[0].items():
            if len(self.parts) == 1 and not pinned:
                found[name] = tensor[indices.to(tensor.device)]
                continue
            out = torch.empty((len(indices), *tensor.shape[1:]), dtype=tensor.dtype, pin_memory=pinned)
            for row, index in enumerate(indices.tolist()):
                part = bisect.bisect_right(self.ends, index)
                out[row] = self.parts[part][name][index - (self.ends[part - 1] if part else 0)]
            found[name] = out
        return found

    def narrowed(self, first: int, count: int) -> Samples:
        """Samples first .. first + count - 1, without a copy."""
        parts, start = [], 0
        for part, end in zip(self.parts, self.ends, strict=True):
            low, high = max(first, start), min(first + count, end)
            if low < high:
                parts.append({name: tensor[low - start : high - start] for name, tensor in part.items()})
            start = end
        return Samples(parts)

    def joined(self, device: torch.device, dtype: torch.dtype) -> Samples:
        """One part on the device."""
        names = self.parts[0]
        return Samples([{name: torch.cat([p[name].to(device, dtype) for p in self.parts]) for name in names}])
