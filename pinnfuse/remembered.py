"""What is found once and asked for at every call: tables, and keys whose hash would take longer than a table saves."""

from __future__ import annotations

from typing import Any, TypeVar

K = TypeVar("K")
V = TypeVar("V")
T = TypeVar("T")


class Remembered(dict[K, V]):
    """A table that forgets everything when it is full: `get` is a plain lookup, with no order of use to keep.

    Args:
        most: entries.
    """

    def __init__(self, most: int):
        super().__init__()
        self.most = most

    def keep(self, key: K, value: V) -> V:
        """Remember and return `value`."""
        if len(self) >= self.most:
            self.clear()
        self[key] = value
        return value


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
