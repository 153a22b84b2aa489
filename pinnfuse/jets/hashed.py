"""Values that are keys of caches at every call, and whose hash takes longer than what the caches save."""

from __future__ import annotations

from typing import Any, TypeVar

T = TypeVar("T")


def hashed_once(cls: type[T]) -> type[T]:
    """A frozen dataclass whose objects compute their hash once. It is not pickled: texts hash anew in every process."""
    compute: Any = cls.__hash__

    def __hash__(self: Any) -> int:
        found = self.__dict__.get("_hash")
        if found is None:
            found = self.__dict__["_hash"] = compute(self)
        return found

    def __getstate__(self: Any) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name != "_hash"}

    for name, method in {"__hash__": __hash__, "__getstate__": __getstate__}.items():
        setattr(cls, name, method)
    return cls
