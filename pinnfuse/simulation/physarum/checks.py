"""Checks of what a caller hands to `Physarum`: name, expected, got, remedy."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
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


def shape(value: Sequence[int]) -> tuple[int, int]:
    if len(value) != 2 or not all(isinstance(n, int) and 1 <= n <= LARGEST_SIDE for n in value):
        raise ValueError(
            f"Physarum: `shape` must be (height, width), whole numbers in 1..{LARGEST_SIDE}; got {tuple(value)}. "
            "Split a larger domain."
        )
    return value[0], value[1]


def counts(agents: int, species: int, seed: int) -> None:
    for name, value, low, high in (
        ("agents", agents, 1, 2**31 - 1),
        ("species", species, 1, 64),
        ("seed", seed, 0, 2**63 - 1),
    ):
        if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
            raise ValueError(f"Physarum: `{name}` must be a whole number in {low}..{high}; got {value!r}.")


def names(**given: str) -> None:
    for option, value in given.items():
        if value not in KNOWN[option]:
            raise ValueError(f"Physarum: unknown `{option}`; got {value!r}. {nearest(str(value), KNOWN[option])}")


def field_dtype(dtype: torch.dtype) -> None:
    if dtype not in DTYPES:
        raise ValueError(f"Physarum: `dtype` must be one of {', '.join(map(str, DTYPES))}; got {dtype}.")


def attraction(matrix: Tensor | Sequence[Sequence[float]] | None, species: int) -> Tensor:
    """float64 [species, species] on the CPU."""
    found = torch.eye(species, dtype=torch.float64) if matrix is None else torch.as_tensor(matrix).double().cpu()
    if found.shape != (species, species) or not bool(torch.isfinite(found).all()):
        raise ValueError(
            f"Physarum: `attraction` must be finite, [species, species] = [{species}, {species}]; got "
            f"{list(found.shape)}. Give row's attraction to column's field."
        )
    return found


def map_of(name: str, values: Tensor | None, shape: tuple[int, int]) -> Tensor | None:
    if values is None:
        return None
    values = torch.as_tensor(values)
    if tuple(values.shape) != shape:
        raise ValueError(
            f"Physarum: `{name}` must be [height, width] = {list(shape)}; got {list(values.shape)}. "
            "Resize it, or read it with read_image(path, shape)."
        )
    if not bool(torch.isfinite(values).all()) or bool((values < 0).any()):
        raise ValueError(f"Physarum: `{name}` must be finite and >= 0. Clean it with nan_to_num().clamp(min=0).")
    return values


def field(values: Tensor | None, species: int, shape: tuple[int, int]) -> Tensor:
    """Something that can be copied onto [species, H, W]."""
    if values is None:
        return torch.zeros(())
    values = torch.as_tensor(values)
    if tuple(values.shape) not in {shape, (species, *shape)}:
        raise ValueError(
            f"Physarum: `field` must be {list(shape)} or {[species, *shape]}; got {list(values.shape)}. Resize it."
        )
    if not bool(torch.isfinite(values).all()):
        raise ValueError("Physarum: `field` must be finite. Clean it with torch.nan_to_num.")
    return values


def agents(
    positions: Tensor | None,
    headings: Tensor | None,
    count: int,
    shape: tuple[int, int],
    obstacles: Tensor | None,
) -> tuple[Tensor, Tensor, Tensor] | None:
    """x, y, heading in whole units, or None where agents are to be spawned."""
    if positions is None:
        if headings is not None:
            raise ValueError("Physarum: `headings` go with `positions`; give both, or neither for a spawn mode.")
        return None
    positions = torch.as_tensor(positions).double()
    headings = torch.zeros(count, dtype=torch.float64) if headings is None else torch.as_tensor(headings).double()
    if tuple(positions.shape) != (count, 2) or tuple(headings.shape) != (count,):
        raise ValueError(
            f"Physarum: `positions` must be [agents, 2] = [{count}, 2] and `headings` [{count}]; got "
            f"{list(positions.shape)} and {list(headings.shape)}."
        )
    if not bool(torch.isfinite(headings).all()):
        raise ValueError("Physarum: `headings` must be finite, in radians.")
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
    """Tensors of the right shapes, and agents where kernels may look for them."""
    (height, width), count = colony.shape, len(colony.x)
    ranges = {"x": width * CELL, "y": height * CELL, "heading": TURN, "kind": colony.species, "identity": 2**31}
    for name, top in ranges.items():
        values = state[name]
        if tuple(values.shape) != (count,) or not 0 <= int(values.min()) <= int(values.max()) < top:
            raise ValueError(
                f"Physarum: the state's {name} must be [{count}] whole numbers in [0, {top}); got {list(values.shape)} "
                f"in [{values.min()}, {values.max()}]. The file is damaged, or not of this simulation."
            )
    if state["field"].shape != colony.fields[0].shape or not bool(torch.isfinite(state["field"]).all()):
        raise ValueError(f"Physarum: the state's field must be finite, {list(colony.fields[0].shape)}.")


def same_settings(ours: Mapping[str, Any], theirs: Mapping[str, Any]) -> None:
    for name, value in ours.items():
        if theirs.get(name) != value and name != "seed":  # the seed is in the clock
            raise ValueError(
                f"Physarum: the state has {name} = {theirs.get(name)!r}, this simulation {value!r}. "
                "Use Physarum.load, which takes the settings from the file."
            )
