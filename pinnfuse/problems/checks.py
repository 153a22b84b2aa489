"""Options of problems and tasks: arguments of the function that makes one, checked before it is called."""

from __future__ import annotations

import inspect
import math
import typing
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

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
