"""What `pinnfuse bench jets` is asked to measure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product

import torch

from pinnfuse import precision as precisions
from pinnfuse.backends import check_name
from pinnfuse.bench import engines
from pinnfuse.bench.cases import PDES, Case
from pinnfuse.errors import nearest


@dataclass(frozen=True)
class Settings:
    """What to measure: every combination of cases, widths, depths, points and precisions.

    Raises:
        ValueError: an unknown name, or a precision that does not fit the dtype.
    """

    cases: Sequence[str]
    widths: Sequence[int] = (64,)
    depths: Sequence[int] = (6,)
    points: Sequence[int] = (65536,)
    dtype: str = "float32"
    precisions: Sequence[str] = ("float32",)
    backend: str = "auto"
    against: Sequence[str] = ("autograd",)
    device: str = "cpu"
    seconds: float = 2.0

    def __post_init__(self) -> None:
        for option, given, known in (("cases", self.cases, PDES), ("against", self.against, engines.PEERS)):
            for name in given:
                if name not in known:
                    raise ValueError(f"bench jets: `{option}` holds the unknown {name!r}. {nearest(name, known)}")
        if self.dtype not in ("float32", "float64"):
            raise ValueError(f"bench jets: `dtype` must be 'float32' or 'float64'; got {self.dtype!r}.")
        if not self.cases:
            raise ValueError(f"bench jets: `cases` must name at least one of {', '.join(PDES)}.")
        if not 0 < self.seconds < float("inf"):
            raise ValueError(f"bench jets: `seconds` must be a positive number; got {self.seconds:g}.")
        check_name(self.backend, "bench jets")
        for name in self.precisions:
            if self.dtype == "float32":
                precisions.resolve(name, torch.float32, "bench jets")
            elif name not in ("float32", "float64"):  # the former is the default
                raise ValueError(f"bench jets: `precision` {name!r} needs `dtype` float32; got {self.dtype!r}.")

    @property
    def engines(self) -> tuple[str, ...]:
        """Ours, then the others, in the order in which they get ready."""
        return "pinnfuse", *self.against

    def expand(self) -> Iterator[Case]:
        """The cases, one after the other."""
        double = self.dtype == "float64"
        chosen = ["float64"] if double else [precisions.resolve(p, torch.float32) for p in self.precisions]
        for name, width, depth, points, precision in product(self.cases, self.widths, self.depths, self.points, chosen):
            yield Case(name, width, depth, points, precision, torch.device(self.device))
