"""Launch configurations: tile sizes and warps by width, number of channels and precision.

Measured on one H200 (Triton 3.6), mostly for 4 channels, 6 hidden layers, 65,536 points; see docs/performance.md.
"""

from __future__ import annotations

import warnings
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import torch

from pinnfuse.remembered import hashed_once

PARTS = {"float64": 0, "float32": 2, "bf16x3": 2, "tf32": 1}
"""bf16x3 (16 bits) is served by two halves (22 bits), at the same rate."""


@hashed_once
@dataclass(frozen=True)
class Launch:
    """Tiles of `rows` points; units in blocks of `block`, products in steps of `step`; (warps, stages) per kernel.

    `scratch` bounds the memory of a chunk of points: fewer bytes are fewer tiles at a time and more launches.
    `ring`: blocks on their way to the Hopper kernels, forward and backward; 1: operands go straight to registers, and
    a loop over tangents takes the portable kernels. `lean`: Hopper kernels written for fewer spilled registers.
    `thrifty`: little memory; adjoints of two layers at a time, chunks of whole waves, one kernel for a step where it
    fits. `groups`: programs that share the tangents of a tile (hopper_grouped.py). `scheduled`: products and groups of
    pointwise operations take turns (scheduled.py), as for networks that are no stack.
    """

    rows: int = 64
    block: int = 64
    step: int = 64
    forward: tuple[int, int] = (4, 1)
    backward: tuple[int, int] = (4, 1)
    output: int = 4
    gradient_block: int = 64
    gradient: tuple[int, int] = (4, 2)
    once: bool = True
    hopper: bool = True
    chained: bool = True
    fused: bool = True
    hopper_warps: int = 4
    registers: int | None = None
    resident: int = 2
    ring: tuple[int, int] = (1, 1)
    lean: bool = False
    thrifty: bool = False
    groups: int = 1
    scheduled: bool = False
    scratch: int = 2 * 2**30


def padded_width(widest: int, block: int) -> int:
    return max(block, -(-widest // block) * block)


WIDEST = 2**31
_MANY: dict[str, Any] = {"thrifty": True, "groups": 4, "scratch": 900 * 2**20}
MEASURED: tuple[tuple[str, int, range, str, dict[str, Any]], ...] = (
    # blocks of 32 units have portable kernels alone
    ("stack loop", 32, range(WIDEST), "float32 tf32", {}),
    # one kernel: navier_stokes 0.795 -> 0.733, burgers 0.696 -> 0.572; 4,096 points of navier_stokes 0.124 -> 0.106
    ("stack", 64, range(1, 6), "float32 tf32", {"lean": True}),
    # burgers 1.59 -> 1.25; lean 1.27
    ("stack", 128, range(1, 4), "float32", {"ring": (4, 4)}),
    # navier_stokes 2.24 -> 1.90, kdv 2.18 -> 1.99
    ("stack", 128, range(4, 5), "float32", {"ring": (4, 4), "lean": True}),
    # navier_stokes 1.28 -> 1.12 -> 1.10, by rings of 8 too
    ("stack", 128, range(1, 5), "tf32", {"ring": (6, 4), "lean": True}),
    # navier_stokes, 256: 6.95 -> 6.52; lean 7.59
    ("stack", WIDEST, range(4, 5), "float32", {"ring": (1, 4)}),
    # navier_stokes, 256: 3.43 -> 2.69; lean 2.70
    ("stack", WIDEST, range(1, 5), "tf32", {"ring": (8, 4)}),
    # plate, 128: 13.6 -> 8.3; 64: 5.0 -> 4.1; tf32 not measured
    ("stack", WIDEST, range(11, WIDEST), "float32 tf32", {"scheduled": True}),
    # poisson_10, 64: 6.1 -> 2.9; 128: 17.6 -> 6.4, 5.1 in 2.2 GB instead of 0.8; 256: 58 -> 19.7
    ("loop", WIDEST, range(25), "float32", {"ring": (4, 4), "output": 4}),
    # poisson_10, 128: 3.9
    ("loop", WIDEST, range(25), "tf32", {"ring": (8, 8), "output": 4}),
    # poisson_100, 64: 82 -> 57 -> 43 (thrifty) -> 25.8; 256: 906 -> 514 -> 380 -> 204, in 0.95 GB; 8 groups 27 and 214
    ("loop", WIDEST, range(25, WIDEST), "float32", {"rows": 64, "ring": (4, 4), **_MANY}),
    # right on the card, not timed
    ("loop", WIDEST, range(25, WIDEST), "tf32", {"rows": 64, "ring": (8, 8), **_MANY}),
)
"""What Hopper cards change: (kernels, widths up to, channels, precisions, changes). The first row that fits counts.

Milliseconds of loss and gradient without -> with, from benchmarks/results/NVIDIA_H200/jet_variants*.json.
"""


def launch(width: int, channels: int, precision: str, looped: bool = False, hopper: bool = False) -> Launch:
    """Configuration for hidden layers of `width` units; `looped`: one channel at a time (looped.py).

    `hopper`: as measured for the kernels of Hopper cards; the portable kernels have other best tiles.
    """
    base = _portable(width, channels, precision, looped)
    if not hopper or precision == "float64":
        return base
    kernels, name = "loop" if looped else "stack", "tf32" if precision == "tf32" else "float32"
    for kind, widest, among, precisions, changes in MEASURED:
        if kernels in kind.split() and width <= widest and channels in among and name in precisions.split():
            return replace(base, **changes)
    return base


def _portable(width: int, channels: int, precision: str, looped: bool) -> Launch:
    if looped:
        block = 32 if width <= 32 or precision == "float64" else 64
        rows = 32 if channels > 24 or precision == "float64" else 64  # many channels leave few tiles in a chunk
        warps = 8 if rows * block >= 4096 else 4  # 4 would spill: 248 bytes on sm_90, 1,280 on sm_80
        base = Launch(rows=rows, block=block, step=32, forward=(warps, 2), backward=(warps, 2), output=warps)
        base = replace(base, scratch=768 * 2**20)
        if precision == "float64":
            return replace(base, gradient_block=32, gradient=(4, 1))
        return with_gradient(base, width)
    if precision == "float64":
        block = 32 if channels <= 6 else 16
        return Launch(
            rows=32, block=block, step=block, gradient_block=32 if channels <= 6 else 16, gradient=(4, 1), output=4
        )
    if channels > 10:
        return with_gradient(Launch(block=16, step=16, forward=(4, 2), backward=(4, 2)), width)
    if channels > 5 or width <= 32:
        return with_gradient(Launch(block=32, step=32, forward=(4, 2), backward=(4, 2)), width)
    if width > 64:
        output = 4 if precision == "tf32" and width <= 128 else 8  # 0.099 against 0.121 ms; float32 0.175 against 0.154
        return with_gradient(Launch(step=32, forward=(4, 2), backward=(4, 2), output=output), width)
    base = with_gradient(Launch(), width)
    return replace(base, gradient=(4, 4)) if precision == "tf32" else base  # 0.112 -> 0.101 ms


def with_gradient(launch: Launch, width: int) -> Launch:
    """`launch` with blocks of the weight gradient that suit its own."""
    block = _fit(width, launch.block)
    return replace(launch, gradient_block=block, gradient=(8, 3) if block == 128 else (4, 2))


def _fit(width: int, block: int) -> int:
    """Largest block of the weight gradient that divides the padded width: 128, else 64, else the block itself."""
    padded = padded_width(width, block)
    return next((b for b in (128, 64) if padded % b == 0), block)


SHARED_KB = {80: 163, 86: 99, 87: 163, 89: 99, 90: 227, 100: 227, 103: 227, 120: 99}
"""Shared memory that one program may use, by compute capability; the least of them for a card that is not here."""


def fitted(launch: Launch, channels: int, parts: int, capability: int) -> Launch:
    """`launch` with as many stages as shared memory holds: it was tuned on a card that has much."""
    limit = SHARED_KB.get(capability, 99) * 1024
    size = 2 * parts or 8
    gradient = 2 * launch.rows * launch.gradient_block * size
    products = (channels * launch.rows + launch.block) * launch.step * size

    def stages(options: tuple[int, int], stage: int) -> tuple[int, int]:
        return options[0], max(1, min(options[1], (limit - 8192) // stage))  # some is left for layout conversions

    return replace(
        launch,
        gradient=stages(launch.gradient, gradient),
        forward=stages(launch.forward, products),
        backward=stages(launch.backward, products),
    )


def capability(device: torch.device) -> int:
    major, minor = torch.cuda.get_device_capability(device) if device.type == "cuda" else (9, 0)
    return 10 * major + minor


def programs(launch: Launch, width: int, processors: int) -> int:
    """Tiles that run at a time on a card, each by a program for 64 units of each group of tangents."""
    return max(1, launch.resident * processors // (max(1, width // 64) * launch.groups))


def is_hopper(device: torch.device) -> bool:
    return device.type == "cuda" and torch.cuda.get_device_capability(device) == (9, 0)


def hopper(launch: Launch, width: int, channels: int, parts: int, device: torch.device) -> bool:
    """Whether the Hopper kernels can run: blocks of 64, accumulators of all channels in registers, weights on chip."""
    fits = launch.block == 64 and launch.rows == 64 and channels <= 5 and parts * width * 64 * 2 <= 200 * 1024
    return launch.hopper and fits and parts > 0 and is_hopper(device) and _gluon() and not _refused


def ring(launch: Launch, width: int, channels: int, parts: int) -> tuple[int, int]:
    """`launch.ring`, as far as `resident` programs of a multiprocessor have room for it and a tile has blocks."""
    room = (227 * 1024 // launch.resident - 4096) // (parts * 8192) - width // 64
    most = max(2, min(room, channels * (width // 64) + 1))
    return min(launch.ring[0], most), min(launch.ring[1], most)


def fused(launch: Launch, depth: int, channels: int, parts: int, tiles: int, processors: int) -> bool:
    """Whether a step of a network that can be chained runs in one kernel: weights and two sets of jets fit on chip.

    In float32 class that is faster than chained kernels. In tf32 class with four channels it is 7 % slower once every
    multiprocessor has several tiles, in a twelfth of their memory. Triton 3.6 fails where the loop over layers is one.
    """
    fits = depth > 1 and parts * (depth + 2 * channels) * 8 <= 216
    pays = tiles <= processors or channels <= 3 or launch.thrifty or (launch.lean and parts == 2)
    return launch.fused and fits and pays


def chained(launch: Launch, width: int, depth: int, parts: int, activations: int) -> bool:
    """Whether all hidden layers run in one kernel: 64 units, and the weights of all layers fit on chip."""
    return launch.chained and width == 64 and depth > 0 and activations == 1 and parts * depth * 8 <= 200


_refused: list[str] = []


def refused() -> bool:
    """Whether `refuse_hopper` was called."""
    return bool(_refused)


def refuse_hopper(reason: str) -> None:
    """Take the portable kernels for the rest of this process; says so once."""
    if not _refused:
        warnings.warn(
            f"the Hopper kernels do not compile with this Triton; the portable ones run instead, more slowly: {reason}",
            stacklevel=2,
        )
    _refused.append(reason)


@lru_cache(maxsize=1)
def _gluon() -> bool:
    """Gluon is experimental: a Triton whose interface differs takes the portable kernels."""
    try:
        from pinnfuse.kernels.jets import hopper_primitives  # noqa: F401
    except (ImportError, AttributeError, TypeError):
        return False
    return True
