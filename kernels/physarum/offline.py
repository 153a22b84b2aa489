"""Compile Physarum's kernels for a card that is not here, for every supported architecture."""

from __future__ import annotations

from typing import Any

import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from pinnfuse.kernels.jets.offline import Resources, _usage
from pinnfuse.kernels.physarum import OPTIONS, agent_sense_and_update_kernel, diffuse_and_decay_kernel
from pinnfuse.kernels.physarum.agents import pheromone_deposit_kernel
from pinnfuse.kernels.physarum.exchange import pack_kernel, unpack_kernel

TYPES = {"x_ptr": "i32", "y_ptr": "i32", "heading_ptr": "i32", "identity_ptr": "i32", "kind_ptr": "i32"}
TYPES |= {"integers_ptr": "i32", "clock_ptr": "i64", "obstacle_ptr": "u8"}
INTEGERS = ("counters_ptr", "free_ptr", "upper_ptr", "lower_ptr", "records_ptr", "sent_ptr", "before_ptr")
TYPES |= dict.fromkeys(INTEGERS, "i32")


def resources(capability: int, deposit: int = 1, half: bool = False, **flags: Any) -> list[Resources]:
    """Registers, stack and shared memory of the five kernels for a compute capability (80, 90, 100).

    Args:
        capability: times ten.
        deposit: 1 whole numbers, 2 two-stage, 3 float.
        half: a float16 field.
        flags: constants of the kernels that differ from one species on a torus, nearest cell, no maps.
    """
    constants = {"SPECIES": 1, "TORUS": True, "BILINEAR": False, "OBSTACLES": False, "FOOD": False, "ALIGNED": True}
    constants |= {"SENSE": True, "MOVE": True, "DEPOSIT": deposit, "COUNT": deposit != 3, "ROWS": 4, "BLOCK": 128}
    constants |= {"WIDE": False, "SLOTS": False}
    overlap = capability >= 90
    constants["OVERLAP"] = overlap
    constants |= flags
    field = "fp16" if half else "fp32"
    types = TYPES | {"trail_ptr": "fp32" if deposit == 3 else "i32", "field_ptr": field, "new_ptr": field}
    types["cleared_ptr"] = types["trail_ptr"]
    kernels = (agent_sense_and_update_kernel, pheromone_deposit_kernel, diffuse_and_decay_kernel)
    options = OPTIONS | ({"launch_pdl": True} if overlap else {})
    found = [_compile(kernel, types, constants, capability, options) for kernel in kernels]
    large = constants | {"BLOCK": 1024}
    return found + [_compile(kernel, types, large, capability, OPTIONS) for kernel in (pack_kernel, unpack_kernel)]


def _compile(
    kernel: Any, types: dict[str, str], constants: dict[str, Any], capability: int, options: dict[str, Any]
) -> Resources:
    signature, values, hints = {}, {}, {}
    for i, name in enumerate(kernel.arg_names):
        if name in constants:
            signature[name], values[i,] = "constexpr", constants[name]
        elif name.endswith("_ptr"):
            signature[name], hints[i,] = f"*{types.get(name, 'fp32')}", [["tt.divisibility", 16]]
        else:
            signature[name] = "i32"
    compiled = triton.compile(
        ASTSource(kernel, signature, values, hints), target=GPUTarget("cuda", capability, 32), options=options
    )
    registers, stack = _usage(compiled.asm["cubin"])
    return Resources(kernel.fn.__name__, capability, registers, stack, compiled.metadata.shared)
