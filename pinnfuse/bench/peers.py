r"""What a careful user would write without pinnfuse's engines: jets of a tanh network as ordinary array code.

The loss is differentiated by the framework and compiled by it. It has every advantage of the same channels (a Laplacian
or another constant-coefficient operator is one channel) and of the first layer, whose derivatives are its weights.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from typing import Any

import sympy
import torch

from pinnfuse.jets.plan import JetPlan

Array = Any


def torch_jets(plan: JetPlan) -> Callable[[Sequence[Array], Array], Array]:
    """`loss(weights, points)` in torch; weights and biases in turn."""
    return _jets(plan, torch, plan.residual_function)


def jax_jets(plan: JetPlan) -> Callable[[Sequence[Array], Array], Array]:
    """`loss(weights, points)` in jax.numpy."""
    residuals = sympy.lambdify(plan.arguments, list(plan.residuals), modules="jax", cse=True)
    return _jets(plan, importlib.import_module("jax.numpy"), residuals)


def _jets(plan: JetPlan, xp: Any, residuals: Callable[..., Sequence[Array]]) -> Callable[..., Array]:
    space = plan.space
    constants = {name: float(p.value) for name, p in plan.pde.parameters.items()}
    coefficients = plan.coefficients(constants)
    factors = [1.0, *coefficients]

    def activate(z: Sequence[Array], first: bool) -> Array:
        s = _tanh(xp.tanh(z[0]), space.order)
        out = [s[0]]
        for k in range(1, len(space)):
            channel = s[1] * z[k] if len(z) > k else 0.0
            for term in space.composition[k]:
                product = factors[0 if term.coefficient is None else term.coefficient + 1] * term.count
                for factor in term.factors:
                    product = product * z[factor]
                channel = channel + s[len(term.factors)] * product
            out.append(channel)
        return xp.stack([c + xp.zeros_like(s[0]) for c in out] if first else out)

    def loss(weights: Sequence[Array], points: Array) -> Array:
        w, b = weights[0], weights[1]
        z: list[Array] = [points @ w.T + b]
        for seed in space.seeds:
            row = 0.0 * w[:, 0]
            for coordinate, slot in seed:
                row = row + factors[0 if slot is None else slot + 1] * w[:, coordinate]
            z.append(row)
        a = activate(z, True)
        for layer in range(1, len(weights) // 2):
            product = a @ weights[2 * layer].T
            z = [product[0] + weights[2 * layer + 1], *(product[k] for k in range(1, len(space)))]
            if layer < len(weights) // 2 - 1:
                a = activate(z, False)
        read = [z[o.channel][:, o.column] for o in plan.outputs]
        columns = [points[:, i] for i in range(points.shape[1])]
        values = residuals(*read, *columns, *(constants[name] for name in plan.constants))
        return sum((r * r).mean() for r in values)

    return loss


def _tanh(t: Array, order: int) -> list[Array]:
    """[s, s', .., s^(order)] of tanh, order <= 4, as polynomials in t = tanh(z)."""
    d = 1 - t * t
    return [t, d, -2 * t * d, d * (4 - 6 * d), t * d * (24 * d - 8)][: max(order, 1) + 1]
