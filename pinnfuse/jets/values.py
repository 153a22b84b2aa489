"""Jets of a layer at n points: K channels, each [n, width].

Until the first nonlinearity every channel but the value is the same for all points, so it is carried as one row: the
first layer of a network costs one product.
"""

from __future__ import annotations

from functools import cached_property

import torch
from torch import Tensor


class AffineJet:
    """A jet whose derivatives do not depend on the point: value [n, width], rows [K - 1, width]."""

    def __init__(self, value: Tensor, rows: Tensor):
        self.value, self.rows = value, rows

    @cached_property
    def channels(self) -> tuple[Tensor, ...]:
        """Each [n or 1, width]."""
        return (self.value, *self.rows.unsqueeze(1).unbind(0))

    def block(self, start: int, stop: int) -> Tensor:
        """Channels start to stop (start >= 1) as [channels, 1, width]."""
        return self.rows[start - 1 : stop - 1].unsqueeze(1)

    def dense(self) -> DenseJet:
        rows = self.rows.unsqueeze(1).expand(-1, *self.value.shape)
        return DenseJet(torch.cat([self.value.unsqueeze(0), rows]))

    @property
    def width(self) -> int:
        return self.value.shape[-1]


class DenseJet:
    """A jet with every channel at every point: data [K, n, width], and views of it, made once.

    A view costs as much as arithmetic on a thousand numbers, and the jets of a `Workspace` are used many times.
    """

    def __init__(self, data: Tensor):
        self.data = data
        self._blocks: dict[tuple[int, int], Tensor] = {}

    @cached_property
    def channels(self) -> tuple[Tensor, ...]:
        """Each [n, width]."""
        return self.data.unbind(0)

    @cached_property
    def flat(self) -> Tensor:
        """[K n, width]."""
        return self.data.reshape(-1, self.width)

    @cached_property
    def transposed(self) -> Tensor:
        """[K, width, n]."""
        return self.data.transpose(1, 2)

    def block(self, start: int, stop: int) -> Tensor:
        """Channels start to stop as [channels, n, width]."""
        if (start, stop) not in self._blocks:
            self._blocks[start, stop] = self.data[start:stop]
        return self._blocks[start, stop]

    def dense(self) -> DenseJet:
        return self

    @property
    def width(self) -> int:
        return self.data.shape[-1]


JetValue = AffineJet | DenseJet
