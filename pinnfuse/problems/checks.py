"""Options of problems and tasks, checked before the function that makes one is called; files of numbers."""

from __future__ import annotations

import inspect
import math
import typing
from collections.abc import Callable, Collection, Mapping
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from pinnfuse.errors import nearest

Made = TypeVar("Made")


def options_of(make: Callable[..., Any]) -> dict[str, inspect.Parameter]:
    """Name -> parameter with annotation and default."""
    return dict(inspect.signature(make, eval_str=True).parameters)


def made(make: Callable[..., Made], given: Mapping[str, Any]) -> Made:
    """`make(**given)`; an unknown option, or one of the wrong type, raises ValueError."""
    known = options_of(make)
    checked = {}
    for name, value in given.items():
        if name not in known:
            raise ValueError(f"{make.__name__}: no option {name!r}. {nearest(name, known)}")
        checked[name] = _checked(make.__name__, name, value, known[name].annotation)
    return make(**checked)


def positive(where: str, **values: float) -> None:
    """Raise ValueError unless every value is positive and finite."""
    for name, value in values.items():
        if not (math.isfinite(value) and value > 0):
            raise ValueError(f"{where}: option `{name}` must be positive; got {value!r}.")


def read_npz(
    where: str, path: Path, needed: Collection[str], optional: Collection[str] = ()
) -> dict[str, NDArray[Any]]:
    """Arrays of an .npz file by name; ValueError unless it is whole and has the needed ones, all of real numbers."""
    try:
        with np.load(path, allow_pickle=False) as archive:
            names = archive.files
            arrays = {name: archive[name] for name in (*needed, *optional) if name in names}
    except Exception as error:  # np.load raises many kinds
        raise ValueError(f"{where}: {path.name} is not a readable .npz of numbers: {error}.") from None
    if missing := [name for name in needed if name not in arrays]:
        has = ", ".join(names) or "none"
        raise ValueError(f"{where}: {path.name} lacks the arrays {', '.join(missing)}; it has {has}.")
    for name, array in arrays.items():
        if array.dtype.kind not in "fiub":
            raise ValueError(f"{where}: {path.name}, array {name} must hold real numbers; got {array.dtype}.")
    return arrays


def _checked(where: str, name: str, value: Any, annotation: Any) -> Any:
    """The value as the option's type; numbers of the wrong kind, NaN and unknown choices are refused."""
    choices = typing.get_args(annotation) if typing.get_origin(annotation) is typing.Literal else None
    if choices is not None:
        if value not in choices:
            raise ValueError(f"{where}: option `{name}` must be one of {', '.join(map(repr, choices))}; got {value!r}.")
        return value
    allowed = typing.get_args(annotation) or (annotation,)
    if value is None and type(None) in allowed:
        return None
    if float in allowed and isinstance(value, (int, float)) and not isinstance(value, bool):
        if not math.isfinite(value):
            raise ValueError(f"{where}: option `{name}` must be finite; got {value!r}.")
        return float(value)
    for kind in (int, str):
        if kind in allowed and isinstance(value, kind) and not isinstance(value, bool):
            return value
    expected = " or ".join(getattr(a, "__name__", str(a)) for a in allowed)
    raise ValueError(f"{where}: option `{name}` must be {expected}; got {value!r}.")
