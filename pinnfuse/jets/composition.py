r"""Elementwise functions of jets, a = s o z, and their adjoint.

With P_kq the sum of the products of q factors in channel k (Faa di Bruno):

    a_0 = s(z_0),     a_k = s' z_k + sum_q s^(q) P_kq

Adjoint (bar = derivative of the loss):

    zbar_j  = s' abar_j + sum_k abar_k sum_q s^(q) dP_kq/dz_j
    zbar_0 += s' abar_0 + sum_k abar_k (s'' z_k + sum_q s^(q+1) P_kq)

A pass over [n, width] numbers is what a line of code costs here: nothing is copied, scaled or negated in a pass of its
own where a product can do it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from pinnfuse.jets.program import Unary
from pinnfuse.jets.space import ChannelSpace, Term
from pinnfuse.jets.unary import Derivatives, unary
from pinnfuse.jets.values import DenseJet, JetValue
from pinnfuse.jets.workspace import Workspace


def term_weight(term: Term, coefficients: Sequence[float]) -> float:
    """The number in front of a product."""
    return term.count * (1.0 if term.coefficient is None else coefficients[term.coefficient])


@dataclass(frozen=True)
class _Power:
    """`scale` times a sum of products of q factors, part of one channel.

    `runs` are squares of neighbouring channels (start, stop, weight), `others` (factors, weight).
    """

    channel: int
    q: int
    scale: float
    runs: tuple[tuple[int, int, float], ...]
    others: tuple[tuple[tuple[int, ...], float], ...]


@dataclass
class Saved:
    """Derivatives of the function at z_0, and the sums of products P_kq."""

    derivatives: Derivatives
    products: list[Tensor]


class Composition:
    """The rules of one channel space with the values of its coefficients."""

    def __init__(self, space: ChannelSpace, coefficients: Sequence[float]):
        self._channels, self._order = len(space), space.order
        self._powers = [
            _power(k, q, [(t.factors, term_weight(t, coefficients)) for t in terms if len(t.factors) == q])
            for k, terms in enumerate(space.composition)
            for q in sorted({len(t.factors) for t in terms})
        ]

    def forward(self, op: Unary, x: JetValue, memory: Workspace) -> tuple[DenseJet, Saved]:
        z = x.channels
        out = memory.jet(z[0], self._channels, *z[0].shape)
        value, *a = out.channels
        first = [value]
        s = unary(op.name, op.exponent)(z[0], self._order + 1, lambda: first.pop() if first else memory.channel(value))
        if s[0] is not value:
            value.copy_(_present(s[0]))
        if a:
            every = 1, self._channels
            torch.mul(x.block(*every), _present(s[1]), out=out.block(*every))
        products: list[Tensor] = []
        for power in self._powers:
            p = _sum_of_products(power, x, memory)
            products.append(p)
            derivative = s[power.q]
            if derivative is not None:
                a[power.channel - 1].addcmul_(derivative, p, value=power.scale)
        return out, Saved(s, products)

    def adjoint(self, grad: DenseJet, x: JetValue, saved: Saved, memory: Workspace) -> DenseJet:
        """Gradient of z from that of a."""
        s, z, upstream = saved.derivatives, x.channels, grad.channels
        out = memory.jet(grad.data, *grad.data.shape)
        torch.mul(grad.data, _present(s[1]), out=out.data)
        value = out.channels[0]
        spare = memory.channel(value)
        if self._channels > 1 and s[2] is not None:
            inner = torch.mul(upstream[1], z[1], out=spare)
            for g, c in zip(upstream[2:], z[2:], strict=True):
                inner.addcmul_(g, c)
            value.addcmul_(s[2], inner)
        for power, product in zip(self._powers, saved.products, strict=True):
            g, derivative, raised = upstream[power.channel], s[power.q], s[power.q + 1]
            if raised is not None:
                value.addcmul_(torch.mul(g, raised, out=spare), product, value=power.scale)
            if derivative is None:
                continue
            scaled = torch.mul(g, derivative, out=spare)
            for start, stop, weight in power.runs:
                out.block(start, stop).addcmul_(x.block(start, stop), scaled, value=2 * weight * power.scale)
            for factors, weight in power.others:
                for position, j in enumerate(factors):
                    rest = [z[m] for other, m in enumerate(factors) if other != position]
                    out.channels[j].addcmul_(scaled, _product(rest), value=weight * power.scale)
        memory.give_back(spare)
        return out


def _power(channel: int, q: int, terms: list[tuple[tuple[int, ...], float]]) -> _Power:
    """Sort terms into runs of squares (a Laplacian is one run, whatever its dimension) and others."""
    runs: list[tuple[int, int, float]] = []
    others = []
    scale = max((w for _, w in terms), key=abs) or 1.0  # the others are at most 1: none overflows
    for factors, weight in ((f, w / scale) for f, w in terms):
        if q == 2 and factors[0] == factors[1]:
            if runs and runs[-1][1] == factors[0] and runs[-1][2] == weight:
                runs[-1] = (runs[-1][0], factors[0] + 1, weight)
            else:
                runs.append((factors[0], factors[0] + 1, weight))
        else:
            others.append((factors, weight))
    return _Power(channel, q, scale, tuple(runs), tuple(others))


def _sum_of_products(power: _Power, x: JetValue, memory: Workspace) -> Tensor:
    z = x.channels
    total: Tensor | None = None
    for start, stop, weight in power.runs:
        part = _sum_of_squares(x, start, stop, memory)
        if total is None:
            total = part if weight == 1.0 else part.mul_(weight)
        else:
            total.add_(part, alpha=weight)
    for factors, weight in power.others:
        if total is None:
            total = _product([z[j] for j in factors]) * weight
        else:
            total.addcmul_(z[factors[0]], _product([z[j] for j in factors[1:]]), value=weight)
    assert total is not None
    return total


def _sum_of_squares(x: JetValue, start: int, stop: int, memory: Workspace) -> Tensor:
    """Over channels start to stop. One pass a channel while there are few, one reduction where there are many."""
    if stop - start > 8:
        return x.block(start, stop).square().sum(0)
    first, *rest = x.channels[start:stop]
    total = torch.mul(first, first, out=memory.channel(first))
    for z in rest:
        total.addcmul_(z, z)
    return total


def _product(factors: Sequence[Tensor]) -> Tensor:
    total = factors[0]
    for factor in factors[1:]:
        total = total * factor
    return total


def _present(derivative: Tensor | None) -> Tensor:
    assert derivative is not None
    return derivative
