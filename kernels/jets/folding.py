"""A head that is an affine map of the points, as one layer: its weights are its jets at the origin."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import torch
from torch import Tensor
from torch.nn import functional

from pinnfuse.jets.closed_form import closed_form
from pinnfuse.jets.gradients import Gradients
from pinnfuse.jets.program import Program
from pinnfuse.jets.space import ChannelSpace


class Folded:
    """W [width, d] and b [width] of a program of affine operations, padded with zeros, and the way back."""

    def __init__(self, program: Program, operands: Sequence[Tensor], width: int):
        d, like = program.widths[0], operands[0]
        self._operands = [t.detach() for t in operands]
        self._jets = closed_form(program, _first_order(d), ())
        result, self._values, self._saved = self._jets.forward(_origin(d, like.dtype, like.device), self._operands)
        self.units = result.width
        padded = functional.pad(result.data[:, 0], (0, width - self.units))
        self.weight, self.bias = padded[1:].t().contiguous(), padded[0]

    def adjoint(self, weight: Tensor, bias: Tensor, gradients: Gradients) -> None:
        """Add to `gradients`, from those of the layer: weight [d, width], bias [width]."""
        rows = torch.cat([bias[None], weight])[:, None, : self.units]
        self._jets.adjoint(rows, self._values, self._saved, self._operands, gradients)


@lru_cache(maxsize=32)
def _first_order(d: int) -> ChannelSpace:
    return ChannelSpace.spanning(d, [tuple(int(i == j) for i in range(d)) for j in range(d)])


@lru_cache(maxsize=32)
def _origin(d: int, dtype: torch.dtype, device: torch.device) -> Tensor:
    """One tensor for all calls: what depends on the points alone is kept by the address of the points."""
    return torch.zeros(1, d, dtype=dtype, device=device)
