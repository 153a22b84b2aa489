"""Values that are keys of caches on every call: their hash is computed once."""

from __future__ import annotations

from typing import Any, TypeVar

T = TypeVar("T", bound=type)


def hash_once(cls: T) -> T:
    """Class decorator for frozen dataclasses: remember the hash."""
    compute: Any = cls.__hash__

    def remembered(self) -> int:
        try:
            return self._hash
        except AttributeError:
            object.__setattr__(self, "_hash", compute(self))
            return self._hash

    cls.__hash__ = remembered  # type: ignore[assignment]
    return cls
