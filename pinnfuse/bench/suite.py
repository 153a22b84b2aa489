"""Suites of `pinnfuse bench jets --suite`: cases, each with its own size and engines, and what we want of them.

"goals" is behind the tables of README.md and docs/performance.md; "quick" runs on a CPU in a minute.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from pinnfuse.bench.settings import Settings
from pinnfuse.errors import nearest

Row = dict[str, Any]
COMPILED = {"torch-compile": "torch.compile", "jax": "JAX"}
"""Peers by engine, and what people call them."""
_PEERS = {"best peer": tuple(COMPILED), "torch.compile": ("torch-compile",), "nested": ("autograd",)}


@dataclass(frozen=True)
class Goal:
    """At most so many "ms" of a captured step (without a graph: as called) or "MB"; or at least so many times as fast
    as the "best peer" that was measured, as "torch.compile", or as "nested" autograd, these as called."""

    bound: float
    of: str

    @property
    def text(self) -> str:
        return f"{self.bound:g} {self.of}" if self.of in ("ms", "MB") else f"{self.bound:g}x {self.of}"

    def measured(self, rows: Sequence[Row]) -> float | None:
        """From the rows of one case; None where a number is missing."""
        ours = next((row for row in rows if row["engine"] == "pinnfuse" and "ms" in row), None)
        if ours is None:
            return None
        if self.of == "MB":
            return ours.get("memory_mb")
        ms = float((ours.get("graph_ms") or ours["ms"])["median"])
        if self.of == "ms":
            return ms
        peers = [row["ms"]["median"] for row in rows if row["engine"] in _PEERS[self.of] and "ms" in row]
        return min(peers) / ms if peers else None

    def judged(self, rows: Sequence[Row]) -> Row:
        """`text`, the number `measured`, and `met`: None where there is none."""
        number = self.measured(rows)
        met = None if number is None else number <= self.bound if self.of in ("ms", "MB") else number >= self.bound
        return {"text": self.text, "measured": number, "met": met}


@dataclass(frozen=True)
class Entry:
    """One case of a suite."""

    name: str
    width: int
    precision: str = "float32"
    goals: tuple[Goal, ...] = ()
    against: tuple[str, ...] = ("autograd", "torch-compile", "jax")
    depth: int = 6
    points: int = 65536

    def settings(self, device: str, seconds: float, backend: str = "auto") -> Settings:
        """Of this case alone."""
        double = self.precision == "float64"
        return Settings(
            cases=[self.name],
            widths=[self.width],
            depths=[self.depth],
            points=[self.points],
            dtype="float64" if double else "float32",
            precisions=["float32" if double else self.precision],
            backend=backend,
            against=self.against,
            device=device,
            seconds=seconds,
        )

    def describes(self, row: Row) -> bool:
        keys = ("name", "width", "depth", "points", "precision")
        return all(row[key] == getattr(self, key) for key in keys)


_COMPILERS = ("torch-compile", "jax")  # nested autograd takes 59 GB for poisson_100
SUITES: dict[str, tuple[Entry, ...]] = {
    "goals": (
        Entry("navier_stokes", 64, goals=(Goal(0.7, "ms"), Goal(3, "best peer"))),
        Entry("navier_stokes", 128, goals=(Goal(2.4, "ms"), Goal(2.1, "best peer"))),
        Entry("navier_stokes", 256, goals=(Goal(8, "ms"), Goal(1.8, "best peer"))),
        Entry("navier_stokes", 64, "tf32", goals=(Goal(0.4, "ms"), Goal(4, "best peer"))),
        Entry("navier_stokes", 128, "tf32", goals=(Goal(1.1, "ms"), Goal(2.8, "best peer"))),
        Entry("navier_stokes", 256, "tf32", goals=(Goal(3, "ms"), Goal(2, "best peer"))),
        Entry("navier_stokes", 128, "float64", goals=(Goal(5, "nested"),), against=("autograd", "torch-compile")),
        Entry("burgers", 64),
        Entry("burgers", 128, goals=(Goal(1.5, "ms"),)),
        Entry("burgers", 256),
        Entry("kdv", 128, goals=(Goal(2, "torch.compile"),)),
        Entry("plate", 128, goals=(Goal(2, "torch.compile"),), against=_COMPILERS),
        Entry("poisson_10", 128, goals=(Goal(6.5, "ms"),)),
        Entry("poisson_100", 64, goals=(Goal(1.5, "best peer"),), against=_COMPILERS),
        Entry("poisson_100", 256, goals=(Goal(1.5, "best peer"),), against=_COMPILERS),
        Entry("modified_mlp", 256, goals=(Goal(1.5, "torch.compile"),), against=_COMPILERS, depth=4),
        Entry("piratenet", 256, goals=(Goal(1.5, "torch.compile"),), against=_COMPILERS, depth=4),
        Entry("navier_stokes", 64, goals=(Goal(0.1, "ms"),), points=4096),
        Entry("navier_stokes", 64, against=(), points=4194304),
        Entry("navier_stokes", 128, goals=(Goal(100, "MB"),), against=(), points=4194304),
    ),
    "quick": (
        Entry("burgers", 8, depth=2, points=64, goals=(Goal(1000, "ms"), Goal(0.01, "nested")), against=("autograd",)),
        Entry("kdv", 8, "float64", depth=1, points=32, goals=(Goal(100, "MB"), Goal(1, "torch.compile")), against=()),
        Entry("navier_stokes", 8, depth=2, points=64, goals=(Goal(0.01, "best peer"),), against=("autograd", "jax")),
    ),
}


def get(name: str) -> tuple[Entry, ...]:
    """The cases of a suite, in the order of its rows.

    Raises:
        ValueError: there is no such suite.
    """
    if name not in SUITES:
        raise ValueError(f"bench jets: unknown `suite` {name!r}. {nearest(name, tuple(SUITES))}")
    return SUITES[name]


def told(goals: Sequence[Row]) -> str:
    """Judged goals of a row, for people."""
    met = {True: "met", False: "missed", None: "not measured"}
    return "; ".join(f"{goal['text']}: {met[goal['met']]}" for goal in goals)


def judge(rows: Sequence[Row], entries: Sequence[Entry]) -> None:
    """Into ours of these rows of one case: `goals`, if the case is one of the entries."""
    for row in rows:
        for entry in entries:
            if row["engine"] == "pinnfuse" and entry.describes(row):
                row["goals"] = [goal.judged(rows) for goal in entry.goals]
