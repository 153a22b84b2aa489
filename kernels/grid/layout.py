"""What a linear stencil kernel depends on, apart from the numbers: a value, without Triton."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product

from pinnfuse.kernels.grid.hashing import hash_once


@dataclass(frozen=True)
class Line:
    """A formula along one axis.

    Interior rows take the points `offsets`. Beside walls every row takes `width` points, weighted by a table of lo +
    1 + hi rows: the `lo` rows at the low end take the first points, the `hi` rows at the high end the last ones, and
    the row in the middle, the interior one, those from i - reach on. The table of a periodic line is one row, the
    weights of `offsets`.
    """

    axis: int  # 0: the last axis, 1: the one before, 2: the first of three
    offsets: tuple[int, ...]
    periodic: bool
    lo: int = 0
    hi: int = 0
    reach: int = 0
    width: int = 0

    @property
    def rows(self) -> int:
        return self.lo + 1 + self.hi

    @property
    def margins(self) -> tuple[int, int]:
        """How far from both ends a row must be for the interior formula without wrapping."""
        low, high = max(0, -min(self.offsets, default=0)), max(0, max(self.offsets, default=0))
        return max(low, self.lo), max(high, self.hi)


@dataclass(frozen=True)
class Term:
    """Coefficient x product of lines, applied to one input component; the last line is applied first."""

    component: int
    lines: tuple[int, ...]


@hash_once
@dataclass(frozen=True)
class Layout:
    """out[o] = sum over the terms of o.

    The weights of a kernel are one tensor: those of the points of every output (in the order of `points`), the
    coefficients of all terms, then for every line with a table: its rows, `width` weights each, followed by the walls'
    constants and the sums of the rows (`constants` only).
    """

    dimension: int
    inputs: int
    lines: tuple[Line, ...]
    outputs: tuple[tuple[Term, ...], ...]
    constants: bool = False

    def points(self, output: int) -> tuple[tuple[int, tuple[int, ...]], ...]:
        """(component, offsets along axes 0, 1, ...) that an interior row of an output reads, each once."""
        found: dict[tuple[int, tuple[int, ...]], None] = {}
        for term in self.outputs[output]:
            for offsets in product(*(self.lines[k].offsets for k in term.lines)):
                found[term.component, self.shift(term, offsets)] = None
        return tuple(sorted(found))

    def shift(self, term: Term, offsets: tuple[int, ...]) -> tuple[int, ...]:
        """Offsets of a term's lines as offsets along the axes."""
        total = [0] * self.dimension
        for k, offset in zip(term.lines, offsets, strict=True):
            total[self.lines[k].axis] += offset
        return tuple(total)

    @property
    def margins(self) -> tuple[tuple[int, int], ...]:
        """Per axis, what all lines need."""
        found = [(0, 0)] * self.dimension
        for line in self.lines:
            low, high = line.margins
            found[line.axis] = max(found[line.axis][0], low), max(found[line.axis][1], high)
        return tuple(found)

    @property
    def walls(self) -> bool:
        return any(not line.periodic for line in self.lines)

    def places(self) -> tuple[int, tuple[int, ...]]:
        """Where in the tensor of weights the coefficients begin, and the table of every line."""
        at = sum(len(self.points(o)) for o in range(len(self.outputs)))
        coefficients, tables = at, []
        at += sum(map(len, self.outputs))
        for line in self.lines:
            tables.append(at)
            at += line.rows * (line.width + (2 if self.constants else 0))
        return coefficients, tuple(tables)
