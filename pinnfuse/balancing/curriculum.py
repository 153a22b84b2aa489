"""A constant of a PDE by step: pairs [step, value], each the value from that step on."""

from __future__ import annotations

import math
from collections.abc import Sequence

Knots = Sequence[Sequence[float]]


def check_knots(name: str, knots: Knots, where: str) -> None:
    """ValueError unless they are pairs with rising steps, the first 0, and finite values."""
    steps = [knot[0] for knot in knots if len(knot) == 2]
    rising = all(a < b for a, b in zip(steps, steps[1:], strict=False)) and steps[:1] == [0]
    if len(steps) < len(knots) or not rising or not all(math.isfinite(value) for _, value in knots):
        raise ValueError(
            f"{where}: `curriculum` of {name!r} must be pairs [step, value] with rising steps, the first 0, and finite "
            f"values; got {knots!r}."
        )


def value_at(knots: Knots, step: int) -> float:
    """The value of that step; a function of the step alone, so a resumed run agrees."""
    return [value for start, value in knots if start <= step][-1]
