r"""What a careful user would write without pinnfuse's engines: jets of a network as ordinary array code.

The loss is differentiated by the framework and compiled by it. It has every advantage of the same channels (a Laplacian
or another constant-coefficient operator is one channel) and of the first layer, whose derivatives are its weights.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import sympy
import torch

from pinnfuse.jets.plan import JetPlan

Array = Any
Loss = Callable[[Sequence[Array], Array], Array]


def torch_jets(plan: JetPlan, network: str = "mlp", frequencies: Array = None) -> Loss:
    """`loss(weights, points)` in torch; weights in the order of the network's parameters."""
    return _jets(plan, torch, plan.residual_function, network, frequencies)


def jax_jets(plan: JetPlan, network: str = "mlp", frequencies: Array = None) -> Loss:
    """`loss(weights, points)` in jax.numpy."""
    residuals = sympy.lambdify(plan.arguments, list(plan.residuals), modules="jax", cse=True)
    return _jets(plan, importlib.import_module("jax.numpy"), residuals, network, frequencies)


def _jets(
    plan: JetPlan,
    xp: Any,
    residuals: Callable[..., Sequence[Array]],
    network: str = "mlp",
    frequencies: Array = None,
) -> Loss:
    rules = _Rules(plan, xp, frequencies)
    constants = {name: float(p.value) for name, p in plan.pde.parameters.items()}

    def loss(weights: Sequence[Array], points: Array) -> Array:
        z = NETWORKS[network](rules, iter(weights), points)
        read = [z[o.channel][:, o.column] for o in plan.outputs]
        columns = [points[:, i] for i in range(points.shape[1])]
        values = residuals(*read, *columns, *(constants[name] for name in plan.constants))
        return sum((r * r).mean() for r in values)

    return loss


class _Rules:
    """The rules of jets; a jet is a list of channels [N, H], or [H] where a derivative is the same for all points."""

    def __init__(self, plan: JetPlan, xp: Any, frequencies: Array):
        self.space, self.xp, self.frequencies = plan.space, xp, frequencies
        coefficients = plan.coefficients({name: float(p.value) for name, p in plan.pde.parameters.items()})
        self.factors = [1.0, *coefficients]

    def first(self, points: Array, w: Array, b: Array | None) -> list[Array]:
        """A layer of the points."""
        value = points @ w.T
        z: list[Array] = [value if b is None else value + b]
        for seed in self.space.seeds:
            row = 0.0 * w[:, 0]
            for coordinate, slot in seed:
                row = row + self.factors[0 if slot is None else slot + 1] * w[:, coordinate]
            z.append(row)
        return z

    def layer(self, a: Array, w: Array, b: Array) -> list[Array]:
        product = a @ w.T
        return [product[0] + b, *(product[k] for k in range(1, len(self.space)))]

    def compose(self, z: Sequence[Array], s: Sequence[Array]) -> Array:
        """The jet of s(z), from s, s', .. at z_0."""
        out = [s[0]]
        for k in range(1, len(self.space)):
            channel = s[1] * z[k] if len(z) > k else 0.0
            for term in self.space.composition[k]:
                product = self._weight(term)
                for factor in term.factors:
                    product = product * z[factor]
                channel = channel + s[len(term.factors)] * product
            out.append(channel)
        return self.xp.stack([c if c.shape == s[0].shape else c + self.xp.zeros_like(s[0]) for c in out])

    def tanh(self, z: Sequence[Array]) -> Array:
        return self.compose(z, _tanh(self.xp.tanh(z[0]), self.space.order))

    def multiply(self, a: Array, b: Array) -> Array:
        out = [a[0] * b[0]]
        for k in range(1, len(self.space)):
            channel = a[0] * b[k] + a[k] * b[0]
            for term in self.space.product[k]:
                channel = channel + self._weight(term) * a[term.factors[0]] * b[term.factors[1]]
            out.append(channel)
        return self.xp.stack(out)

    def waves(self, points: Array) -> Array:
        """Fourier features, cosines and then sines."""
        z = self.first(points, self.frequencies.T, None)
        c, s = self.xp.cos(z[0]), self.xp.sin(z[0])
        cosine = self.compose(z, [c, -s, -c, s, c][: max(self.space.order, 1) + 1])
        sine = self.compose(z, [s, c, -s, -c, s][: max(self.space.order, 1) + 1])
        return self.xp.concatenate([cosine, sine], -1)

    def _weight(self, term: Any) -> float:
        return self.factors[0 if term.coefficient is None else term.coefficient + 1] * term.count


def _mlp(j: _Rules, weights: Iterator[Array], points: Array) -> Sequence[Array]:
    given = list(weights)
    pairs = list(zip(given[::2], given[1::2], strict=True))
    z = j.first(points, *pairs[0])
    for w, b in pairs[1:]:
        z = j.layer(j.tanh(z), w, b)
    return z


def _modified(j: _Rules, weights: Iterator[Array], points: Array) -> Sequence[Array]:
    given = list(weights)
    (wp, bp), (wq, bq), first, *hidden, last = list(zip(given[::2], given[1::2], strict=True))
    p, q = j.tanh(j.first(points, wp, bp)), j.tanh(j.first(points, wq, bq))
    gate = p - q
    a = q + j.multiply(j.tanh(j.first(points, *first)), gate)
    for w, b in hidden:
        a = q + j.multiply(j.tanh(j.layer(a, w, b)), gate)
    return j.layer(a, *last)


def _pirate(j: _Rules, weights: Iterator[Array], points: Array) -> Sequence[Array]:
    given = list(weights)
    a = j.waves(points)
    p, q = (j.tanh(j.layer(a, given[i], given[i + 1])) for i in (0, 2))
    gate = p - q
    for start in range(4, len(given) - 2, 7):
        alpha, *layers = given[start : start + 7]
        g = q + j.multiply(j.tanh(j.layer(a, *layers[:2])), gate)
        g = q + j.multiply(j.tanh(j.layer(g, *layers[2:4])), gate)
        a = a + alpha * (j.tanh(j.layer(g, *layers[4:])) - a)
    return j.layer(a, given[-2], given[-1])


NETWORKS: dict[str, Callable[[_Rules, Iterator[Array], Array], Sequence[Array]]] = {
    "mlp": _mlp,
    "modified_mlp": _modified,
    "piratenet": _pirate,
}
"""Plain, gated (modified MLP) and gated residual (PirateNet); parameters in the order of `pinnfuse.models`."""


def _tanh(t: Array, order: int) -> list[Array]:
    """[s, s', .., s^(order)] of tanh, order <= 4, as polynomials in t = tanh(z)."""
    d = 1 - t * t
    return [t, d, -2 * t * d, d * (4 - 6 * d), t * d * (24 * d - 8)][: max(order, 1) + 1]
