"""Which kernels a network takes: those of a plain stack, or a schedule."""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from pinnfuse.jets.plan import JetPlan
from pinnfuse.jets.program import Program
from pinnfuse.jets.space import ChannelSpace
from pinnfuse.kernels.jets.channels import ACTIVATIONS
from pinnfuse.kernels.jets.looped import loops
from pinnfuse.kernels.jets.network import dense_stack
from pinnfuse.kernels.jets.pointwise import NotGenerated
from pinnfuse.kernels.jets.runner import module
from pinnfuse.kernels.jets.schedule import count_products, schedule
from pinnfuse.kernels.jets.spec import Spec

MAX_CHANNELS = 24
MAX_ORDER = 4
LARGEST_HEAD = 2
"""Most linear layers of an embedding that torch runs before a stack: its frequencies, and the first layer behind it."""


@dataclass(frozen=True)
class Path:
    """`kernels` is "stack", "schedule", or "" where none can run; `reason` says how or why not."""

    kernels: str
    reason: str


@lru_cache(maxsize=256)
def path(program: Program, plan: JetPlan | None) -> Path:
    """A plain stack has the faster kernels; any other network whose products run in kernels has a schedule."""
    try:
        stack = dense_stack(program)
        if unknown := [name for name in stack.activations if name not in ACTIVATIONS]:
            raise NotGenerated(f"the activation {unknown[0]} has no Triton code")
        if stack.head is not None and count_products(stack.head) > LARGEST_HEAD:
            raise NotGenerated("layers of the network lie before its plain stack")
        if plan is not None:
            if reason := too_large(plan.space):
                return Path("", reason)
            module(Spec.of(stack, plan.space, plan.outputs, plan))
        return Path("stack", "the network is recognised and Triton runs here")
    except NotGenerated as reason:
        no_stack = str(reason)
    if plan is not None and (reason_ := too_large(plan.space)):
        return Path("", f"{no_stack}, and {reason_}")
    try:
        schedule(program, None)
    except NotGenerated as reason:
        return Path("", str(reason))
    how = "so products and groups of pointwise operations take turns"
    return Path("schedule", f"the network is recognised and Triton runs here; {no_stack}, {how}")


@lru_cache(maxsize=256)
def too_large(space: ChannelSpace) -> str:
    """Why the space is beyond the kernels, "" if it is not."""
    if space.order <= MAX_ORDER and (len(space) <= MAX_CHANNELS or loops(space)):
        return ""
    return (
        f"{len(space)} channels of order {space.order}; at most {MAX_CHANNELS} of order {MAX_ORDER} fit, "
        "or any number of first derivatives with operators such as a Laplacian"
    )
