"""Problems with reference solutions, by name: `get("navier_stokes", "lid_driven_cavity")`."""

from pinnfuse.problems.condition import Condition, dirichlet, initial, neumann, observations, periodic, robin
from pinnfuse.problems.problem import Problem
from pinnfuse.problems.registry import available, get, options, unknown
from pinnfuse.problems.spec import ModelSpec, TrainingSpec, quasi_newton

__all__ = [
    "Condition",
    "ModelSpec",
    "Problem",
    "TrainingSpec",
    "available",
    "dirichlet",
    "get",
    "initial",
    "neumann",
    "observations",
    "options",
    "periodic",
    "quasi_newton",
    "robin",
    "unknown",
]
