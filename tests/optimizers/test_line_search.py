"""The line search on functions of one variable: what it accepts, and what it never accepts."""

import math
from collections.abc import Callable

import pytest
import torch

from pinnfuse.optimizers.line_search import Trial, strong_wolfe

OPTIONS = {"c1": 1e-4, "c2": 0.9, "max_evaluations": 25, "noise": 2.2e-16}


def search(
    f: Callable[[torch.Tensor], torch.Tensor], step: float = 1.0, **options: float
) -> tuple[Trial, Trial | None, int]:
    """Start, result and number of evaluations."""
    calls = 0

    def evaluate(t: float) -> Trial:
        nonlocal calls
        calls += 1
        x = torch.tensor(t, dtype=torch.float64, requires_grad=True)
        y = f(x)
        (slope,) = torch.autograd.grad(y, x)
        return Trial(t, y.item(), slope.item(), slope)

    start = evaluate(0.0)
    return start, strong_wolfe(evaluate, start, step, **{**OPTIONS, **options}), calls - 1


FUNCTIONS = {
    "parabola": lambda t: (t - 1) ** 2,
    "far minimum": lambda t: (t - 1000) ** 2,
    "near minimum": lambda t: (t - 1e-6) ** 2,
    "quartic": lambda t: (t - 3) ** 4 + t,
    "wavy": lambda t: -torch.sin(t) + 0.01 * t**2 + 0.03 * torch.sin(20 * t),
    "exponential wall": lambda t: torch.exp(20 * (t - 0.1)) - 50 * t,
    # More and Thuente, ACM TOMS 20 (1994), functions 1 and 2
    "more-thuente 1": lambda t: -t / (t**2 + 2),
    "more-thuente 2": lambda t: (t + 0.004) ** 5 - 2 * (t + 0.004) ** 4,
}


@pytest.mark.parametrize("c2", [0.9, 0.1, 1e-3])
@pytest.mark.parametrize("step", [1e-3, 1.0, 1e3])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_strong_wolfe_conditions_hold(name, step, c2):
    start, found, calls = search(FUNCTIONS[name], step, c2=c2)
    assert found is not None
    assert found.loss <= start.loss + 1e-4 * found.step * start.slope
    # comparing values, all the search can do near a minimum, sees slopes down to sqrt(2 eps f f''), here 1e-7
    assert abs(found.slope) <= max(-c2 * start.slope, 1e-7)
    assert calls <= 15 or c2 < 0.1


def test_a_parabola_is_solved_exactly_by_the_second_trial():
    _, found, calls = search(lambda t: 3 * (t - 0.3) ** 2, c2=1e-3)
    assert found is not None and found.step == pytest.approx(0.3, rel=1e-12)
    assert calls == 2


@pytest.mark.parametrize("bad", [math.nan, math.inf, -math.inf])
def test_a_region_without_finite_values_is_left(bad):
    start, found, _ = search(lambda t: (t - 0.01) ** 2 if t < 0.05 else t * bad, c2=0.1)
    assert found is not None and found.finite
    assert found.step < 0.05 and found.loss < start.loss


def test_a_finite_loss_with_nan_slope_is_not_accepted():
    # sqrt has slope Inf at 0, times the 0 of the inner function: NaN, as in a norm at the origin
    start, found, _ = search(lambda t: (t - 1) ** 2 + torch.sqrt((t - 1.0) ** 2 * 0))
    assert found is None or (found.finite and found.loss < start.loss)


def test_no_decrease_gives_none():
    # the slope promises a decrease that the function, rounded as if in float32, does not show
    _, found, _ = search(lambda t: 1 + (t - t.detach()) * -1e-9, noise=1e-7)
    assert found is None
    _, found, calls = search(lambda t: t.abs().sqrt() * 2 + (t - t.detach()) * -1.0 if t != 0 else -t)
    assert found is None and calls <= OPTIONS["max_evaluations"]


def test_out_of_evaluations_gives_the_best_decrease_found():
    start, found, calls = search(FUNCTIONS["wavy"], 1e-3, c2=1e-3, max_evaluations=2)
    assert calls == 2
    assert found is not None and found.loss < start.loss
