"""Numbers that describe a pattern: the slope of its spectrum, its entropy, its roughness."""

from __future__ import annotations

import math

import torch
from torch import Tensor


def spectrum(field: Tensor) -> tuple[Tensor, Tensor]:
    """Wavenumbers 1, 2, ... (periods per shorter side) and the mean power |F|^2 / cells^2 on rings of width 1.

    Args:
        field: [H, W], periodic.
    """
    h, w = field.shape
    power = torch.fft.fft2(field.double()).abs() ** 2 / (h * w) ** 2
    side = min(h, w)
    ky, kx = (torch.fft.fftfreq(n, d=1 / side, dtype=torch.float64, device=field.device) for n in (h, w))
    ring = (ky[:, None] ** 2 + kx**2).sqrt().round().long().flatten()
    top = side // 2
    sums = torch.zeros(int(ring.max()) + 1, dtype=torch.float64, device=field.device).index_add_(
        0, ring, power.flatten()
    )
    counts = ring.bincount(minlength=len(sums))
    wavenumbers = torch.arange(1, top + 1, dtype=torch.float64)
    return wavenumbers, (sums / counts.clamp(min=1))[1 : top + 1].cpu()


def spectrum_slope(field: Tensor) -> float:
    """Exponent p of power ~ k^p, by least squares over log k; 0 for white noise, the more negative the smoother."""
    k, power = spectrum(field)
    if not bool((power > 0).all()) or len(k) < 2:
        return math.nan
    x, y = k.log(), power.log()
    x = x - x.mean()
    return float((x * y).sum() / (x * x).sum())


def entropy(field: Tensor) -> float:
    """Shannon entropy of the field as a distribution over cells, over its largest value ln(cells): 1 if uniform, 0 if
    all is in one cell. Negative values count as 0."""
    p = field.double().clamp(min=0).flatten()
    total = p.sum()
    if not total > 0 or p.numel() < 2:
        return math.nan
    p = p[p > 0] / total
    return float(-(p * p.log()).sum() / math.log(field.numel()))


def roughness(field: Tensor) -> float:
    """Standard deviation over mean."""
    f = field.double()
    return float(f.std(unbiased=False) / f.mean())
