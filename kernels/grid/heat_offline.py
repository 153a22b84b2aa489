"""Compile the steps of the heat equation for a card that is not here, and read registers, stack and shared memory."""

from __future__ import annotations

from typing import Any

import triton
import triton.language as tl
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from pinnfuse.kernels.grid.heat import Tile, steps_kernel
from pinnfuse.kernels.jets.offline import Resources, _usage


def resources(tile: Tile, whole: bool, double: bool, capability: int) -> Resources:
    """Of periodic steps; `whole`: the field fits into the tile."""
    number = "fp64" if double else "fp32"
    halo = 0 if whole else tile.steps
    constants: dict[str, Any] = {"BX": tile.x, "BY": tile.y, "HX": halo, "HY": halo if tile.y > 1 else 0}
    constants |= {"PX": True, "PY": tile.y > 1, "UNIT": True, "ACC": tl.float64 if double else tl.float32}
    signature, values, hints = {}, {}, {}
    for i, name in enumerate(steps_kernel.arg_names):
        if name in constants:
            signature[name], values[i,] = "constexpr", constants[name]
        elif name.endswith("_ptr"):
            signature[name], hints[i,] = f"*{number}", [["tt.divisibility", 16]]
        else:
            signature[name] = "i32"
    compiled = triton.compile(
        ASTSource(steps_kernel, signature, values, hints),
        target=GPUTarget("cuda", capability, 32),
        options={"num_warps": tile.warps},
    )
    return Resources("steps_kernel", capability, *_usage(compiled.asm["cubin"]), compiled.metadata.shared)
