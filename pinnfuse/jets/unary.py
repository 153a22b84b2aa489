r"""Derivatives s, s', ..., s^(n) of the elementwise functions that a network may contain, in closed form.

Each entry maps z to the list [s(z), s'(z), ..., s^(n)(z)]. A derivative that vanishes identically is None. `new` gives
the memory of the results, in their order where the function is common enough to write into it; None: torch's own.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import lru_cache
from typing import Protocol

import torch
from torch import Tensor
from torch.nn import functional

Derivatives = list[Tensor | None]
New = Callable[[], Tensor | None]


def _own() -> None:
    """Memory of torch's own."""


class Rule(Protocol):
    def __call__(self, z: Tensor, n: int, new: New = _own) -> Derivatives: ...


def _tanh(z: Tensor, n: int, new: New = _own) -> Derivatives:
    s = torch.tanh(z, out=new())
    if n == 0:
        return [s]
    d = torch.addcmul(z.new_ones(()), s, s, value=-1, out=new())  # s' = 1 - s^2; the rest is polynomials in s and s'
    polynomials: list[Callable[[], Tensor]] = [
        lambda: d,
        lambda: torch.addcmul(z.new_zeros(()), s, d, value=-2, out=new()),
        lambda: torch.mul(d, 4, out=new()).addcmul_(d, d, value=-6),
        lambda: s * d * (24 * d - 8),
        lambda: d * ((120 * d - 120) * d + 16),
        lambda: s * d * ((480 - 720 * d) * d - 32),
    ]
    return [s, *(f() for f in polynomials[:n]), *_beyond(s, d, (-2, 1, 1), len(polynomials), n)]


def _beyond(odd: Tensor, even: Tensor, rates: tuple[int, int, int], known: int, n: int) -> Derivatives:
    """Derivatives `known` + 1 to n of a function with s' = e, where e' = a e o, o' = b e, o^2 = 1 - c e."""
    out: Derivatives = []
    for k in range(known + 1, n + 1):
        total = torch.zeros_like(even)
        for factor in reversed(_polynomial(k, rates)):
            total.mul_(even).add_(factor)
        out.append(total if k % 2 else total.mul_(odd))
    return out


@lru_cache(maxsize=64)
def _polynomial(k: int, rates: tuple[int, int, int]) -> tuple[int, ...]:
    """Factors of e^0, e^1, ... in derivative k, which is p(e) for odd k and o p(e) for even k."""
    if k == 1:
        return (0, 1)
    a, b, c = rates
    p = _polynomial(k - 1, rates)
    out = [0] * (len(p) + k % 2)
    for i, factor in enumerate(p):
        if k % 2 == 0:  # (p(e))' = o a e p'
            out[i] += a * i * factor
        else:  # (o p(e))' = b e p + a (1 - c e) e p'
            out[i] += a * i * factor
            out[i + 1] += (b - a * c * i) * factor
    return tuple(out)


def _sigmoid(z: Tensor, n: int, new: New = _own) -> Derivatives:
    s = torch.sigmoid(z, out=new())
    p = s * torch.sigmoid(-z)  # s (1 - s) without the cancellation near s = 1
    c = 1 - 2 * s
    polynomials: list[Callable[[], Tensor]] = [
        lambda: p,
        lambda: p * c,
        lambda: p * (1 - 6 * p),
        lambda: p * c * (1 - 12 * p),
        lambda: p * (1 + p * (120 * p - 30)),
        lambda: p * c * (1 + p * (360 * p - 60)),
    ]
    return [s, *(f() for f in polynomials[:n]), *_beyond(c, p, (1, -2, 4), len(polynomials), n)]


def _softplus(z: Tensor, n: int, new: New = _own) -> Derivatives:
    return [functional.softplus(z), *_sigmoid(z, n - 1)] if n else [functional.softplus(z)]


def _times_argument(z: Tensor, g: Derivatives, new: New) -> Derivatives:
    """Derivatives of z g(z): z g^(k) + k g^(k-1)."""
    out: Derivatives = []
    for k, derivative in enumerate(g):
        product = torch.mul(z, _present(derivative), out=new())
        out.append(product if k == 0 else product.add_(_present(g[k - 1]), alpha=k))
    return out


def _silu(z: Tensor, n: int, new: New = _own) -> Derivatives:
    return _times_argument(z, _sigmoid(z, n), new)


def _gelu(z: Tensor, n: int, new: New = _own) -> Derivatives:
    cdf = 0.5 * torch.erfc(-z * math.sqrt(0.5))
    density = torch.exp(-0.5 * z * z) / math.sqrt(2 * math.pi)
    g: Derivatives = [cdf]
    hermite, previous = torch.ones_like(z), torch.zeros_like(z)  # He_0, He_{-1}
    for k in range(n):
        g.append(density * hermite * (-1) ** k)
        hermite, previous = z * hermite - k * previous, hermite
    return _times_argument(z, g, new)


def _erf(z: Tensor, n: int, new: New = _own) -> Derivatives:
    out: Derivatives = [torch.erf(z)]
    density = torch.exp(-z * z) * (2 / math.sqrt(math.pi))
    hermite, previous = torch.ones_like(z), torch.zeros_like(z)  # H_0, H_{-1}
    for k in range(n):
        out.append(density * hermite * (-1) ** k)
        hermite, previous = 2 * (z * hermite - k * previous), hermite
    return out


def _erfc(z: Tensor, n: int, new: New = _own) -> Derivatives:
    return [torch.erfc(z), *(None if d is None else -d for d in _erf(z, n)[1:])]


def _sin(z: Tensor, n: int, new: New = _own) -> Derivatives:
    first: Derivatives = [torch.sin(z, out=new()), torch.cos(z, out=new()) if n else None]
    return _alternating(first, n, new)


def _cos(z: Tensor, n: int, new: New = _own) -> Derivatives:
    first: Derivatives = [torch.cos(z, out=new()), torch.sin(z, out=new()).neg_() if n else None]
    return _alternating(first, n, new)


def _alternating(first: Derivatives, n: int, new: New = _own) -> Derivatives:
    """s and s' continued by s'' = -s."""
    out = first[: n + 1]
    for k in range(2, n + 1):
        out.append(out[k - 4] if k >= 4 else torch.neg(_present(out[k - 2]), out=new()))
    return out


def _exp(z: Tensor, n: int, new: New = _own) -> Derivatives:
    return [torch.exp(z)] * (n + 1)


def _log(z: Tensor, n: int, new: New = _own) -> Derivatives:
    return [torch.log(z), *_power(-1.0)(z, n - 1)] if n else [torch.log(z)]


def _atan(z: Tensor, n: int, new: New = _own) -> Derivatives:
    q = z * z
    d = torch.reciprocal(1 + q)
    polynomials: list[Callable[[], Tensor]] = [
        lambda: d,
        lambda: -2 * z * d**2,
        lambda: (6 * q - 2) * d**3,
        lambda: 24 * z * (1 - q) * d**4,
        lambda: 24 * ((5 * q - 10) * q + 1) * d**5,
        lambda: -240 * z * ((3 * q - 10) * q + 3) * d**6,
    ]
    out: Derivatives = [torch.atan(z), *(f() for f in polynomials[:n])]
    for k in range(len(polynomials), n):  # derivative k of (1 + z^2) s' = 1
        out.append(-d * (2 * k * z * _present(out[k]) + k * (k - 1) * _present(out[k - 1])))
    return out


def _power(exponent: float) -> Rule:
    def derivatives(z: Tensor, n: int, new: New = _own) -> Derivatives:
        out: Derivatives = []
        factor = 1.0
        for k in range(n + 1):
            out.append(factor * torch.pow(z, exponent - k) if factor else None)
            factor *= exponent - k
        return out

    return derivatives


UNARY: dict[str, Rule] = {
    "tanh": _tanh,
    "sigmoid": _sigmoid,
    "softplus": _softplus,
    "silu": _silu,
    "gelu": _gelu,
    "sin": _sin,
    "cos": _cos,
    "exp": _exp,
    "log": _log,
    "atan": _atan,
    "erf": _erf,
    "erfc": _erfc,
    "sqrt": _power(0.5),
    "reciprocal": _power(-1.0),
}


def _present(derivative: Tensor | None) -> Tensor:
    assert derivative is not None
    return derivative


def unary(name: str, exponent: float | None = None) -> Rule:
    """Derivatives of a named function; `power` needs its exponent."""
    return _power(exponent) if exponent is not None else UNARY[name]
