"""Jets of any differentiable module by nested forward mode (`torch.func.jvp`), for networks that have no closed form.

d^alpha u is one directional derivative per letter of alpha, nested; its gradient is ordinary reverse mode through
that. Slower than closed form, but it asks of the module only that each row of its output depends on the same row of
its input.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from pinnfuse.jets.decomposed import Decomposed
from pinnfuse.jets.engine import ChunkedEngine
from pinnfuse.jets.gradients import Gradients
from pinnfuse.jets.plan import Output
from pinnfuse.jets.space import ChannelSpace, MultiIndex


class ForwardModeEngine(ChunkedEngine):
    """Operands are the module's own parameters. The space must have no operator channels."""

    def __init__(
        self, net: nn.Module, space: ChannelSpace, outputs: Sequence[Output], check: Callable[[Tensor, int], None]
    ):
        assert not space.operators
        named = dict(net.named_parameters()) | {n: b for n, b in net.named_buffers() if b.requires_grad}
        self._net, self._names, self._check = net, list(named), check
        self.operands = list(named.values())
        self._requests = [(space.indices[o.channel], o.column) for o in outputs]
        self.chunk = FORWARD_MODE_CHUNK

    def _forward(self, points: Tensor, wanted: Sequence[bool]) -> tuple[Tensor, Any]:
        leaves = [t.detach().requires_grad_(w) for t, w in zip(self.operands, wanted, strict=True)]
        with torch.inference_mode(False), torch.enable_grad():  # some forward derivatives need it; no leaves, no graph
            points = points.clone() if points.is_inference() else points
            parameters = dict(zip(self._names, leaves, strict=True))
            outputs = forward_mode_outputs(
                lambda x: torch.func.functional_call(self._net, parameters, (x,)), points, self._requests, self._check
            )
        return outputs, (outputs, leaves)

    def _backward(self, gradient: Tensor, state: Any, gradients: Gradients) -> None:
        outputs, leaves = state
        if not outputs.requires_grad:  # a network without parameters, or one that is constant
            return
        chosen = [i for i, w in enumerate(gradients.wanted) if w]
        found = torch.autograd.grad(outputs, [leaves[i] for i in chosen], gradient, allow_unused=True)
        for i, g in zip(chosen, found, strict=True):
            if g is not None:
                gradients.add(i, g.clone())


FORWARD_MODE_CHUNK = 4096

_one_at_a_time = threading.RLock()
"""Torch counts the levels of forward mode for all threads together, and `functional_call` changes the module."""


def forward_mode_outputs(
    f: Callable[[Tensor], Tensor],
    points: Tensor,
    requests: Sequence[tuple[MultiIndex, int]],
    check: Callable[[Tensor, int], None],
) -> Tensor:
    """[R, N]: column `c` of `d^alpha f` for each request (alpha, c); `check` sees the value of f first."""
    with _one_at_a_time, Decomposed():
        value = f(points)
        check(value, points.shape[0])
        fields: dict[MultiIndex, Tensor] = {(0,) * points.shape[1]: value}
        for alpha, _ in requests:
            if alpha not in fields:
                fields[alpha] = _partial(f, points, alpha)(points)
    return torch.stack([fields[alpha][:, column] for alpha, column in requests])


def _partial(f: Callable[[Tensor], Tensor], points: Tensor, alpha: MultiIndex) -> Callable[[Tensor], Tensor]:
    for coordinate, count in enumerate(alpha):
        for _ in range(count):
            f = _directional(f, points, coordinate)
    return f


def _directional(f: Callable[[Tensor], Tensor], points: Tensor, coordinate: int) -> Callable[[Tensor], Tensor]:
    direction = torch.zeros_like(points)
    direction[:, coordinate] = 1
    return lambda x: torch.func.jvp(f, (x,), (direction,))[1]
