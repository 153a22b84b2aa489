"""Gray-Scott: its stable state, a decay known in closed form, and patterns that grow."""

import math

import pytest
import torch

from pinnfuse import Grid
from pinnfuse.simulation.gray_scott import REGIMES, gray_scott, patches


def square(n: int, side: float = 1.0) -> Grid:
    return Grid("x y", side / n, boundary="periodic")


def test_the_fed_state_stays():
    u0 = torch.stack([torch.ones(8, 8), torch.zeros(8, 8)])[None].double()
    assert torch.equal(gray_scott(u0, square(8), [0.0, 50.0])[0, 1], u0[0])


def test_without_v_the_food_comes_back_exponentially():
    u0 = torch.stack([torch.full((8, 8), 0.5), torch.zeros(8, 8)])[None].double()
    found = gray_scott(u0, square(8), [0.0, 10.0], feed=0.03)[0, 1, 0]
    assert torch.allclose(found, torch.full_like(found, 1 - 0.5 * math.exp(-0.3)), atol=1e-4)


def test_a_pattern_grows_and_stays_bounded():
    grid = square(48, side=0.6)
    feed, kill = REGIMES["maze"]
    u0 = patches(grid, (48, 48), count=3).double()
    found = gray_scott(u0, grid, [0.0, 100.0, 300.0], feed=feed, kill=kill)
    area = (found[0, :, 1] > 0.15).double().mean((-2, -1))
    assert area[0] < 0.05 < 0.15 < area[1] < area[2]
    assert float(found.min()) > -1e-3
    assert float(found.max()) < 1.1


def test_samples_with_their_own_rates_are_singles():
    grid = square(12)
    u0 = patches(grid, (12, 12), batch=2, seed=3).double()
    feed, kill = (torch.tensor(r, dtype=torch.float64) for r in zip(REGIMES["spots"], REGIMES["maze"], strict=True))
    both = gray_scott(u0, grid, [0.0, 5.0], feed=feed, kill=kill)
    for k, (f, c) in enumerate((REGIMES["spots"], REGIMES["maze"])):
        assert torch.allclose(both[k], gray_scott(u0[k : k + 1], grid, [0.0, 5.0], feed=f, kill=c)[0], atol=1e-9)


def test_starts_are_reproducible_and_wrap_around():
    grid = square(64)
    one = patches(grid, (64, 64), batch=3, count=1, radius=0.2, noise=0.0)
    assert torch.equal(one, patches(grid, (64, 64), batch=3, count=1, radius=0.2, noise=0.0))
    share = (one[:, 1] > 0).double().mean((-2, -1))
    assert torch.allclose(share, torch.full_like(share, math.pi * 0.04), rtol=0.03)


def test_negative_rates_are_refused():
    with pytest.raises(ValueError, match="`kill` must be >= 0"):
        gray_scott(torch.zeros(1, 2, 8, 8), square(8), [0.0, 1.0], kill=-0.1)
