"""The incompressible Navier-Stokes equations, shared by the fluid problems. Density 1."""

from __future__ import annotations

from pinnfuse.pde import PDE


def navier_stokes(coordinates: str, nu: float) -> PDE:
    r"""u_t + (u . grad) u + grad p = nu lap u, div u = 0, in the given coordinates; steady where there is no t.

    Args:
        coordinates: "x y", "t x y" or "t x y z".
        nu: kinematic viscosity, 1 / Reynolds number for unit length and speed.
    """
    space = [c for c in coordinates.split() if c != "t"]
    velocity = ["u", "v", "w"][: len(space)]
    equations = {}
    for component, direction in zip(velocity, space, strict=True):
        inertia = [f"{component}_t"] if "t" in coordinates.split() else []
        convection = [f"{speed}*{component}_{axis}" for speed, axis in zip(velocity, space, strict=True)]
        viscous = " + ".join(f"{component}_{axis}{axis}" for axis in space)
        left = " + ".join([*inertia, *convection, f"p_{direction}"])
        equations[f"momentum_{direction}"] = f"{left} - nu*({viscous})"
    equations["continuity"] = " + ".join(f"{c}_{axis}" for c, axis in zip(velocity, space, strict=True))
    return PDE(
        fields=[*velocity, "p"],
        coordinates=coordinates,
        parameters={"nu": nu},
        equations=equations,
        name="navier_stokes",
    )
