"""Decay and Phase: values at chosen steps, mistakes."""

import pytest

from pinnfuse.optimizers import Decay, Phase, phase_at, total_steps


def test_decay_factors():
    assert [Decay().factor(k, 10) for k in (0, 5, 9)] == [1.0, 1.0, 1.0]
    exponential = Decay("exponential", rate=0.5, every=100)
    assert [exponential.factor(k, 1000) for k in (0, 100, 300)] == [1.0, 0.5, 0.125]
    assert exponential.factor(50, 1000) == pytest.approx(0.5**0.5)
    assert Decay("exponential", rate=0.5, every=1, floor=0.1).factor(1000, 2000) == 0.1
    cosine = Decay("cosine", floor=0.2)
    assert [cosine.factor(k, 100) for k in (0, 50, 100, 500)] == pytest.approx([1.0, 0.6, 0.2, 0.2])
    warm = Decay(warmup=4)
    assert [warm.factor(k, 100) for k in range(6)] == [0.25, 0.5, 0.75, 1.0, 1.0, 1.0]
    assert Decay("cosine", warmup=2).factor(0, 100) == 0.5


def test_phase_at():
    phases = [Phase("adam", 3), Phase("lbfgs", 2)]
    assert total_steps(phases) == 5
    assert [phase_at(phases, k) for k in range(7)] == [(0, 0), (0, 1), (0, 2), (1, 0), (1, 1), (2, 0), (2, 1)]


@pytest.mark.parametrize(
    "make, message",
    [
        (lambda: Decay("exponentiel"), "Did you mean 'exponential'"),
        (lambda: Decay("exponential", rate=1.5), r"`rate` must be in \(0, 1\]; got 1.5"),
        (lambda: Decay(every=0), "`every`"),
        (lambda: Decay(warmup=-1), "`warmup`"),
        (lambda: Decay(floor=2.0), "`floor`"),
        (lambda: Phase("adam", 0), "`steps` must be a whole number >= 1; got 0"),
        (lambda: Phase("adam", 1.5), "`steps`"),
    ],
)
def test_mistakes(make, message):
    with pytest.raises(ValueError, match=message):
        make()
