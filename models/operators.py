"""Networks from fields to fields, by name."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import TYPE_CHECKING

from torch import nn

from pinnfuse.errors import nearest
from pinnfuse.models.fno import FNO
from pinnfuse.models.unet import UNet

if TYPE_CHECKING:
    from pinnfuse.tasks import Task

OPERATORS: dict[str, Callable[..., nn.Module]] = {"fno": FNO, "unet": UNet}


def operator(name: str) -> Callable[..., nn.Module]:
    """The class of that name; a wrong name raises ValueError with the nearest."""
    if name not in OPERATORS:
        raise ValueError(f"unknown surrogate model {name!r}. {nearest(name, OPERATORS)}")
    return OPERATORS[name]


def for_task(task: Task, name: str | None = None, **options: object) -> nn.Module:
    """A network for a task: its channels, its positions, periodic where its grid is.

    Args:
        name: "fno" or "unet"; None takes the task's default and its options.
        options: arguments of the network's class.
    """
    if name is None or name == task.model.name:
        name, options = task.model.name, {**task.model.kwargs, **options}
    make = operator(name)
    known = inspect.signature(make).parameters
    for key in options:
        if key not in known:
            raise ValueError(f"model {name!r} has no option {key!r}. {nearest(key, known)}")
    periodic = [task.grid.periodic[axis] for axis in task.grid.axes]
    positions = sum(2 if wraps else 1 for wraps in periodic) if task.position else 0
    inside, outside = task.channels
    return make(
        in_channels=inside + positions,
        out_channels=outside,
        dimension=len(task.shape),
        periodic=periodic,
        **options,
    )
