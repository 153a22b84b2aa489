"""Compile operators on grids for a card that is not here, and read registers, stack and shared memory."""

from __future__ import annotations

from typing import Any

import triton
import triton.language as tl
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from pinnfuse.kernels.grid.apply import TILES
from pinnfuse.kernels.grid.apply import module as linear_module
from pinnfuse.kernels.grid.flow import Flow
from pinnfuse.kernels.grid.interpolation import finish_kernel
from pinnfuse.kernels.grid.layout import Layout
from pinnfuse.kernels.grid.run_flow import FORWARD, backward_tile
from pinnfuse.kernels.grid.run_flow import module as flow_module
from pinnfuse.kernels.grid.run_sample import BLOCK, FINISH, REST, WARPS
from pinnfuse.kernels.grid.run_sample import module as sample_module
from pinnfuse.kernels.grid.sampling import Sampling
from pinnfuse.kernels.grid.tile import Tile
from pinnfuse.kernels.jets.offline import Resources, _usage


def resources(
    operator: Layout | Flow | Sampling, capability: int, dtype: str = "fp32", vector: int = 4
) -> list[Resources]:
    """What every kernel of an operator uses on a compute capability (80, 90, 100)."""
    if isinstance(operator, Sampling):
        return _sampling(operator, capability, dtype)
    d = operator.dimension
    flags = {"VEC": vector, "UNIT": True, "WIDE": False}
    if isinstance(operator, Layout):
        return [_compile(linear_module(operator).apply_kernel, TILES[d], flags, capability, dtype)]
    loaded = flow_module(operator)
    return [
        _compile(loaded.forward_kernel, FORWARD[d], flags, capability, dtype),
        _compile(
            loaded.backward_kernel,
            backward_tile(operator),
            {**flags, "NEED_F": True, "NEED_C": True},
            capability,
            dtype,
        ),
    ]


def _sampling(sampling: Sampling, capability: int, dtype: str) -> list[Resources]:
    """All kernels, with positions in the precision of sums."""
    loaded = sample_module(sampling)
    precision = tl.float64 if dtype == "fp64" else tl.float32
    flags = {"BLOCK": BLOCK, "POS": precision, "DOUBLE": dtype == "fp64", "REST": REST}
    kernels = [loaded.forward_kernel, loaded.scatter_kernel]
    kernels += [loaded.slope_kernel] if hasattr(loaded, "slope_kernel") else []
    found = [_compile(kernel, Tile(0, 0, WARPS), flags, capability, dtype) for kernel in kernels]
    return [*found, _compile(finish_kernel, Tile(0, 0, 4), {**flags, "BLOCK": FINISH}, capability, dtype)]


def _compile(kernel: Any, tile: Tile, flags: dict[str, Any], capability: int, dtype: str) -> Resources:
    accumulate, numbers = (tl.float64, "fp64") if dtype == "fp64" else (tl.float32, "fp32")
    constants = {"BX": tile.x, "BY": tile.y, "ACC": accumulate, **flags}
    own = {"w_ptr": numbers, "p_ptr": numbers, "sum_ptr": "i64", "rest_ptr": "i64"}
    own |= {"scale_ptr": "fp64", "unit_ptr": "fp64"}
    signature, values, hints = {}, {}, {}
    for i, name in enumerate(kernel.arg_names):
        if name in constants:
            signature[name], values[i,] = "constexpr", constants[name]
        elif name.endswith("_ptr"):
            signature[name] = f"*{own.get(name, dtype)}"
            hints[i,] = [["tt.divisibility", 16]]
        else:
            signature[name] = "i32"
    compiled = triton.compile(
        ASTSource(kernel, signature, values, hints),
        target=GPUTarget("cuda", capability, 32),
        options=tile.options(dtype == "fp64"),
    )
    registers, stack = _usage(compiled.asm["cubin"])
    return Resources(kernel.fn.__name__, capability, registers, stack, compiled.metadata.shared)
