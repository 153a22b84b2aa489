r"""Physarum as a continuum: density of agents and field, averaged over blocks of cells, and an equation for them.

    c_t = diffusion \Delta c - decay c + production rho,     rho_t = mobility \Delta rho - attraction div(rho grad c)

Keller and Segel's chemotaxis in its minimal form. The first equation is what a step does to smooth fields, as rates:
diffusion = share / 3 (the variance of a 3 x 3 mean is 2/3 cell^2 along each axis), decay = -ln(1 - decay of a step),
production = deposit x (1 - decay of a step) x their ratio; the simulator's deposits diffuse within their step, which it
leaves out. The second is a model: agents have a heading, which it does not know.

Source: Keller, Segel, Initiation of slime mold aggregation viewed as an instability, J. Theor. Biol. 26 (1970).
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import torch
from torch import Tensor

from pinnfuse.pde import PDE, Parameter
from pinnfuse.simulation.physarum.simulation import Physarum

POSITIVE = ("diffusion", "decay", "production", "mobility")
COEFFICIENTS = (*POSITIVE, "attraction")


def keller_segel_pde(coefficients: Mapping[str, float], trainable: bool = False) -> PDE:
    """The equations for fields (rho, c) of (t, y, x); units: cells and steps.

    Args:
        coefficients: a value for each of `COEFFICIENTS`, all but `attraction` > 0.
        trainable: whether a loss may learn them, from these values on.
    """
    return PDE(
        "rho c",
        "t y x",
        parameters=[Parameter(n, coefficients[n], trainable, positive=n in POSITIVE) for n in COEFFICIENTS],
        equations={
            "agents": "rho_t - mobility*(rho_yy + rho_xx) + attraction*(D(rho*D(c, y), y) + D(rho*D(c, x), x))",
            "field": "c_t - diffusion*(c_yy + c_xx) + decay*c - production*rho",
        },
        name="keller_segel",
    )


def expected(sim: Physarum) -> dict[str, float]:
    """The coefficients of the field's equation that follow from the rule of a colony of one species; mobility and
    attraction, which do not, are those of agents that turn at random after sensor distance / speed steps, and 0."""
    p = sim.parameters
    values = {n: getattr(p, n) for n in ("decay", "diffusion", "deposit", "speed", "sensor_distance")}
    if not all(isinstance(v, int | float) for v in values.values()) or not 0 < values["decay"] < 1:
        raise ValueError("continuum: needs one species and 0 < decay < 1. Give numbers, not one per species.")
    keep = 1 - values["decay"]
    decay = -math.log(keep)
    mobility = max(values["speed"] * max(values["sensor_distance"], values["speed"]) / 2, 1e-3)
    return {
        "diffusion": max(values["diffusion"] / 3, 1e-3),
        "decay": decay,
        "production": max(values["deposit"] * keep * decay / values["decay"], 1e-6),
        "mobility": mobility,
        "attraction": 0.0,
    }


def density(sim: Physarum) -> Tensor:
    """[H, W] agents in each cell."""
    c = sim.colony
    cell = (c.y >> 16).long() * c.shape[1] + (c.x >> 16)
    return cell.bincount(minlength=c.shape[0] * c.shape[1]).view(c.shape)


def rollout(sim: Physarum, levels: int, every: int, coarse: int) -> Tensor:
    """Run a colony of one species and return density and field at `levels` moments, `every` steps apart, the present
    one first: float64 [levels, 2, H / coarse, W / coarse], means over blocks of coarse x coarse cells.

    Raises:
        ValueError: several species, sides that are not multiples of `coarse`, a number below 1.
    """
    height, width = sim.colony.shape
    if sim.colony.species != 1:
        raise ValueError(f"rollout: needs one species; got {sim.colony.species}. Use species=1.")
    if min(levels, every, coarse) < 1 or height % coarse or width % coarse:
        raise ValueError(
            f"rollout: `levels`, `every`, `coarse` must be >= 1, the sides {height} x {width} multiples of `coarse`; "
            f"got {levels}, {every}, {coarse}. Choose a divisor of both sides."
        )
    found = []
    for level in range(levels):
        if level:
            sim.run(every)
        both = torch.stack([density(sim).double(), sim.field[0].double()])
        found.append(both.unflatten(2, (-1, coarse)).unflatten(1, (-1, coarse)).mean((2, 4)))
    return torch.stack(found)
