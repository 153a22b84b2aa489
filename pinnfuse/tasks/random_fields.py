r"""Gaussian random fields with the covariance $\sigma^2 (-\Delta + \tau^2)^{-\alpha}$, mean zero.

On a basis of eigenfunctions of the Laplacian, normalised over the box, each coefficient is an independent normal number
of variance sigma^2 (lambda_k + tau^2)^(-alpha); the constant one is left out.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor


def generator_of(seed: int, index: int) -> torch.Generator:
    """The generator of one sample; it depends on nothing but the seed and the index of the sample."""
    generator = torch.Generator()
    generator.manual_seed(int(np.random.SeedSequence([seed, index]).generate_state(1, np.uint64)[0] >> 1))
    return generator


def periodic_field(
    generator: torch.Generator, shape: Sequence[int], variance: float, tau: float, alpha: float, length: float = 1.0
) -> Tensor:
    """One field `[*shape]`, float64, on a periodic box of side `length`; `variance` is sigma^2."""
    noise = torch.randn(*shape, generator=generator, dtype=torch.float64)
    squares = torch.zeros(1, dtype=torch.float64)
    for n in shape:
        k = 2 * math.pi / length * torch.fft.fftfreq(n, 1 / n, dtype=torch.float64)
        squares = squares.unsqueeze(-1) + k**2
    squares = squares.squeeze(0)
    factor = (variance * (squares + tau**2) ** -alpha).sqrt()
    factor.flatten()[0] = 0.0
    volume = length ** len(shape)
    return torch.fft.ifftn(torch.fft.fftn(noise) * factor).real * math.sqrt(noise.numel() / volume)


def neumann_field(
    generator: torch.Generator, at: Sequence[Tensor], variance: float, tau: float, alpha: float
) -> Tensor:
    """One field on the unit box with normal derivative 0 at its walls, at the coordinates `at`, 1-D tensors.

    As many cosines per axis as there are points.
    """
    counts = [len(x) for x in at]
    coefficients = torch.randn(*counts, generator=generator, dtype=torch.float64)
    squares = torch.zeros(1, dtype=torch.float64)
    for n in counts:
        squares = squares.unsqueeze(-1) + (math.pi * torch.arange(n, dtype=torch.float64)) ** 2
    coefficients = coefficients * (variance * (squares.squeeze(0) + tau**2) ** -alpha).sqrt()
    coefficients.flatten()[0] = 0.0
    field = coefficients
    for axis, x in enumerate(at):
        k = torch.arange(len(x), dtype=torch.float64)
        basis = torch.cos(math.pi * x.double()[:, None] * k) * torch.where(k == 0, 1.0, math.sqrt(2.0))
        field = torch.tensordot(basis, field, dims=([1], [axis])).movedim(0, axis)
    return field
