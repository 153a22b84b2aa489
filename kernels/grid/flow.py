"""What a kernel of convection or diffusion depends on apart from the numbers: a value, without Triton."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property

from pinnfuse.kernels.grid.hashing import hash_once


@hash_once
@dataclass(frozen=True)
class Flow:
    """Convection of f by a velocity c (one component per axis), or diffusion of f with a diffusivity c.

    A line operator: the sum over axes of an operator along each. `weights` are those of a linear face value (from the
    upwind side) on 2 `reach` points; of convection with "van_leer" or "weno5" there are none. Of diffusion they are the
    `reach` weights of the staggered difference and then of the midpoint interpolation.

    The numbers of a kernel are one tensor: 1/h per axis, then per axis the tables of ghost points of f and of c, each
    of 2 `depth` rows (low end, high end) of count weights and a constant. Diffusion of order 2 is `limited`: c beyond a
    wall follows a limited slope, and its table holds per end whether it does (1 or 0) and the factor of the row.
    """

    kind: str  # "convection" or "diffusion"
    scheme: str
    form: str  # "advective", "conservative", "skew"; "" for diffusion
    dimension: int
    periodic: tuple[bool, ...]  # axis 0 is the last
    reach: int
    weights: tuple[float, ...]
    split: bool  # by the sign of the velocity
    depth: int
    count_f: int
    count_c: int
    limited: bool = False

    @cached_property
    def variant(self) -> str:
        """What it is besides convection or diffusion."""
        return " ".join([f"{self.dimension}D", self.scheme, self.form]).rstrip()

    @property
    def taps(self) -> int:
        """How far the forward reads."""
        return self.reach if self.kind == "convection" else 2 * self.reach - 1

    def table(self, axis: int, coefficient: bool) -> int:
        """Where the table of an axis begins."""
        of_f = 2 * self.depth * (self.count_f + 1)
        of_c = 4 if self.limited else 2 * self.depth * (self.count_c + 1)
        return self.dimension + axis * (of_f + of_c) + (of_f if coefficient else 0)

    def margin(self, axis: int, backward: bool) -> int:
        """How far from both ends a tile must be to read without tables, and to be in no ghost point."""
        reach = self.taps if self.kind == "diffusion" or not backward else 2 * self.reach - 1
        return max(reach, 0 if self.periodic[axis] or not backward else max(self.count_f, self.count_c))
