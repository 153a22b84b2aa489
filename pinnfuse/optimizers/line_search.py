r"""Line search for the strong Wolfe conditions that tolerates NaN, Inf and rounding noise.

With $\varphi(t) = f(x + t d)$ and $\varphi'(0) < 0$ it looks for a step $t$ with

    phi(t) <= phi(0) + c1 t phi'(0)      (enough decrease),
    |phi'(t)| <= c2 |phi'(0)|            (flat enough; then y.s > 0 for the quasi-Newton update).

One loop does both stages: expand until a minimum is bracketed, then shrink the bracket. `low` is the best point known
that decreases enough (the start, at first), `high` the other end. A cubic through both ends gives the next trial, kept
away from the ends; where the cubic does not exist or the bracket shrinks slowly, bisection.

Source: Nocedal and Wright, Numerical Optimization (2nd ed., 2006), algorithms 3.5 and 3.6, equation 3.59.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass

from torch import Tensor


@dataclass(frozen=True)
class Trial:
    """The objective at one step along the search direction."""

    step: float
    loss: float
    slope: float
    """Derivative of the loss with respect to the step."""
    gradient: Tensor
    """[n] gradient with respect to the parameters."""

    @property
    def finite(self) -> bool:
        return math.isfinite(self.loss) and math.isfinite(self.slope)


def strong_wolfe(
    evaluate: Callable[[float], Trial],
    start: Trial,
    step: float,
    *,
    c1: float,
    c2: float,
    max_evaluations: int,
    noise: float,
) -> Trial | None:
    """A step that satisfies the strong Wolfe conditions, else the best decrease found, else None.

    The result is finite and never above the start. Where the decrease asked for is below the rounding of the loss
    (`noise` is its relative size), a flat enough trial need only not increase.

    Args:
        evaluate: step -> Trial.
        start: the trial at step 0; its slope is negative.
        step: the first step to try, > 0.
        c1, c2: 0 < c1 < c2 < 1.
        max_evaluations: how often `evaluate` may be called.
        noise: relative rounding error of the loss, e.g. the machine epsilon of its dtype.
    """
    resolution = noise * abs(start.loss)
    low, high = start, None
    widths = [math.inf, math.inf]  # of the last two brackets
    for _ in range(max_evaluations):
        trial = evaluate(step)
        wanted = -c1 * step * start.slope
        enough = trial.finite and trial.loss <= start.loss - (wanted if wanted > resolution else 0.0)
        if not enough or (low is not start and trial.loss >= low.loss):
            high = trial
        else:
            if abs(trial.slope) <= -c2 * start.slope:
                return trial
            ahead = 1.0 if high is None or high.step > low.step else -1.0
            if trial.slope * ahead >= 0:
                high = low
            previous, low = low, trial

        if high is None:
            step = _clip(_cubic_minimum(previous, low), 2 * low.step, 10 * low.step, otherwise=4 * low.step)
            continue
        width = abs(high.step - low.step)
        if low is start and -width * start.slope < 0.1 * resolution:
            break  # the whole bracket lies within the rounding of the loss
        middle = 0.5 * (low.step + high.step)
        slow = width > 0.66 * widths[0]
        widths = [widths[1], width]
        if not high.finite:
            step = low.step + 0.2 * (high.step - low.step)
        elif slow:
            step = middle
        else:
            margin = 0.1 * width
            ends = sorted((low.step, high.step))
            step = _clip(_cubic_minimum(low, high), ends[0] + margin, ends[1] - margin, otherwise=middle)
        if step in (low.step, high.step):
            break  # no number is left between the ends
    return low if low.loss < start.loss else None


def _cubic_minimum(a: Trial, b: Trial) -> float:
    """Where the cubic with the values and slopes of both trials is smallest; NaN where it has no minimum."""
    d1 = a.slope + b.slope - 3 * (a.loss - b.loss) / (a.step - b.step)
    square = d1 * d1 - a.slope * b.slope
    if not 0 <= square < math.inf:
        return math.nan
    d2 = math.copysign(math.sqrt(square), b.step - a.step)
    denominator = b.slope - a.slope + 2 * d2
    return b.step - (b.step - a.step) * (b.slope + d2 - d1) / denominator if denominator else math.nan


def _clip(value: float, smallest: float, largest: float, *, otherwise: float) -> float:
    return min(max(value, smallest), largest) if math.isfinite(value) else otherwise
