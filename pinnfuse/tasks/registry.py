"""Tasks by name. Each is one function in one file; its keyword arguments are the task's options."""

from __future__ import annotations

import importlib
import inspect
from collections.abc import Callable
from typing import Any

from pinnfuse.errors import nearest
from pinnfuse.problems.checks import made, options_of
from pinnfuse.tasks.task import Task

# task `p` is the function `p` of the module `pinnfuse.tasks.p`
_TASKS = ("darcy", "navier_stokes", "burgers", "gray_scott", "physarum")


def available() -> tuple[str, ...]:
    """Names of the tasks."""
    return _TASKS


def options(name: str) -> dict[str, inspect.Parameter]:
    """The options of a task: name -> parameter with annotation and default."""
    return options_of(_maker(name))


def get(name: str, **given: Any) -> Task:
    """The task of that name: `get("darcy", points=85)`.

    Raises:
        ValueError: an unknown name (with the nearest one), or an option of the wrong type or value.
    """
    return made(_maker(name), given)


def _maker(name: str) -> Callable[..., Task]:
    if name not in _TASKS:
        raise ValueError(f"there is no surrogate task for the PDE {name!r}. {nearest(name, _TASKS)}")
    return getattr(importlib.import_module(f"pinnfuse.tasks.{name}"), name)
