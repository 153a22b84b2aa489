r"""Which derivative channels travel through a network together, and the two rules that propagate them.

A *jet* of a layer is a tuple of channels, each a row of H numbers: the value, some partial derivatives
$\partial^\alpha$, and some *operators* $D = \sum_\alpha c_\alpha \partial^\alpha$ with constant coefficients that
need one channel however many derivatives they contain. For an elementwise function s (Faa di Bruno, over the set
partitions of $\alpha$) and for a product (Leibniz):

    (s o z)_alpha = s'(z_0) z_alpha + sum over partitions into q >= 2 blocks of  s^(q)(z_0) prod_blocks z_block
    (a b)_alpha   = sum_{beta <= alpha} binomial(alpha, beta) a_beta b_{alpha - beta}

Both are linear in their top-order terms, so an operator channel obeys the same rule with the sums weighted by c_alpha:
only the *proper* sub-blocks of its members are carried one by one. (For second order this is the forward Laplacian.)
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import product

import sympy

from pinnfuse.remembered import hashed_once

MultiIndex = tuple[int, ...]


@dataclass(frozen=True)
class Operator:
    """A constant-coefficient linear operator: pairs (multi-index, coefficient in the PDE's constant parameters)."""

    terms: tuple[tuple[MultiIndex, sympy.Expr], ...]

    @property
    def order(self) -> int:
        return max(sum(alpha) for alpha, _ in self.terms)


@dataclass(frozen=True)
class Term:
    """`count coefficient s^(q) prod z[factors]` (composition, q = number of factors) or `count coefficient a b`.

    `coefficient` is a position in `ChannelSpace.coefficients`, or None for 1.
    """

    count: int
    coefficient: int | None
    factors: tuple[int, ...]


@hashed_once
@dataclass(frozen=True)
class ChannelSpace:
    """Channels carried through a network: `indices` (downward closed, value first), then one per operator."""

    dimension: int
    indices: tuple[MultiIndex, ...]
    operators: tuple[Operator, ...] = ()

    @classmethod
    def spanning(
        cls, dimension: int, indices: Iterable[MultiIndex], operators: Sequence[Operator] = ()
    ) -> ChannelSpace:
        """The smallest space with these derivatives and operators that the two rules map into itself."""
        carried = {(0,) * dimension}
        for alpha in indices:
            carried.add(alpha)
            carried.update(_sub_indices(alpha))
        for operator in operators:
            for alpha, _ in operator.terms:
                carried.update(_sub_indices(alpha))
        ordered = sorted(carried, key=lambda a: (sum(a), tuple(-i for i in a)))
        return cls(dimension, tuple(ordered), tuple(operators))

    def __len__(self) -> int:
        return len(self.indices) + len(self.operators)

    @property
    def order(self) -> int:
        """Highest derivative in the space."""
        return max([sum(alpha) for alpha in self.indices] + [operator.order for operator in self.operators])

    @cached_property
    def channel_of(self) -> dict[MultiIndex, int]:
        return {alpha: k for k, alpha in enumerate(self.indices)}

    @cached_property
    def coefficients(self) -> tuple[sympy.Expr, ...]:
        """Distinct operator coefficients other than 1; their values are given at run time."""
        found: dict[sympy.Expr, None] = {}
        for operator in self.operators:
            for _, coefficient in operator.terms:
                if coefficient != 1:
                    found[coefficient] = None
        return tuple(found)

    @cached_property
    def seeds(self) -> tuple[tuple[tuple[int, int | None], ...], ...]:
        """Channel k of the input coordinates: (coordinate, coefficient) pairs, empty where it vanishes (k >= 1)."""
        rows: list[tuple[tuple[int, int | None], ...]] = []
        for members in self._members[1:]:
            rows.append(tuple((alpha.index(1), c) for alpha, c in members if sum(alpha) == 1))
        return tuple(rows)

    @cached_property
    def composition(self) -> tuple[tuple[Term, ...], ...]:
        """Per channel, the terms of Faa di Bruno beside `s' z_k` (none for the value)."""
        table: list[tuple[Term, ...]] = []
        for members in self._members:
            counts: Counter[tuple[int | None, tuple[int, ...]]] = Counter()
            for alpha, c in members:
                for blocks, count in _partitions(alpha).items():
                    if len(blocks) >= 2:
                        counts[c, tuple(sorted(self.channel_of[b] for b in blocks))] += count
            table.append(_terms(counts))
        return tuple(table)

    @cached_property
    def product(self) -> tuple[tuple[Term, ...], ...]:
        """Per channel, the terms of Leibniz beside `a_0 b_k + a_k b_0` (none for the value, which is a_0 b_0)."""
        table: list[tuple[Term, ...]] = []
        for members in self._members:
            counts: Counter[tuple[int | None, tuple[int, ...]]] = Counter()
            for alpha, c in members:
                for beta in _sub_indices(alpha):
                    rest = tuple(a - b for a, b in zip(alpha, beta, strict=True))
                    count = math.prod(math.comb(a, b) for a, b in zip(alpha, beta, strict=True))
                    counts[c, (self.channel_of[beta], self.channel_of[rest])] += count
            table.append(_terms(counts))
        return tuple(table)

    @cached_property
    def _members(self) -> tuple[tuple[tuple[MultiIndex, int | None], ...], ...]:
        """Per channel, the derivatives that it sums, with the position of each coefficient."""
        slot = {expression: i for i, expression in enumerate(self.coefficients)}
        single = [((alpha, None),) for alpha in self.indices]
        summed = [tuple((alpha, slot.get(c)) for alpha, c in operator.terms) for operator in self.operators]
        return (*single, *summed)


def _sub_indices(alpha: MultiIndex) -> Iterator[MultiIndex]:
    """Proper non-zero multi-indices below alpha; `O(order^2)` for the sparse indices of high dimensions."""
    support = [i for i, a in enumerate(alpha) if a]
    for values in product(*(range(alpha[i] + 1) for i in support)):
        beta = [0] * len(alpha)
        for i, value in zip(support, values, strict=True):
            beta[i] = value
        if 0 < sum(beta) < sum(alpha):
            yield tuple(beta)


def _partitions(alpha: MultiIndex) -> Counter[tuple[MultiIndex, ...]]:
    """Set partitions of the derivatives in alpha, as sorted tuples of blocks, each with its multiplicity."""
    letters = [i for i, a in enumerate(alpha) for _ in range(a)]
    counts: Counter[tuple[MultiIndex, ...]] = Counter()

    def place(position: int, blocks: list[list[int]]) -> None:
        if position == len(letters):
            counts[tuple(sorted(_index(block, len(alpha)) for block in blocks))] += 1
            return
        for block in blocks:
            block.append(letters[position])
            place(position + 1, blocks)
            block.pop()
        place(position + 1, [*blocks, [letters[position]]])

    place(0, [])
    return counts


def _index(letters: Iterable[int], dimension: int) -> MultiIndex:
    counts = Counter(letters)
    return tuple(counts[i] for i in range(dimension))


def _terms(counts: Counter[tuple[int | None, tuple[int, ...]]]) -> tuple[Term, ...]:
    ordered = sorted(counts.items(), key=lambda item: (len(item[0][1]), item[0][1], item[0][0] or 0))
    return tuple(Term(count, coefficient, factors) for (coefficient, factors), count in ordered)
