"""Linear elasticity in plane strain with a manufactured displacement."""

from __future__ import annotations

import numpy as np

from pinnfuse.domains import Box
from pinnfuse.pde import PDE
from pinnfuse.problems.checks import positive
from pinnfuse.problems.condition import dirichlet
from pinnfuse.problems.problem import Problem
from pinnfuse.problems.spec import ModelSpec, TrainingSpec, quasi_newton
from pinnfuse.reference import ClosedForm

_FORMULAS = {"u": "cos(2*pi*x)*sin(pi*y)", "v": "sin(pi*x)*y**4"}
_FORCE = {
    "x": "lam*(4*pi**2*cos(2*pi*x)*sin(pi*y) - 4*pi*cos(pi*x)*y**3)"
    " + mu*(9*pi**2*cos(2*pi*x)*sin(pi*y) - 4*pi*cos(pi*x)*y**3)",
    "y": "lam*(2*pi**2*sin(2*pi*x)*cos(pi*y) - 12*sin(pi*x)*y**2)"
    " + mu*(2*pi**2*sin(2*pi*x)*cos(pi*y) - 12*2*sin(pi*x)*y**2 + pi**2*sin(pi*x)*y**4)",
}


def elasticity(lam: float = 1.0, mu: float = 0.5) -> Problem:
    """Plane strain: (lam + mu) grad div (u, v) + mu lap (u, v) + f = 0 on [0, 1]^2, displacement given on the boundary.

    u = cos 2 pi x sin pi y, v = sin(pi x) y^4, f to match. Source: Haghighat et al., Comput. Methods Appl. Mech. Eng.
    379 (2021) 113741, whose body force this is (Q = 4).

    Args:
        lam, mu: Lame's constants, > 0.
    """
    positive("elasticity", lam=lam, mu=mu)
    equations = {
        "balance_x": f"(lam + 2*mu)*u_xx + mu*u_yy + (lam + mu)*v_xy + {_FORCE['x']}",
        "balance_y": f"(lam + 2*mu)*v_yy + mu*v_xx + (lam + mu)*u_xy + {_FORCE['y']}",
    }
    pde = PDE("u v", "x y", {"lam": lam, "mu": mu}, equations, name="elasticity")
    box = Box({"x": (0, 1), "y": (0, 1)})
    axis = np.linspace(0, 1, 101)
    return Problem(
        name="elasticity",
        pde_name="elasticity",
        title="Plane strain with a manufactured displacement",
        pde=pde,
        domain=box,
        conditions=(dirichlet("boundary", pde, box.boundary(), _FORMULAS),),
        reference=ClosedForm(_FORMULAS, {"x": axis, "y": axis}),
        hard={"u": "sin(pi*y) + 16*x*(1 - x)*y*(1 - y)*u", "v": "y*sin(pi*x) + 16*x*(1 - x)*y*(1 - y)*v"},
        hard_conditions=("boundary",),
        metrics={"displacement": ("u", "v"), "u": ("u",), "v": ("v",)},
        model=ModelSpec("mlp", {"width": 20, "depth": 4, "activation": "tanh"}),
        training=TrainingSpec(interior=2000, boundary=200, resample_every=200, phases=quasi_newton(steps=1000)),
    )
