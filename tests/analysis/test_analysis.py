"""Exponents, sensitivities and fits of systems whose answers are known."""

import math

import pytest
import torch
from scipy.stats import special_ortho_group

from pinnfuse.analysis import (
    average_sensitivity,
    entropy,
    fit_scaling,
    growth_rate,
    largest_lyapunov,
    linear_physarum,
    roughness,
    spectrum,
    spectrum_slope,
)


def test_the_logistic_map_has_ln_2() -> None:
    start = torch.rand(400, 1, dtype=torch.float64) * 0.8 + 0.1
    found = largest_lyapunov(lambda x: 4 * x * (1 - x), start, 400, warm_up=50, size=1e-9)
    assert found == pytest.approx(math.log(2), abs=3e-3)


@pytest.mark.parametrize("every", [1, 5])
def test_a_linear_map_has_the_log_of_its_spectral_radius(every) -> None:
    q = torch.from_numpy(special_ortho_group(4, seed=0).rvs())
    matrix = q @ torch.diag(torch.tensor([1.3, 0.9, -0.5, 0.2], dtype=torch.float64)) @ q.T
    start = torch.zeros(2, 4, dtype=torch.float64)  # elsewhere the state outgrows its twin's distance
    found = largest_lyapunov(lambda x: x @ matrix.T, start, 60, warm_up=100, every=every, size=1e-6)
    assert found == pytest.approx(math.log(1.3), abs=1e-6)


def test_growth_rate_of_an_exponential_that_saturates() -> None:
    d = 1e-6 * torch.exp(0.2 * torch.arange(100.0))
    assert growth_rate(d.clamp(max=1.0)) == pytest.approx(0.2, rel=1e-3)
    with pytest.raises(ValueError, match="three positive"):
        growth_rate(torch.zeros(5))


@pytest.mark.parametrize("method", ["jvp", "difference"])
def test_average_sensitivity_is_the_mean_column_norm(method) -> None:
    x = torch.randn(6, dtype=torch.float64)
    matrix = torch.randn(5, 6, dtype=torch.float64)

    def f(v):
        return torch.tanh(matrix @ v)

    jacobian = torch.autograd.functional.jacobian(f, x)
    assert average_sensitivity(f, x, method=method) == pytest.approx(float(jacobian.norm(dim=0).mean()), rel=1e-7)
    some = average_sensitivity(f, x, columns=3, method=method)
    assert float(jacobian.norm(dim=0).min()) - 1e-6 <= some <= float(jacobian.norm(dim=0).max()) + 1e-6


def test_feedback_against_damping_for_ten_thousand_cases() -> None:
    cases = torch.rand(4, 10_000, dtype=torch.float64) * torch.tensor([[1.0], [5.0], [1.0], [5.0]])
    found = linear_physarum(*cases)
    largest = torch.linalg.eigvals(found.matrix).real.amax(dim=-1)
    assert torch.allclose(found.rate, largest, atol=1e-12)
    assert torch.equal(found.grows, largest > 0)
    assert 0.3 < float(found.grows.double().mean()) < 0.7  # both happen


def test_a_sweep_is_a_call() -> None:
    alpha, gamma = torch.linspace(0.1, 2, 5)[:, None], torch.linspace(0.1, 2, 7)
    found = linear_physarum(alpha, 1.0, gamma, 0.5)
    assert torch.equal(found.grows, alpha.double() > 0.5 * gamma.double())
    with pytest.raises(ValueError, match="`gamma` must be"):
        linear_physarum(1.0, 1.0, -1.0, 1.0)


def test_the_fit_finds_both_regimes() -> None:
    sizes = [2.0**k for k in range(8, 25)]
    noise = [1 + 0.02 * (-1) ** k for k in range(len(sizes))]
    fit = fit_scaling(sizes, [(5e-6 + 2e-11 * n) * f for n, f in zip(sizes, noise, strict=True)])
    assert fit.fixed == pytest.approx(5e-6, rel=0.02) and fit.each == pytest.approx(2e-11, rel=0.02)
    assert fit.crossover == pytest.approx(250_000, rel=0.04) and fit.error < 0.03
    regimes = [fit.regime(n) for n in (1e4, 2.5e5, 1e7)]
    assert regimes == ["launch-bound", "between", "bandwidth-bound"]
    assert fit_scaling([1, 2, 3], [1e-3, 1e-3, 1e-3]).each == pytest.approx(0, abs=1e-18)
    with pytest.raises(ValueError, match="three sizes"):
        fit_scaling([1, 2], [1, 2])


def test_spectra() -> None:
    x = torch.arange(64, dtype=torch.float64) * (2 * math.pi / 64)
    k, power = spectrum(torch.cos(5 * x)[None, :] + torch.zeros(64, 1))
    ring = (
        (torch.fft.fftfreq(64, 1 / 64)[:, None] ** 2 + torch.fft.fftfreq(64, 1 / 64) ** 2).sqrt().round() == 5
    ).sum()
    assert float(k[power.argmax()]) == 5 and float(power[4]) == pytest.approx(
        0.5 / int(ring)
    )  # two of the ring's modes
    generator = torch.Generator().manual_seed(0)
    white = torch.randn(128, 128, generator=generator, dtype=torch.float64)
    assert abs(spectrum_slope(white)) < 0.15
    f = torch.fft.fft2(white)
    radius = (torch.fft.fftfreq(128, 1 / 128)[:, None] ** 2 + torch.fft.fftfreq(128, 1 / 128) ** 2).sqrt().clamp(min=1)
    assert spectrum_slope(torch.fft.ifft2(f / radius).real) == pytest.approx(-2, abs=0.2)


def test_entropy_and_roughness() -> None:
    uniform, point = torch.ones(8, 8), torch.zeros(8, 8)
    point[3, 4] = 5.0
    assert entropy(uniform) == pytest.approx(1) and entropy(point) == pytest.approx(0)
    assert roughness(uniform) == 0 and roughness(point) == pytest.approx(math.sqrt(63))
    assert math.isnan(entropy(torch.zeros(4, 4)))
