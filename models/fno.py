r"""Fourier neural operator in one to three dimensions.

    v_{l+1} = v_l + M_l( gelu( K_l v_l + W_l v_l ) ),     (K v)^(k) = R_k v^(k) for the lowest modes k, 0 for others

W_l and the two-layer M_l act on the channels of each point. The grid may have any size that holds the modes, another
one than in training, too. Axes with walls are padded with zeros, so that the transform does not join their ends.

Source: Li et al., Fourier neural operator for parametric partial differential equations, ICLR 2021.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import product
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional


class SpectralConvolution(nn.Module):
    """Multiplies the lowest modes of every axis by a matrix over channels, `[B, C, *space]` -> the same shape.

    Transforms go axis by axis: all but the last one see the kept modes only. A real transform of several axes back
    would also be undefined here, since the product of a matrix and the modes at k_last = 0 is no spectrum of a real
    function; cuFFT's answer is not that of other libraries.

    Args:
        width: channels.
        dimension: 1, 2 or 3.
        modes: kept per axis, of each sign.
    """

    def __init__(self, width: int, dimension: int, modes: int):
        super().__init__()
        self.modes, self.dimension = modes, dimension
        corners = 2 ** (dimension - 1)  # signs of all axes but the last, whose negative modes are conjugates
        shape = (corners, width, width, *(modes,) * dimension, 2)
        self.weight = nn.Parameter(torch.randn(shape) / math.sqrt(2 * width))  # keeps the variance of kept modes

    def forward(self, v: Tensor) -> Tensor:
        *leading, last = v.shape[-self.dimension :]
        dims = tuple(range(-self.dimension, -1))
        half = min(self.modes, last // 2 + 1)
        spectrum = torch.fft.rfft(v, norm="ortho")[..., :half]
        if dims:
            spectrum = torch.fft.fftn(spectrum, dim=dims, norm="ortho")
        out = torch.zeros_like(spectrum)
        for weight, low in zip(torch.view_as_complex(self.weight), self._corners(leading), strict=True):
            part: Any = (..., *low, slice(None))
            few: Any = (..., *(slice(0, s.stop - s.start) for s in low), slice(0, half))
            out[part] = torch.einsum("bi...,io...->bo...", spectrum[part], weight[few])
        if dims:
            out = torch.fft.ifftn(out, dim=dims, norm="ortho")
        # modes of a real function that have no imaginary part; not every library ignores what is there
        imaginary = torch.view_as_real(out)[..., 1]
        imaginary[..., 0].zero_()
        if 2 * (half - 1) == last:
            imaginary[..., -1].zero_()
        return torch.fft.irfft(out, n=last, norm="ortho")

    def _corners(self, leading: Sequence[int]) -> list[tuple[slice, ...]]:
        """Slices of the low modes of all axes but the last, positive or negative; a small grid has fewer."""
        axes = []
        for n in leading:
            m = min(self.modes, n // 2)
            axes.append((slice(0, m), slice(n - m, n)))
        return list(product(*axes))


class FNO(nn.Module):
    """Fourier neural operator, `[B, in_channels, *space]` -> `[B, out_channels, *space]`.

    Args:
        in_channels, out_channels: of the fields.
        dimension: 1, 2 or 3.
        periodic: one entry per axis; others are padded with zeros by an eighth of their points.
        modes: Fourier modes kept per axis, >= 1.
        width: channels inside.
        depth: Fourier layers.
    """

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        dimension: int,
        periodic: Sequence[bool],
        modes: int = 12,
        width: int = 32,
        depth: int = 4,
    ):
        super().__init__()
        if min(modes, width, depth) < 1 or not 1 <= dimension <= 3:
            raise ValueError(
                f"FNO: `modes`, `width`, `depth` must be at least 1, `dimension` 1 to 3; got {modes}, {width}, "
                f"{depth}, {dimension}."
            )
        self.periodic = tuple(periodic)
        point = (nn.Conv1d, nn.Conv2d, nn.Conv3d)[dimension - 1]
        self.lift = nn.Sequential(point(in_channels, 2 * width, 1), nn.GELU(), point(2 * width, width, 1))
        self.spectral = nn.ModuleList(SpectralConvolution(width, dimension, modes) for _ in range(depth))
        self.local = nn.ModuleList(point(width, width, 1) for _ in range(depth))
        self.mix = nn.ModuleList(
            nn.Sequential(point(width, width, 1), nn.GELU(), point(width, width, 1)) for _ in range(depth)
        )
        self.project = nn.Sequential(point(width, 2 * width, 1), nn.GELU(), point(2 * width, out_channels, 1))

    def forward(self, x: Tensor) -> Tensor:
        size = x.shape[2:]
        v = self.lift(x)
        pads = [0 if p else max(1, n // 8) for n, p in zip(size, self.periodic, strict=True)]
        if any(pads):
            v = functional.pad(v, [amount for pad in reversed(pads) for amount in (0, pad)])
        for spectral, local, mix in zip(self.spectral, self.local, self.mix, strict=True):
            v = v + mix(functional.gelu(spectral(v) + local(v)))
        if any(pads):
            v = v[(..., *(slice(0, n) for n in size))]
        return self.project(v)
