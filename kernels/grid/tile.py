"""What one program of a kernel on a grid does."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Tile:
    """Points of one program along the last two axes, its warps, the most registers of a thread (0: no bound), and the
    points a thread reads at once if aligned (linear operators)."""

    x: int
    y: int
    warps: int
    registers: int = 0
    vector: int = 4

    def options(self, double: bool) -> dict[str, int]:
        """Of a launch; sums in float64 need more registers than any bound here was looked at with."""
        bound = {"maxnreg": self.registers} if self.registers and not double else {}
        return {"num_warps": self.warps, **bound}
