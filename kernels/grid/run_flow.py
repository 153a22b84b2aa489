"""Launch generated kernels of convection and diffusion on tensors of any strides."""

from __future__ import annotations

from functools import lru_cache
from types import ModuleType

from torch import Tensor

from pinnfuse.kernels.grid.apply import Kernel
from pinnfuse.kernels.grid.flow import Flow
from pinnfuse.kernels.grid.flow_source import generate
from pinnfuse.kernels.grid.tile import Tile
from pinnfuse.kernels.jets import cache

FORWARD = {1: Tile(1024, 1, 4), 2: Tile(128, 4, 4), 3: Tile(128, 4, 4)}
BACKWARD = {1: Tile(512, 1, 4), 2: Tile(128, 4, 4), 3: Tile(128, 4, 4)}
"""H200, upwind3 of 2048^2 x 8, share of the copy rate: forward 128 x 4 91 %, 256 x 2 89 %, 128 x 8 81 %; backward 65,
61, 41 %. One and three axes: not measured."""

LIMITERS = {1: Tile(256, 1, 8), 2: Tile(64, 4, 8), 3: Tile(64, 4, 8)}
"""Backward of van Leer and WENO5, one point a thread: of four, the numbers of all would spill (Triton 3.6, WENO5
between walls: 255 registers and 264 bytes of spills, here 125 and none). Not measured."""

BOUNDED = {
    ("central", 1, True): Tile(64, 8, 4, registers=64),
    ("upwind3", 2, True): Tile(64, 8, 4, registers=80),
    ("upwind3", 2, False): Tile(128, 4, 4, registers=72),
}
"""Backward in the plane, advective form, by scheme, reach, walls. Between walls the branch of edges takes 104 and 112
registers, which all tiles pay for by fewer programs at a time; periodic 45 and 80. Within these bounds nothing is
spilled (Triton 3.6; periodic upwind3: two words), and 64 x 8 has half the edge tiles of 128 x 4. Not measured yet."""


def backward_tile(flow: Flow) -> Tile:
    """The default tile of the backward; a bound on registers for those kernels of which it is known that they fit."""
    if not flow.weights:
        return LIMITERS[flow.dimension]
    plain = BACKWARD[flow.dimension]
    if flow.dimension != 2 or flow.form != "advective":
        return plain
    return BOUNDED.get((flow.scheme, flow.reach, not all(flow.periodic)), plain)


@lru_cache(maxsize=256)
def module(flow: Flow) -> ModuleType:
    return cache.load(generate(flow), "flow")


@lru_cache(maxsize=256)
def kernels(flow: Flow) -> tuple[Kernel, Kernel]:
    """Forward and backward."""
    d, loaded, vector = flow.dimension, module(flow), flow.kind == "convection"
    return (
        Kernel(loaded.forward_kernel, d, (2,) if vector else (), FORWARD[d]),
        Kernel(loaded.backward_kernel, d, (1, 4) if vector else (), backward_tile(flow), {"NEED_F": 0, "NEED_C": 1}),
    )


def forward(flow: Flow, numbers: Tensor, f: Tensor, c: Tensor, out: Tensor, tile: Tile | None = None) -> None:
    """out[b, 0, *space] of f[b, 0, *space] and c[b, components, *space]."""
    kernels(flow)[0]((out, f, c), numbers, tile)


def backward(
    flow: Flow,
    numbers: Tensor,
    gradient: Tensor,
    f: Tensor,
    c: Tensor,
    grad_f: Tensor | None,
    grad_c: Tensor | None,
    tile: Tile | None = None,
) -> None:
    """Gradients of f and c, those that are not None."""
    kernels(flow)[1]((grad_f, grad_c, gradient, f, c), numbers, tile)
