"""The chemotaxis equation: from its own solutions, from walkers whose mobility is known; its half for the field where
agents stand still."""

import math

import pytest
import torch

from pinnfuse.analysis import Chemotaxis, fit_chemotaxis
from pinnfuse.grid import Grid, laplacian
from pinnfuse.simulation import Physarum, solve
from pinnfuse.simulation.physarum.continuum import density, expected, keller_segel_pde, rollout, smooth_start, torus

TRUE = {"diffusion": 0.6, "decay": 0.2, "production": 0.5, "mobility": 0.9, "attraction": 0.3, "saturation": 0.5}


def smooth(n: int = 24) -> torch.Tensor:
    x = torch.arange(n, dtype=torch.float64) * (2 * torch.pi / n)
    a, b = torch.sin(x)[:, None] * torch.cos(2 * x), torch.cos(x)[:, None] + torch.sin(x)
    return torch.stack([2 + 0.5 * a + 0.3 * b, 1 + 0.2 * b - 0.4 * a])[None]


def colony(seed: int, **options) -> torch.Tensor:
    """[T, 2, 16, 16], five agents a cell that begin with three waves across."""
    maps = {"spawn_weights": smooth_start((64, 64), 3, seed), "field": 45 * smooth_start((64, 64), 3, seed + 100)}
    return rollout(Physarum((64, 64), 20_480, spawn="image", seed=seed, **maps, **options).run(2), 9, 2, 4)


def test_finds_the_coefficients_of_its_own_solutions() -> None:
    """To below 1 %, and to the error of the midpoint rule, which falls with the square of the step."""
    errors = []
    for steps in (4, 8):
        step = 0.4 / steps
        levels = solve(keller_segel_pde(TRUE), smooth(), torus(0.5), [step * k for k in range(steps + 1)])
        fit = fit_chemotaxis(levels, 0.5, step, saturation=0.5)
        errors.append(max(abs(fit.coefficients[n] / TRUE[n] - 1) for n in TRUE))
        assert min(fit.explained.values()) > 0.9999
    assert errors[1] < 0.01 and errors[0] / errors[1] > 3.0
    free = fit_chemotaxis(levels, 0.5, step)
    assert 0.2 < free.coefficients["saturation"] < 1.0  # the nearest of those tried
    again = free.predict(smooth(), 0.5, [0, 0.4])[:, -1]
    assert float((again - levels[:, -1]).norm() / (levels[:, 0] - levels[:, -1]).norm()) < 0.05


@pytest.mark.parametrize("jitter", [90.0, 180.0])
def test_finds_the_mobility_of_random_walkers(jitter) -> None:
    """v^2/4 (1 + g)/(1 - g) for a heading that keeps the share g = sin(a)/a of its direction; agents that smell nothing
    are not attracted."""
    levels = torch.stack([colony(seed, jitter=jitter, attraction=[[0.0]]) for seed in (0, 1)])
    fit = fit_chemotaxis(levels, 4.0, 2.0, waves=3, saturation=1.0)
    a = math.radians(jitter)
    g = math.sin(a) / a
    assert fit.coefficients["mobility"] == pytest.approx((1 + g) / (1 - g) / 4, rel=0.15)
    assert abs(fit.coefficients["attraction"]) < 0.02
    assert expected(Physarum((64, 64), 100, jitter=jitter))["mobility"] == pytest.approx((1 + g) / (1 - g) / 4)


def test_a_steady_state_does_not_hide_the_mobility() -> None:
    """Walkers spread evenly, so that there is counting noise only: least squares without instruments gives -0.0007."""
    options = {"jitter": 180.0, "attraction": [[0.0]]}
    runs = [rollout(Physarum((48, 48), 20_000, seed=k, **options).run(2), 17, 1, 1) for k in (0, 1)]
    fit = fit_chemotaxis(torch.stack(runs), 1.0, 1.0, waves=4, saturation=1.0)
    assert 0.15 < fit.coefficients["mobility"] < 0.45  # 0.25


def test_agents_that_smell_are_attracted() -> None:
    levels = torch.stack([colony(seed, jitter=90.0) for seed in (0, 1)])
    fit = fit_chemotaxis(levels, 4.0, 2.0, waves=3)
    assert fit.explained["agents"] > 0.7 and fit.explained["field"] > 0.9
    assert fit.explained["agents"] > 0.1 + fit_chemotaxis(levels, 4.0, 2.0, waves=3, saturation=1e3).explained["agents"]
    assert 0.3 < fit.coefficients["attraction"] < 1.0  # cells a step, and the speed of an agent is 1


def test_agents_that_stand_still_feed_the_field_as_expected() -> None:
    """A mode that the 3 x 3 mean multiplies by 1 - s grows by g = keep (1 - s) a step, c' = g (c + d rho), which at the
    middle of the step is the rate -2 (1 - g) / (1 + g) c + 2 g / (1 + g) d rho. To first order in s this is the
    equation, and half of the diffusion acts on the fresh deposits too."""
    counts = (100 * smooth()[0, 0]).round().long()
    cells = torch.arange(24 * 24).repeat_interleave(counts.flatten())
    places = torch.stack([cells % 24, cells // 24], dim=1) + 0.5
    sim = Physarum((24, 24), len(cells), positions=places, speed=0.0, deposit=0.02)
    levels = rollout(sim, 12, 1, 1)
    assert torch.equal(levels[-1, 0], counts.double())
    truth = expected(sim)
    h = Grid("y x", 1.0, boundary="periodic")
    rho = levels[0, 0]
    middle = 0.5 * (levels[1:, 1] + levels[:-1, 1])
    rate = levels[1:, 1] - levels[:-1, 1]
    inside = [laplacian(middle, h), -middle, rho.expand_as(middle), laplacian(rho, h).expand_as(middle)]
    found = torch.linalg.lstsq(torch.stack(inside).flatten(1).T, rate.flatten()[:, None]).solution[:, 0]
    expectation = [truth[n] for n in ("diffusion", "decay", "production")] + [0.02 / 6]
    assert found[:3].tolist() == pytest.approx(expectation[:3], rel=0.03)
    assert float(found[3]) == pytest.approx(expectation[3], rel=0.1)


def test_rollouts_are_means_over_blocks() -> None:
    sim = Physarum((8, 12), 50, sensor_distance=3.0, seed=1)
    levels = rollout(sim, 3, 2, 4)
    assert levels.shape == (3, 2, 2, 3) and sim.steps_done == 4
    assert torch.allclose(levels[-1, 0, 1, 2], density(sim)[4:, 8:].double().mean())
    assert torch.allclose(levels[-1, 1, 0, 1], sim.field[0, :4, 4:8].double().mean())


def test_wrong_calls_say_what_to_do() -> None:
    with pytest.raises(ValueError, match="multiples of `coarse`"):
        rollout(Physarum((8, 10), 5, sensor_distance=2.0), 2, 1, 4)
    with pytest.raises(ValueError, match="one species"):
        rollout(Physarum((8, 8), 5, species=2, sensor_distance=2.0), 2, 1, 4)
    with pytest.raises(ValueError, match=r"must be \[B, T >= 2, 2, H, W\]; got \[2, 2\]"):
        fit_chemotaxis(torch.ones(2, 2), 1.0, 1.0)
    with pytest.raises(ValueError, match="nothing to learn"):
        fit_chemotaxis(torch.ones(1, 3, 2, 4, 4), 1.0, 1.0)
    levels = torch.ones(1, 3, 2, 8, 8, dtype=torch.float64) * torch.arange(3)[:, None, None, None]
    with pytest.raises(ValueError, match="do not determine mobility, attraction"):
        fit_chemotaxis(levels, 1.0, 1.0)
    negative = Chemotaxis(TRUE | {"mobility": -1.0}, {})
    with pytest.raises(ValueError, match="mobility and diffusion must be >= 0"):
        negative.predict(smooth(), 0.5, [0.0, 1.0])
    with pytest.raises(ValueError, match="one species and 0 < decay < 1"):
        expected(Physarum((8, 8), 5, decay=0.0, sensor_distance=2.0))
