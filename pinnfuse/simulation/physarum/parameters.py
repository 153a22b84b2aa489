"""The parameters of a colony: checked numbers that become two small tensors, which a run reads anew at every step."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, fields
from numbers import Real
from typing import Any

import torch
from torch import Tensor

from pinnfuse.errors import nearest
from pinnfuse.simulation.physarum.checks import LARGEST
from pinnfuse.simulation.physarum.fixed import CELL, TURN

INTEGERS = ("sensor_distance", "speed", "sensor_angle", "turn_angle", "jitter", "steering", "ties")
"""Columns of the integer table [species, 7], in the units of `fixed`."""
REALS = ("deposit", "keep", "diffusion", "food")
"""First columns of the real table [species, 4 + species]; the row of the attraction matrix follows."""
STEERING = ("jones", "argmax")
TIES = ("straight", "random")

Value = float | Sequence[float]


@dataclass
class Parameters:
    """What agents and field do; a number, or one per species.

    A step: sense the field ahead, and to the left and right; turn; move; deposit; then

        f <- (1 - decay) (f* + diffusion (mean of f* over 3 x 3 cells - f*)),   f* = f + deposits + food x food map

    Source: Jones, Characteristics of pattern formation and evolution in approximations of Physarum transport networks,
    Artificial Life 16 (2010).
    """

    sensor_distance: Value = 9.0
    """[cells], up to the shorter side of the field"""
    sensor_angle: Value = 22.5
    """[degrees] between the outer sensors and the heading"""
    turn_angle: Value = 45.0
    """[degrees] turned at once"""
    speed: Value = 1.0
    """[cells per step], up to the shorter side of the field"""
    jitter: Value = 0.0
    """[degrees] each heading changes by a uniform random angle of at most this, every step"""
    deposit: Value = 1.0
    """left in the cell by each agent, every step"""
    decay: Value = 0.1
    """[0..1] share of the field lost in a step"""
    diffusion: Value = 1.0
    """[0..1] share of the 3 x 3 mean in the field after a step"""
    food: Value = 1.0
    """times the food map, added to the field every step"""
    steering: str = "jones"
    """"jones": straight where the middle is highest, a random side where it is lowest, else the higher side.
    "argmax": towards the highest of the three."""
    ties: str = "straight"
    """for "argmax": "straight" where the middle is among the highest, or a "random" one of the highest"""


_BOUNDS = {
    "sensor_distance": math.inf,
    "speed": math.inf,
    "sensor_angle": 360.0,
    "turn_angle": 360.0,
    "jitter": 180.0,
    "deposit": LARGEST,
    "decay": 1.0,
    "diffusion": 1.0,
    "food": LARGEST,
}


def changed(parameters: Parameters, changes: dict[str, Any]) -> Parameters:
    """A copy with other values; numbers and lists of any kind become Python's, as a checkpoint needs them.

    Raises:
        ValueError: a name that is no parameter, a value that is no number or list of numbers.
    """
    known = {f.name: getattr(parameters, f.name) for f in fields(parameters)}
    for name in changes:
        if name not in known:
            raise ValueError(f"Physarum: unknown parameter {name!r}. {nearest(name, known)}")
    found: dict[str, Any] = {n: _plain(n, v) if n in _BOUNDS else v for n, v in (known | changes).items()}
    return Parameters(**found)


def _plain(name: str, value: Any) -> Value:
    """float, or a list of them."""
    value = value.tolist() if hasattr(value, "tolist") else value  # of torch and NumPy
    several = isinstance(value, Sequence) and not isinstance(value, str)
    numbers = value if several else [value]
    for v in numbers:
        if isinstance(v, bool) or not isinstance(v, Real):
            raise ValueError(f"Physarum: `{name}` must be a number, or one per species; got {value!r}.")
    plain = [float(v) if abs(v) <= LARGEST or v != v else math.inf * (1 if v > 0 else -1) for v in numbers]
    return plain if several else plain[0]


def tables(parameters: Parameters, attraction: Tensor, shape: tuple[int, int]) -> tuple[Tensor, Tensor]:
    """The integer table int32 [S, 7] and the real table float64 [S, 4 + S], on the CPU.

    Raises:
        ValueError: a value that is negative, not finite, beyond its bound, or of the wrong count.
    """
    species = len(attraction)
    columns = {name: _column(name, getattr(parameters, name), species) for name in _BOUNDS}
    for name in ("sensor_distance", "speed"):
        if max(columns[name]) > min(shape):
            raise ValueError(
                f"Physarum: `{name}` must be at most the shorter side of the field, {min(shape)} cells; got "
                f"{max(columns[name]):g}. Use a larger field or a smaller {name}."
            )
    units: dict[str, list[int]] = {}
    for name in ("sensor_distance", "speed"):
        units[name] = [round(v * CELL) for v in columns[name]]
    for name in ("sensor_angle", "turn_angle", "jitter"):
        units[name] = [round(v * TURN / 360) for v in columns[name]]
    for name, known in (("steering", STEERING), ("ties", TIES)):
        value = getattr(parameters, name)
        if value not in known:
            raise ValueError(f"Physarum: unknown `{name}`; got {value!r}. {nearest(str(value), known)}")
        units[name] = [known.index(value)] * species
    columns["keep"] = [1 - v for v in columns["decay"]]
    integers = torch.tensor([units[name] for name in INTEGERS], dtype=torch.int32).T.contiguous()
    reals = torch.tensor([columns[name] for name in REALS], dtype=torch.float64).T
    return integers, torch.cat([reals, attraction.double().cpu()], dim=1).contiguous()


def _column(name: str, value: Value, species: int) -> list[float]:
    found = [value] * species if isinstance(value, int | float) else list(value)
    if len(found) != species:
        raise ValueError(f"Physarum: `{name}` must be a number or one per species, {species}; got {len(found)} values.")
    for v in found:
        if not 0 <= v <= _BOUNDS[name] or math.isinf(v):
            bound = f"in [0, {_BOUNDS[name]:g}]" if math.isfinite(_BOUNDS[name]) else "finite and >= 0"
            raise ValueError(f"Physarum: `{name}` must be {bound}; got {v!r}. Check where the number comes from.")
    return found
