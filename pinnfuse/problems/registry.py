"""Problems by name. Each is one function in one file; its keyword arguments are the problem's options."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable, Iterable
from typing import Any

from pinnfuse.errors import nearest
from pinnfuse.problems.checks import made, options_of
from pinnfuse.problems.problem import Problem

# {PDE: problems}, the default first; problem `p` is the function `p` of the module `pinnfuse.problems.p`
_PROBLEMS: dict[str, tuple[str, ...]] = {
    "navier_stokes": ("lid_driven_cavity", "taylor_green", "kovasznay", "beltrami", "cylinder_wake", "torus"),
    "burgers": ("burgers", "burgers_inverse"),
    "allen_cahn": ("allen_cahn",),
    "kdv": ("kdv",),
    "schrodinger": ("schrodinger",),
    "heat": ("heat", "heat_multiscale", "heat_source"),
    "wave": ("wave",),
    "advection": ("advection",),
    "poisson": ("poisson", "poisson_nd"),
    "helmholtz": ("helmholtz",),
    "elasticity": ("elasticity",),
    "maxwell": ("maxwell",),
    "vorticity": ("vorticity",),
}


def available() -> dict[str, list[str]]:
    """{PDE: its problems}, the default problem first."""
    return {pde: list(problems) for pde, problems in _PROBLEMS.items()}


def options(pde_name: str, problem: str | None = None) -> dict[str, inspect.Parameter]:
    """The options of a problem: name -> parameter with annotation and default."""
    return options_of(_maker(pde_name, problem))


def get(pde_name: str, problem: str | None = None, **given: Any) -> Problem:
    """The problem of that name: `get("kdv", d=0.0025)`, `get("navier_stokes", "kovasznay")`.

    Args:
        pde_name: a key of `available()`.
        problem: one of its problems; None takes the first.
        given: options of the problem, see `options(pde_name, problem)`.

    Raises:
        ValueError: an unknown name (with the nearest one), or an option of the wrong type or value.
    """
    return made(_maker(pde_name, problem), given)


def unknown(pde_name: str, others: Iterable[str] = ()) -> str:
    """What to say of a PDE that is not there: whose problem it is, or the nearest name; `others` are known, too."""
    owner = next((pde for pde, names in _PROBLEMS.items() if pde_name in names), None)
    if owner:
        return f"unknown PDE {pde_name!r}. {pde_name!r} is a problem of {owner!r}: give both names."
    return f"unknown PDE {pde_name!r}. {nearest(pde_name, {*_PROBLEMS, *others})}"


def _maker(pde_name: str, problem: str | None) -> Callable[..., Problem]:
    if pde_name not in _PROBLEMS:
        raise ValueError(unknown(pde_name))
    names = _PROBLEMS[pde_name]
    chosen = names[0] if problem is None else problem
    if chosen not in names:
        raise ValueError(f"PDE {pde_name!r} has no problem {chosen!r}. {nearest(chosen, names)}")
    return getattr(importlib.import_module(f"pinnfuse.problems.{chosen}"), chosen)
