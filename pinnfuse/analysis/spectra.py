"""Energy over wavenumbers of periodic fields."""

from __future__ import annotations

import torch
from torch import Tensor


def energy_spectrum(fields: Tensor, dimension: int) -> tuple[Tensor, Tensor]:
    """Wavenumbers 1, 2, ... (periods per shorter side) and the mean energy in rings of width 1 around them.

    The sum over all wavenumbers, that of the mean included, is half the mean square (Parseval).

    Args:
        fields: `[..., *space]`, periodic on a box of equal sides.
        dimension: how many of the last dimensions are space, 1 to 3.

    Returns:
        `[K]` and `[K]`, the mean over all leading dimensions, float64 on the CPU.
    """
    space = fields.shape[-dimension:]
    dims = tuple(range(-dimension, 0))
    power = 0.5 * (torch.fft.fftn(fields.double(), dim=dims).abs() / space.numel()).square()
    power = power.reshape(-1, *space).mean(0).cpu()
    side = min(space)
    squares = torch.zeros(space, dtype=torch.float64)
    for axis, n in enumerate(space):
        k = torch.fft.fftfreq(n, 1 / n, dtype=torch.float64)
        squares += k.reshape([-1 if j == axis else 1 for j in range(dimension)]) ** 2
    ring = squares.sqrt().round().long().flatten()
    sums = torch.zeros(int(ring.max()) + 1, dtype=torch.float64).index_add_(0, ring, power.flatten())
    top = side // 2
    return torch.arange(1, top + 1, dtype=torch.float64), sums[1 : top + 1]
