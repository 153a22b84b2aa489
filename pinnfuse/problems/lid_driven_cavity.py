r"""Steady flow in a square cavity whose lid slides.

Where the lid meets a resting wall the velocity jumps, and no smooth network follows it. What happens there is known:
the Stokes flow of a scraper on a plate. In local coordinates X along the lid, Y away from it ($r^2 = X^2 + Y^2$,
$\theta = \arctan(Y / X)$) its velocity depends on the angle alone,

    U = A + D X^2/r^2 + C X Y/r^2 + C theta        A = pi^2 / (pi^2 - 4)
    V = C Y^2/r^2 + D X Y/r^2 - D theta            C = -2 pi / (pi^2 - 4)
    p = 2 nu (C Y + D X) / r^2                     D = -4 / (pi^2 - 4)

with U = 1, V = 0 on the lid and U = V = 0 on the wall. It is divergence-free and solves the Stokes equations exactly.
The network therefore learns the flow minus the two corner flows, which is continuous.

Source: G. I. Taylor, On scraping viscous fluid from a plane surface (1962); Botella & Peyret, Benchmark spectral
results on the lid-driven cavity flow, Computers & Fluids 27 (1998), who subtract the same singularity.
"""

from __future__ import annotations

import math

from pinnfuse.domains import Box, Union
from pinnfuse.problems.condition import dirichlet
from pinnfuse.problems.fluid import navier_stokes
from pinnfuse.problems.problem import Problem
from pinnfuse.problems.spec import ModelSpec, TrainingSpec, quasi_newton
from pinnfuse.reference import CavityReference

# within it the equations count less: beside the corners inertia still grows like 1 / r, which no network follows. With
# the weight r^2 / (r^2 + 0.05^2) all of a trained network's loss lay there (`benchmarks/cavity_corners.py`)
_RADIUS = 0.1


def lid_driven_cavity(reynolds: float = 100.0) -> Problem:
    """Lid-driven cavity: steady Navier-Stokes on [0, 1]^2, u = 1 on the lid y = 1, no slip on the other walls.

    p is known up to a constant. u jumps at the two lid corners: the network's output is added to the flow that is
    singular there, and errors leave out a disc of radius 0.04 about each.

    Args:
        reynolds: Reynolds number of lid speed and side, in [1, 1000]; nu = 1 / reynolds.
    """
    if not 1 <= reynolds <= 1000:
        raise ValueError(f"lid_driven_cavity: option `reynolds` must lie in [1, 1000]; got {reynolds!r}.")
    pde = navier_stokes("x y", 1 / reynolds)
    box = Box({"x": (0, 1), "y": (0, 1)})
    walls = Union(box.face("x", "low"), box.face("x", "high"), box.face("y", "low"))
    left, right = _corner_flow("x"), _corner_flow("(1 - x)")
    return Problem(
        name="lid_driven_cavity",
        pde_name="navier_stokes",
        title=f"Steady flow in a lid-driven cavity, Re = {reynolds:g}",
        pde=pde,
        domain=box,
        conditions=(
            dirichlet("lid", pde, box.face("y", "high"), {"u": 1, "v": 0}),
            dirichlet("walls", pde, walls, {"u": 0, "v": 0}),
        ),
        reference=CavityReference(reynolds),
        hard={
            "u": f"{left['U']} + {right['U']} + u",
            "v": f"{right['V']} - {left['V']} + v",
            "p": f"{left['p']} - {right['p']} + p",
        },
        weighting=" * ".join(f"({r2} / ({r2} + {_RADIUS**2!r}))**2" for r2 in (left["r2"], right["r2"])),
        metrics={"u": ("u",), "v": ("v",), "p": ("p",), "velocity": ("u", "v")},
        up_to_constant=("p",),
        model=ModelSpec("mlp", {"width": 20, "depth": 4, "activation": "tanh"}),
        training=TrainingSpec(
            interior=2000,
            boundary=200,
            resample_every=200,
            phases=quasi_newton(steps=3000),
            loss_weights={"lid": 10.0, "walls": 10.0},
        ),
    )


def _corner_flow(x: str) -> dict[str, str]:
    """Taylor's scraper flow with X given as text and Y = 1 - y: velocities, pressure, and r^2 (never 0)."""
    a, c, d = (factor / (math.pi**2 - 4) for factor in (math.pi**2, -2 * math.pi, -4))
    y = "(1 - y)"
    r2 = f"({x}**2 + {y}**2 + 1e-12)"
    theta = f"2*atan({y} / (sqrt({r2}) + {x}))"
    return {
        "r2": r2,
        "U": f"({a!r} + ({d!r}*{x}**2 + {c!r}*{x}*{y}) / {r2} + {c!r}*{theta})",
        "V": f"(({c!r}*{y}**2 + {d!r}*{x}*{y}) / {r2} - {d!r}*{theta})",
        "p": f"(2*nu * ({c!r}*{y} + {d!r}*{x}) / {r2})",
    }
