"""What a callback asks of a module, said in words where a module does not have it."""

from __future__ import annotations

from typing import Any, TypeVar

T = TypeVar("T")


def require(module: Any, callback: object, **members: str) -> None:
    """ValueError that names what the module lacks.

    Args:
        module: whose callback it is.
        callback: the one that asks.
        members: name -> how it is called and what it does.
    """
    missing = [text for name, text in members.items() if not hasattr(module, name)]
    if missing:
        raise ValueError(
            f"{type(callback).__name__}: {type(module).__name__} must have "
            + "; ".join(missing)
            + ". See pinnfuse.models.PINN, which does."
        )


def of_kind(module: Any, kind: type[T], callback: object) -> T:
    """The module, which must be of that class; ValueError otherwise."""
    if not isinstance(module, kind):
        raise ValueError(
            f"{type(callback).__name__}: expected a module of class {kind.__name__} (pinnfuse.models.PINN is one); got "
            f"{type(module).__name__}. Leave this callback out, or derive from that class."
        )
    return module
