"""Checks of what a caller hands to `Physarum`: name, expected, got, remedy."""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence
from numbers import Integral
from typing import Any

import torch
from torch import Tensor

from pinnfuse.errors import nearest
from pinnfuse.simulation.physarum.colony import Colony
from pinnfuse.simulation.physarum.fixed import CELL, LARGEST_SIDE, TURN

KNOWN = {
    "boundary": ("torus", "walls"),
    "sensing": ("nearest", "bilinear"),
    "deposits": ("count", "two-stage", "float"),
}
DTYPES = (torch.float32, torch.float16, torch.bfloat16, torch.float64)
LARGEST = 1e12
"""Of rates, weights and maps: products of three of them, and sums over all agents, are finite in float32."""


def whole_number(name: str, value: Any, low: int, high: int) -> int:
    if isinstance(value, bool) or not isinstance(value, Integral) or not low <= int(value) <= high:
        raise ValueError(f"Physarum: `{name}` must be a whole number in {low}..{high}; got {value!r}.")
    return int(value)


def steps(count: Any, sort_every: Any) -> tuple[int, int]:
    return whole_number("steps", count, 0, 2**63 - 1), whole_number("sort_every", sort_every, 0, 2**63 - 1)


def shape(value: Any) -> tuple[int, int]:
    sides = tuple(value) if isinstance(value, Sequence) and not isinstance(value, str) else (value,)
    fit = [isinstance(n, Integral) and not isinstance(n, bool) and 1 <= int(n) <= LARGEST_SIDE for n in sides]
    if len(sides) != 2 or not all(fit):
        raise ValueError(
            f"Physarum: `shape` must be (height, width), whole numbers in 1..{LARGEST_SIDE}; got {value!r}. "
            "Split a larger domain."
        )
    return int(sides[0]), int(sides[1])


def names(**given: Any) -> None:
    for option, value in given.items():
        if value not in KNOWN[option]:
            raise ValueError(f"Physarum: unknown `{option}`; got {value!r}. {nearest(str(value), KNOWN[option])}")


def device(value: Any) -> torch.device:
    """A device that tensors can be made on."""
    try:
        found = torch.device(value)
        torch.empty(1, device=found).tolist()
    except (RuntimeError, AssertionError, TypeError, NotImplementedError) as error:
        reason = str(error).splitlines()[0]
        raise ValueError(f"Physarum: `device` {value!r} cannot be used: {reason}. Use 'cpu' or 'cuda'.") from error
    return found


def memory(agents: int, species: int, shape: tuple[int, int], dtype: torch.dtype, device: torch.device) -> None:
    """Refuse a colony that the whole memory of the device could not hold: what stays, 20 bytes an agent and two fields
    and trails, and what a start needs for a moment, 100 bytes an agent."""
    need = agents * 120 + species * shape[0] * shape[1] * 2 * (dtype.itemsize + 4)
    if device.type == "cuda":
        there = torch.cuda.get_device_properties(device).total_memory
    elif hasattr(os, "sysconf") and "SC_PHYS_PAGES" in os.sysconf_names:
        there = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    else:
        return
    if need > there:
        raise ValueError(
            f"Physarum: {agents:,} `agents` of {species} `species` on {shape[0]} x {shape[1]} cells need about "
            f"{need / 1e9:.1f} GB, and {device} has {there / 1e9:.1f} GB. Use fewer, or split them over several cards."
        )


def field_dtype(dtype: torch.dtype) -> None:
    if dtype not in DTYPES:
        raise ValueError(f"Physarum: `dtype` must be one of {', '.join(map(str, DTYPES))}; got {dtype}.")


def tensor(name: str, values: Any, low: float = -LARGEST, shapes: Sequence[tuple[int, ...]] = ()) -> Tensor:
    """`values` as a tensor of real numbers in [low, LARGEST], in one of `shapes` if any are given; without gradient."""
    try:
        found = torch.as_tensor(values).detach()
    except (TypeError, ValueError, RuntimeError) as error:
        raise ValueError(
            f"Physarum: `{name}` must be a tensor or nested lists of numbers; got {type(values).__name__}: {error}."
        ) from error
    if found.is_complex():
        raise ValueError(f"Physarum: `{name}` must be real; got {found.dtype}. Take its .real or .abs().")
    if not found.is_floating_point():
        found = found.double()
    if shapes and tuple(found.shape) not in shapes:
        wanted = " or ".join(str(list(s)) for s in shapes)
        raise ValueError(f"Physarum: `{name}` must be {wanted}; got {list(found.shape)}. Resize or transpose it.")
    wrong = ~((found >= low) & (found <= LARGEST))  # also NaN
    if bool(wrong.any()):
        first = float(found[wrong][0])
        raise ValueError(
            f"Physarum: `{name}` must be finite, in [{low:g}, {LARGEST:g}]; {int(wrong.sum())} numbers are not, the "
            f"first is {first:g}. Clean it with nan_to_num() and clamp()."
        )
    return found


def attraction(matrix: Any, species: int) -> Tensor:
    """float64 [species, species] on the CPU; row's attraction to column's field."""
    if matrix is None:
        return torch.eye(species, dtype=torch.float64)
    return tensor("attraction", matrix, shapes=[(species, species)]).double().cpu()


def map_of(name: str, values: Any, shape: tuple[int, int]) -> Tensor | None:
    return None if values is None else tensor(name, values, low=0.0, shapes=[shape])


def field(values: Any, species: int, shape: tuple[int, int], dtype: torch.dtype) -> Tensor:
    """Something that can be copied onto [species, H, W]."""
    if values is None:
        return torch.zeros(())
    found = tensor("field", values, shapes=[shape, (species, *shape)]).to(dtype)
    if not bool(torch.isfinite(found).all()):
        raise ValueError(
            f"Physarum: `field` must fit {dtype}, which ends at {torch.finfo(dtype).max:g}. Scale it, with `deposit`, "
            "or use float32."
        )
    return found


def agents(
    positions: Any,
    headings: Any,
    count: int,
    shape: tuple[int, int],
    obstacles: Tensor | None,
) -> tuple[Tensor, Tensor, Tensor] | None:
    """x, y, heading in whole units, or None where agents are to be spawned."""
    if positions is None:
        if headings is not None:
            raise ValueError("Physarum: `headings` go with `positions`; give both, or neither for a spawn mode.")
        return None
    positions = tensor("positions", positions, -math.inf, [(count, 2)]).double()
    headings = torch.zeros(count) if headings is None else tensor("headings", headings, shapes=[(count,)])
    headings = torch.remainder(headings.double(), 2 * math.pi)
    size = torch.tensor((shape[1], shape[0]), dtype=torch.float64, device=positions.device)
    outside = ~((positions >= 0) & (positions < size)).all(dim=1)
    if bool(outside.any()):
        row = int(outside.nonzero()[0])
        raise ValueError(
            f"Physarum: `positions` must lie in [0, {shape[1]}) x [0, {shape[0]}) cells; {int(outside.sum())} agents "
            f"do not, the first is {row}: {positions[row].tolist()}. Wrap them with positions % (width, height)."
        )
    x, y = (positions * CELL).floor().int().unbind(1)
    if obstacles is not None and bool((obstacles.to(x.device)[(y >> 16).long(), (x >> 16).long()] != 0).any()):
        raise ValueError("Physarum: `positions` must lie outside of the obstacles. Move those agents.")
    return x, y, (headings * (TURN / (2 * math.pi))).round().long().bitwise_and(TURN - 1).int()


def state(state: Mapping[str, Any], colony: Colony) -> None:
    """Tensors of the right shapes, agents where kernels may look for them, and all maps that the colony has."""
    (height, width), count = colony.shape, len(colony.x)
    ranges = {"x": width * CELL, "y": height * CELL, "heading": TURN, "kind": colony.species, "identity": 2**31}
    for name, top in (ranges | {"clock": 2**63}).items():
        values, size = state[name], (2 if name == "clock" else count,)
        if tuple(values.shape) != size or not 0 <= int(values.min()) <= int(values.max()) < top:
            raise ValueError(
                f"Physarum: the state's {name} must be {list(size)} whole numbers in [0, {top}); got "
                f"{list(values.shape)} in [{values.min()}, {values.max()}]. The file is damaged, or of another colony."
            )
    if state["field"].shape != colony.fields[0].shape or not bool(torch.isfinite(state["field"]).all()):
        raise ValueError(f"Physarum: the state's field must be finite, {list(colony.fields[0].shape)}.")
    for name in ("food", "obstacles"):
        if (getattr(colony, name) is None) != (state.get(name) is None):
            raise ValueError(f"Physarum: the state and this simulation must both have {name}, or neither.")
        map_of(name, state.get(name), colony.shape)


def same_settings(ours: Mapping[str, Any], theirs: Mapping[str, Any]) -> None:
    for name, value in ours.items():
        if theirs.get(name) != value and name != "seed":  # the seed is in the clock
            raise ValueError(
                f"Physarum: the state has {name} = {theirs.get(name)!r}, this simulation {value!r}. "
                "Use Physarum.load, which takes the settings from the file."
            )
