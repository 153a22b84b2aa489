"""Compile the kernels of a discrete PDE for a card that is not here, and read what they use."""

from __future__ import annotations

from typing import Any

import triton.language as tl
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource, compile

from pinnfuse.kernels.grid.residual import RECOMPUTED, SAVED, module
from pinnfuse.kernels.grid.tile import Tile
from pinnfuse.kernels.jets.offline import Resources, _usage

KERNELS = {
    "loss_kernel": SAVED,
    "gradient_kernel": SAVED,
    "gradient_kernel again": RECOMPUTED,
    "coefficient_kernel": SAVED,
}
TYPES = {"float32": "fp32", "float64": "fp64", "float16": "fp16", "bfloat16": "bf16"}


def compiled(
    source: str, capability: int, tile: Tile, dtype: str = "float32", weighted: bool = False
) -> dict[str, Any]:
    """Every kernel of a source, compiled for fields of `dtype`."""
    found = {}
    for name, mode in KERNELS.items():
        kernel = getattr(module(source), name.split()[0], None)
        if kernel is not None:
            found[name] = _compile(name, kernel, capability, tile, dtype, mode, weighted)
    return found


def resources(kernels: dict[str, Any], capability: int) -> list[Resources]:
    """Registers, stack and shared memory of what `compiled` gave."""
    return [
        Resources(name, capability, *_usage(kernel.asm["cubin"]), kernel.metadata.shared)
        for name, kernel in kernels.items()
    ]


def _compile(name: str, kernel: Any, capability: int, tile: Tile, dtype: str, mode: int, weighted: bool) -> Any:
    real = "fp64" if dtype == "float64" else "fp32"
    constants: dict[str, Any] = {"ACC": tl.float64 if real == "fp64" else tl.float32, "BX": tile.x, "BY": tile.y}
    constants |= {"MODE": mode, "WEIGHTED": weighted, "KEEP": True}
    signature: dict[str, str] = {}
    values: dict[tuple[int], Any] = {}
    hints: dict[tuple[int], Any] = {}
    for i, argument in enumerate(kernel.arg_names):
        if argument in constants:
            signature[argument], values[i,] = "constexpr", constants[argument]
        elif argument == "counter_ptr":
            signature[argument] = "*i32"
        elif argument.endswith("_ptr"):
            stored = argument == "u_ptr" or (argument == "out_ptr" and name.startswith("gradient"))
            signature[argument] = f"*{TYPES[dtype] if stored else real}"
            hints[i,] = [["tt.divisibility", 16]]
        else:
            signature[argument] = "i32"
    return compile(
        ASTSource(kernel, signature, values, hints),
        target=GPUTarget("cuda", capability, 32),
        options=tile.options(dtype == "float64"),
    )
