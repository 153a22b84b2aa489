"""Weights that depend on the place: less weight where a solution is singular, more where it matters."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import sympy
import torch
from torch import Tensor

from pinnfuse.pde import parse_expression, torch_function

Weighting = str | Callable[[Tensor], Tensor]
"""Text in the coordinates, or a function of the points [n, d] -> [n]; >= 0."""


def point_weights(weighting: Weighting | None, coordinates: Sequence[str], points: Tensor) -> Tensor | None:
    """The weights [n] of points [n, d], None where every point counts the same.

    Raises:
        ValueError: text that does not parse, or a weight that is negative or not finite.
    """
    if weighting is None:
        return None
    if callable(weighting):
        weights = weighting(points)
    else:
        symbols = {name: sympy.Symbol(name, real=True) for name in coordinates}
        (weights,) = torch_function([parse_expression(weighting, symbols)], list(symbols.values()))(*points.unbind(1))
    weights = torch.as_tensor(weights, dtype=points.dtype, device=points.device).expand(len(points))
    if points.is_cuda and torch.cuda.is_current_stream_capturing():
        return weights  # the calls before the capture were checked, and this check would end it
    if not bool((torch.isfinite(weights) & (weights >= 0)).all()):
        raise ValueError(f"point_weights: {weighting!r} must be finite and >= 0 at every point; it is not everywhere.")
    return weights
