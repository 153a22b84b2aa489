"""The tensors of a simulation, which both backends read and write in place."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass
class Colony:
    """Agents and field on one device. No tensor is ever replaced, so CUDA graphs stay valid.

    Agents are structures of arrays, in any order: what an agent does depends on its `identity`, not on its place, so
    they can be sorted, or handed to another process. With `slots`, places with a negative identity are empty. `first`
    and `rows` tell which rows of the torus the field holds; here they are 0 and the height.

    Fields are double-buffered: a step reads `fields[now]` and `trails[now]`, writes `fields[1 - now]`, and clears
    `trails[1 - now]` for the deposits of the step after.
    """

    x: Tensor  # int32 [A] column, 1/65536 cell
    y: Tensor  # int32 [A] row
    heading: Tensor  # int32 [A] 1/65536 turn, 0 along x, growing towards y
    identity: Tensor  # int32 [A] the agent's number, counter of its random numbers
    kind: Tensor  # int32 [A] species
    fields: tuple[Tensor, Tensor]  # [S, rows, W]
    trails: tuple[Tensor, Tensor]  # [S, rows, W] int32 counts of agents, or float32 sums of their deposits
    integers: Tensor  # int32 [S, 7]
    reals: Tensor  # [S, 4 + S]
    clock: Tensor  # int64 [2] step, seed
    food: Tensor | None  # float32 [rows, W]
    obstacles: Tensor | None  # uint8 [rows, W]
    shape: tuple[int, int]  # cells of the whole domain
    torus: bool
    bilinear: bool
    deposits: str  # "count", "two-stage" or "float"
    slots: bool = False
    first: int = 0
    now: int = 0

    @property
    def species(self) -> int:
        return self.fields[0].shape[0]

    @property
    def rows(self) -> int:
        return self.fields[0].shape[1]

    @property
    def accumulate(self) -> torch.dtype:
        """Arithmetic on the field: float32 for every field but float64."""
        return torch.float64 if self.fields[0].dtype == torch.float64 else torch.float32

    def advance(self) -> None:
        """The buffers change places; the clock on the device was advanced by the last stage."""
        self.now = 1 - self.now
