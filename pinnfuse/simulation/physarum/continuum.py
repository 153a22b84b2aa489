r"""Physarum as a continuum: density of agents and field, averaged over blocks of cells, and an equation for them.

    c_t = diffusion \Delta c - decay c + production rho
    rho_t = mobility \Delta rho - attraction div(rho grad c / \sqrt{|grad c|^2 + saturation^2})

Keller and Segel's chemotaxis, with a flux that saturates. The first equation is what a step does to smooth fields, as
rates: diffusion = share / 3 (the variance of a 3 x 3 mean is 2/3 cell^2 along each axis), decay = -ln(1 - decay of a
step), production = deposit x (1 - decay of a step) x their ratio; the simulator's deposits diffuse within their step,
which it leaves out. The second is a model. Agents answer to the sign of differences: `attraction` [cells/step] is the
speed at which they climb a steep slope, however steep; where the slope is well below `saturation`, noise decides and
the speed is attraction / saturation x slope, as in Keller and Segel's own form. Headings it does not know.

Sources: Keller, Segel, Initiation of slime mold aggregation viewed as an instability, J. Theor. Biol. 26 (1970);
Perthame, Vauchelet, Wang, The flux limited Keller-Segel system, Rev. Mat. Iberoam. 36 (2020).
"""

from __future__ import annotations

import math
from collections.abc import Mapping

import torch
from torch import Tensor

from pinnfuse.grid import Grid
from pinnfuse.grid.spectral import low_pass
from pinnfuse.pde import PDE, Parameter
from pinnfuse.simulation.physarum.simulation import Physarum

POSITIVE = ("diffusion", "decay", "production", "mobility")
COEFFICIENTS = (*POSITIVE, "attraction", "saturation")


def keller_segel_pde(coefficients: Mapping[str, float], trainable: bool = False) -> PDE:
    """The equations for fields (rho, c) of (t, y, x); units: cells and steps.

    Args:
        coefficients: a value for each of `COEFFICIENTS`.
        trainable: whether a loss may learn them, from these values on: those of `POSITIVE` stay > 0, `saturation` is
            kept.
    """
    slope = "sqrt(D(c, y)**2 + D(c, x)**2 + saturation**2)"
    climb = f"D(rho*D(c, y)/{slope}, y) + D(rho*D(c, x)/{slope}, x)"
    parameters = [
        Parameter(n, coefficients[n], trainable and n != "saturation", positive=trainable and n in POSITIVE)
        for n in COEFFICIENTS
    ]
    return PDE(
        "rho c",
        "t y x",
        parameters=parameters,
        equations={
            "agents": f"rho_t - mobility*(rho_yy + rho_xx) + attraction*({climb})",
            "field": "c_t - diffusion*(c_yy + c_xx) + decay*c - production*rho",
        },
        name="keller_segel",
    )


def torus(spacing: float, length: float | None = None) -> Grid:
    """The grid of a rollout, with differences of fourth order: patterns are a few blocks wide."""
    return Grid("y x", spacing, boundary="periodic", order=4, length=length)


def expected(sim: Physarum) -> dict[str, float]:
    """The coefficients of the field's equation that follow from the rule of a colony of one species. Those of the
    agents are guesses: the mobility of agents that turn by their jitter alone; attraction 0; a saturation of a tenth of
    the field's mean in the steady state per cell of sensor distance.

    A walker of speed v whose heading keeps the share g of its direction a step has the mobility v^2/4 (1+g)/(1-g);
    a jitter of at most a gives g = sin(a)/a. Agents are taken to turn after 2 sensor distance / speed steps anyway.
    """
    p = sim.parameters
    names = ("decay", "diffusion", "deposit", "speed", "sensor_distance", "jitter")
    values = {n: getattr(p, n) for n in names}
    if not all(isinstance(v, int | float) for v in values.values()) or not 0 < values["decay"] < 1:
        raise ValueError("continuum: needs one species and 0 < decay < 1. Give numbers, not one per species.")
    keep, jitter = 1 - values["decay"], math.radians(values["jitter"])
    decay = -math.log(keep)
    production = max(values["deposit"] * keep * decay / values["decay"], 1e-6)
    mean = production / decay * len(sim.colony.x) / (sim.colony.shape[0] * sim.colony.shape[1])
    speed, turns = values["speed"], max(values["sensor_distance"], values["speed"], 1e-6)
    kept = min(math.sin(jitter) / jitter if jitter else 1.0, 1 - 0.5 * speed / turns)
    return {
        "diffusion": max(values["diffusion"] / 3, 1e-3),
        "decay": decay,
        "production": production,
        "mobility": max(speed**2 / 4 * (1 + kept) / (1 - kept), 1e-3) if speed else 1e-3,
        "attraction": 0.0,
        "saturation": max(0.1 * mean / max(values["sensor_distance"], 1.0), 1e-6),
    }


def smooth_start(shape: tuple[int, int], waves: float, seed: int, spread: float = 0.35) -> Tensor:
    """A random positive map [H, W] of mean 1, exp(spread x a field of variance 1 in waves of at most `waves` periods
    per shorter side); for `spawn_weights` or `field`."""
    noise = torch.randn(shape, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    smooth = low_pass(noise, waves)
    smooth = smooth - smooth.mean()
    found = (spread * smooth / smooth.std()).exp()
    return found / found.mean()


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
