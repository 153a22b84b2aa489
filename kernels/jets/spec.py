"""What the source of the kernels of one network and PDE depends on: a value, without Triton."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from pinnfuse.jets.plan import JetPlan, Output
from pinnfuse.jets.space import ChannelSpace
from pinnfuse.kernels.jets.network import Stack, Tail
from pinnfuse.kernels.jets.tail import TailCode, tail_code
from pinnfuse.remembered import hashed_once

LOSS, LOSS_AND_GRADIENT, OUTPUTS, ADJOINT = range(4)
"""What the kernel of the output layer computes; the last: for a given adjoint of the outputs."""


@hashed_once
@dataclass(frozen=True)
class Spec:
    """What a source depends on."""

    space: ChannelSpace
    activations: tuple[str, ...]
    outputs: tuple[Output, ...]
    fields: int
    plan: JetPlan | None
    tail: Tail | None = None

    @classmethod
    def of(cls, stack: Stack, space: ChannelSpace, outputs: Sequence[Output], plan: JetPlan | None) -> Spec:
        names = tuple(dict.fromkeys(stack.activations))
        return cls(space, names, tuple(outputs), stack.widths[-1], plan, stack.tail)

    @cached_property
    def tail_code(self) -> TailCode | None:
        return None if self.tail is None else tail_code(self.tail, self.space, self.outputs)
