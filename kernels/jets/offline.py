"""Compile the kernels of a spec for a card that is not here, and read what they use: registers, stack, shared memory.

Triton carries its own assembler, so this needs no card. Spills are found so before a card is spent on them, and
continuous integration checks that every kernel compiles for every supported architecture.
"""

from __future__ import annotations

import re
import subprocess
import tempfile
from collections.abc import Collection
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import triton
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

from pinnfuse.jets.plan import JetPlan
from pinnfuse.jets.program import Program
from pinnfuse.kernels.jets import config, fused, group
from pinnfuse.kernels.jets.finish import finish
from pinnfuse.kernels.jets.finish import module as finish_module
from pinnfuse.kernels.jets.hopper_fused import WARPS
from pinnfuse.kernels.jets.looped import loops
from pinnfuse.kernels.jets.primitives import split_weights_kernel, weight_gradient_kernel
from pinnfuse.kernels.jets.products import outer_kernel, product_kernel, split_kernel
from pinnfuse.kernels.jets.runner import hopper_module, module
from pinnfuse.kernels.jets.schedule import Pointwise, schedule
from pinnfuse.kernels.jets.spec import LOSS_AND_GRADIENT, Spec
from pinnfuse.kernels.jets.tiles import LOOPED, tiles

OFFLINE_DEPTH = 5
"""Hidden products of the network whose one-kernel step is compiled."""

HALVES = ("i_ptr", "a_ptr", "z_ptr", "halves_ptr")


@dataclass(frozen=True)
class Resources:
    """What one compiled kernel uses. `stack` is in bytes a thread; anything above a few words is spilled registers."""

    kernel: str
    capability: int
    registers: int
    stack: int
    shared: int


def resources(
    spec: Spec, width: int, precision: str, capability: int, hopper: bool = False, **changes: Any
) -> list[Resources]:
    """Compile every kernel of a network of hidden layers of `width` for a compute capability (80, 90, 100).

    `hopper`: its own kernels instead of the portable ones. `changes` to the default launch, such as `groups=4`.
    """
    parts, channels = config.PARTS[precision], len(spec.space)
    looped = loops(spec.space)
    chosen = replace(config.launch(width, channels, precision, looped, hopper), **changes)
    c = config.fitted(chosen, 1 if looped else channels, parts, capability)
    padded = config.padded_width(width, c.block)
    constants = {"H": padded, "ROWS": c.rows, "BLOCK": c.block, "PARTS": parts, "ONCE": c.once}
    constants |= {"SAVE": True, "STEP": c.step, "MODE": LOSS_AND_GRADIENT, "WEIGHTED": True, "KEEP": False}
    constants |= {"FIRST": False, "ACTIVATION": 0, "WARPS": c.hopper_warps, "CHANNELS": channels, "PERMUTED": hopper}
    constants |= {"BO": c.gradient_block, "BI": c.gradient_block}
    rings = config.ring(c, padded, channels, parts) if hopper else (1, 1)
    plain = module(spec)
    grouped = hopper and looped and c.groups > 1
    constants |= {"GROUPS": c.groups}
    up, down = (hopper_module(spec, ring > 1, c.lean, grouped) if hopper else plain for ring in rings)
    walk = (c.hopper_warps, 1)
    kernels = [
        (plain.input_kernel, (c.output, 3), {}),
        (up.forward_kernel, walk if hopper else c.forward, {"RING": rings[0]}),
        (plain.output_kernel, (c.output, 3), {}),
        (down.backward_kernel, walk if hopper else c.backward, {"RING": rings[1]}),
        (weight_gradient_kernel, c.gradient, {}),
    ]
    if grouped:
        kernels += [(up.forward_end_kernel, walk, {"RING": 3}), (down.backward_end_kernel, walk, {"RING": 3})]
    if parts:
        kernels.append((split_weights_kernel, (4, 3), {}))
    if hopper and width == 64:
        kernels.append((fused.module(spec, c.lean).fused_kernel, (WARPS, 1), {"WARPS": WARPS, "DEPTH": OFFLINE_DEPTH}))
    return [_compile(kernel, constants | own, parts, capability, *options) for kernel, options, own in kernels]


def schedule_resources(program: Program, plan: JetPlan, precision: str, capability: int) -> list[Resources]:
    """Compile every kernel of a network's schedule for a compute capability; each different kernel once."""
    parts, found_schedule, space = config.PARTS[precision], schedule(program, None), plan.space
    widest = max(program.widths)
    c = tiles(widest, LOOPED if loops(space) else len(space), parts, capability)
    h = config.padded_width(widest, c.block)
    constants = {"H": h, "IN": h, "OUT": h, "ROWS": c.rows, "BLOCK": c.block, "PARTS": parts, "ONCE": True}
    constants |= {"BM": c.product_rows, "BN": min(h, c.product_columns), "BI": min(h, c.outer_block)}
    constants |= {"BO": min(h, c.outer_block), "TRANSPOSED": True, "ADD": True}
    groups = dict.fromkeys(node.group for node in found_schedule.nodes if isinstance(node, Pointwise))
    found = []
    for g in groups:
        numbers = {f"IN{r}": 3 for r in range(len(g.reads))} | {f"NEED{r}": 2 for r in range(len(g.reads))}
        halves = [f"r{r}_ptr" for r, kind in enumerate(g.reads) if kind == "halves"]
        halves += [f"d{r}_ptr" for r, kind in enumerate(g.reads) if kind == "product"]
        halves += [f"out{w}_ptr" for w, (_, form) in enumerate(g.writes) if form == "halves"]
        made = group.module(space, g)
        for kernel in (made.forward_kernel, made.adjoint_kernel):
            found.append(_compile(kernel, constants | numbers, parts, capability, c.warps, 3, halves))
    if end := finish(found_schedule, plan):
        modes = {"MODE": LOSS_AND_GRADIENT, "WEIGHTED": True, "KEEP": False, "FIRST": 0, "ACTIVATION": 0}
        kernel = finish_module(end.spec).output_kernel
        found.append(
            _compile(kernel, constants | modes | {"PERMUTED": False}, parts, capability, c.warps, 3, ("a_ptr",))
        )
    if parts:  # in float64 a library multiplies
        found.append(_compile(product_kernel, constants, parts, capability, *c.product, ("i_ptr", "w_ptr")))
        found.append(_compile(outer_kernel, constants, parts, capability, *c.outer, ("a_ptr", "z_ptr")))
        found.append(_compile(split_kernel, constants | {"BLOCK": 1024}, parts, capability, 4, 3))
    return found


def _compile(
    kernel: Any,
    constants: dict[str, Any],
    parts: int,
    capability: int,
    warps: int,
    stages: int,
    halves: Collection[str] | None = None,
) -> Resources:
    name = kernel.fn.__name__
    real, half = ("*fp64", "*fp64") if parts == 0 else ("*fp32", "*fp16")
    if halves is None:
        halves = (*HALVES, "w_ptr") if name.startswith(("forward", "backward", "fused")) else HALVES
    signature, values, hints = {}, {}, {}
    for i, argument in enumerate(kernel.arg_names):
        if argument in constants:
            signature[argument], values[i,] = "constexpr", constants[argument]
        elif argument.endswith("_ptr"):
            signature[argument] = half if argument in halves else real
        else:
            signature[argument] = "i32"
        if argument.endswith("_ptr") or argument in ("weight_stride", "layer_stride", "part_stride"):
            hints[i,] = [["tt.divisibility", 16]]
    source: Any = ASTSource
    if getattr(kernel, "is_gluon", lambda: False)():
        from triton.experimental.gluon._runtime import GluonASTSource

        source = GluonASTSource
    compiled = triton.compile(
        source(kernel, signature, values, hints),
        target=GPUTarget("cuda", capability, 32),
        options={"num_warps": warps, "num_stages": stages},
    )
    registers, stack = _usage(compiled.asm["cubin"])
    return Resources(name, capability, registers, stack, compiled.metadata.shared)


def _usage(cubin: bytes) -> tuple[int, int]:
    """Registers and bytes of stack, from the cubin."""
    tool = Path(triton.__file__).parent / "backends" / "nvidia" / "bin" / "cuobjdump"
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(cubin)
        file.flush()
        text = subprocess.run([str(tool), "-res-usage", file.name], capture_output=True, text=True, check=True).stdout
    found = re.search(r"REG:(\d+) STACK:(\d+)", text)
    assert found is not None, text
    return int(found[1]), int(found[2])
