r"""Derivatives s, s', ..., s^(n) of the elementwise functions that a network may contain, in closed form.

Each entry maps z to the list [s(z), s'(z), ..., s^(n)(z)]. A derivative that vanishes identically is None.
"""

from __future__ import annotations

import math
from collections.abc import Callable

import torch
from torch import Tensor
from torch.nn import functional

Derivatives = list[Tensor | None]


def _tanh(z: Tensor, n: int) -> Derivatives:
    s = torch.tanh(z)
    d = (s * s).neg_().add_(1)  # s' = 1 - s^2; everything else is a polynomial in s and s'
    polynomials: list[Callable[[], Tensor]] = [
        lambda: d,
        lambda: (s * d).mul_(-2),
        lambda: (4 * d).addcmul_(d, d, value=-6),
        lambda: s * d * (24 * d - 8),
        lambda: d * ((120 * d - 120) * d + 16),
        lambda: s * d * ((480 - 720 * d) * d - 32),
    ]
    return [s, *(f() for f in polynomials[:n])]


def _sigmoid(z: Tensor, n: int) -> Derivatives:
    s = torch.sigmoid(z)
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
    return [s, *(f() for f in polynomials[:n])]


def _softplus(z: Tensor, n: int) -> Derivatives:
    return [functional.softplus(z), *_sigmoid(z, n - 1)] if n else [functional.softplus(z)]


def _times_argument(z: Tensor, g: Derivatives) -> Derivatives:
    """Derivatives of z g(z): z g^(k) + k g^(k-1)."""
    out: Derivatives = []
    for k, derivative in enumerate(g):
        assert derivative is not None
        previous = g[k - 1] if k else None
        out.append(z * derivative if previous is None else torch.addcmul(k * previous, z, derivative))
    return out


def _silu(z: Tensor, n: int) -> Derivatives:
    return _times_argument(z, _sigmoid(z, n))


def _gelu(z: Tensor, n: int) -> Derivatives:
    cdf = 0.5 * torch.erfc(-z * math.sqrt(0.5))
    density = torch.exp(-0.5 * z * z) / math.sqrt(2 * math.pi)
    g: Derivatives = [cdf]
    hermite, previous = torch.ones_like(z), torch.zeros_like(z)  # He_0, He_{-1}
    for k in range(n):
        g.append(density * hermite * (-1) ** k)
        hermite, previous = z * hermite - k * previous, hermite
    return _times_argument(z, g)


def _erf(z: Tensor, n: int) -> Derivatives:
    out: Derivatives = [torch.erf(z)]
    density = torch.exp(-z * z) * (2 / math.sqrt(math.pi))
    hermite, previous = torch.ones_like(z), torch.zeros_like(z)  # H_0, H_{-1}
    for k in range(n):
        out.append(density * hermite * (-1) ** k)
        hermite, previous = 2 * (z * hermite - k * previous), hermite
    return out


def _erfc(z: Tensor, n: int) -> Derivatives:
    return [torch.erfc(z), *(None if d is None else -d for d in _erf(z, n)[1:])]


def _sin(z: Tensor, n: int) -> Derivatives:
    s, c = torch.sin(z), torch.cos(z)
    return [(s, c, -s, -c)[k % 4] for k in range(n + 1)]


def _cos(z: Tensor, n: int) -> Derivatives:
    s, c = torch.sin(z), torch.cos(z)
    return [(c, -s, -c, s)[k % 4] for k in range(n + 1)]


def _exp(z: Tensor, n: int) -> Derivatives:
    return [torch.exp(z)] * (n + 1)


def _log(z: Tensor, n: int) -> Derivatives:
    return [torch.log(z), *_power(-1.0)(z, n - 1)] if n else [torch.log(z)]


def _atan(z: Tensor, n: int) -> Derivatives:
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
    return [torch.atan(z), *(f() for f in polynomials[:n])]


def _power(exponent: float) -> Callable[[Tensor, int], Derivatives]:
    def derivatives(z: Tensor, n: int) -> Derivatives:
        out: Derivatives = []
        factor = 1.0
        for k in range(n + 1):
            out.append(factor * torch.pow(z, exponent - k) if factor else None)
            factor *= exponent - k
        return out

    return derivatives


UNARY: dict[str, Callable[[Tensor, int], Derivatives]] = {
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


def unary(name: str, exponent: float | None = None) -> Callable[[Tensor, int], Derivatives]:
    """Derivatives of a named function; `power` needs its exponent."""
    return _power(exponent) if exponent is not None else UNARY[name]
