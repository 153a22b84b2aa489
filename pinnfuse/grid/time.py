r"""Differences along a time axis, as an operator of its own.

"euler"    (u^{n+1} - u^n) / dt                     order 1 at either level, 2 half way between
"central"  (u^{n+2} - u^n) / 2 dt                   order 2 at level n + 1
"bdf2"     (3 u^{n+2} - 4 u^{n+1} + u^n) / 2 dt     order 2 at level n + 2
"second"   (u^{n+2} - 2 u^{n+1} + u^n) / dt^2       second derivative, order 2 at level n + 1
"""

from __future__ import annotations

import math
from functools import lru_cache

from torch import Tensor

from pinnfuse.errors import nearest
from pinnfuse.grid.grid import check_real
from pinnfuse.grid.linear import LinearOperator, Term
from pinnfuse.grid.stencils import AxisStencil, Row
from pinnfuse.parameters import number

SCHEMES = {
    "euler": ((-1.0, 1.0), 1),
    "central": ((-0.5, 0.0, 0.5), 1),
    "bdf2": ((0.5, -2.0, 1.5), 1),
    "second": ((1.0, -2.0, 1.0), 2),
}
"""Weights of levels n, n + 1, ... and the power of dt that divides them."""


def time_difference(fields: Tensor, dt: float, scheme: str = "euler", *, dim: int = 1, backend: str = "auto") -> Tensor:
    """Differences of successive levels along `dim` of `[B, T, ...]`: `[B, T - 1, ...]`, T - 2 for three-level schemes.

    Raises:
        ValueError: unknown scheme, `dt` not positive, or too few levels.
    """
    if scheme not in SCHEMES:
        raise ValueError(f"time_difference: unknown `scheme`; got {scheme!r}. {nearest(str(scheme), SCHEMES)}")
    dt = number(dt, "time_difference: `dt`")
    if not dt > 0:
        raise ValueError(f"time_difference: `dt` must be > 0; got {dt!r}.")
    check_real(fields, "time_difference", "fields")
    if not -fields.dim() <= dim < fields.dim():
        raise ValueError(f"time_difference: `dim` must be one of the {fields.dim()} dimensions of `fields`; got {dim}.")
    weights, power = SCHEMES[scheme]
    dim = dim % fields.dim()
    levels = fields.shape[dim]
    if levels < len(weights):
        raise ValueError(f"time_difference: `fields` must have {len(weights)} levels along dim {dim}; got {levels}.")
    shape = fields.shape
    flat = fields.reshape(*shape[:dim], 1, levels, math.prod(shape[dim + 1 :]))
    found = _operator(weights, dt**power)(flat, ("time", "points"), backend)
    return found.reshape(shape).narrow(dim, 0, levels - len(weights) + 1)


@lru_cache(maxsize=64)
def _operator(weights: tuple[float, ...], divisor: float) -> LinearOperator:
    """Rows without enough later levels are empty, and cut off."""
    kept = [(k, w / divisor) for k, w in enumerate(weights) if w]
    offsets, values = tuple(k for k, _ in kept), tuple(w for _, w in kept)
    rest = (Row((), ()),) * (len(weights) - 1)
    stencil = AxisStencil(offsets, values, False, (), rest, len(weights))
    return LinearOperator("time_difference", 2, 1, ((Term(1.0, 0, ((0, stencil),)),),))
