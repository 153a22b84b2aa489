import pytest
import torch

from pinnfuse.analysis import energy_spectrum


@pytest.mark.parametrize("dimension", [1, 2, 3])
def test_a_wave_has_its_energy_at_its_wavenumber(dimension):
    x = 2 * torch.pi * torch.arange(12, dtype=torch.float64) / 12
    field = 3 * torch.cos(2 * x)
    for _ in range(dimension - 1):
        field = field[..., None].expand(*field.shape, 12)
    k, energy = energy_spectrum(field[None].float(), dimension)
    assert k.tolist() == [1, 2, 3, 4, 5, 6]
    assert energy[1].item() == pytest.approx(9 / 4, rel=1e-6)  # half of the mean square 9/2
    assert float(energy.sum()) == pytest.approx(9 / 4, rel=1e-6)


def test_energy_adds_up_to_half_the_mean_square():
    fields = torch.randn(3, 4, 16, 16, dtype=torch.float64)
    k = torch.fft.fftfreq(16, 1 / 16)
    ring = (k[:, None] ** 2 + k**2).sqrt().round()
    kept = torch.fft.ifft2(torch.fft.fft2(fields) * ((ring >= 1) & (ring <= 8))).real
    _, energy = energy_spectrum(fields, 2)
    assert float(energy.sum()) == pytest.approx(0.5 * float(kept.square().mean()), rel=1e-9)
