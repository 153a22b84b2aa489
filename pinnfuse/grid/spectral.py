r"""Fourier derivatives along periodic axes: exact for every mode that the grid holds.

A field of n points and period L = n h is the sum of modes $\exp(2\pi i k x / L)$; a derivative multiplies each by
$2\pi i k / L$. For odd derivatives the mode k = n/2 of an even n is set to zero: it has no sign. Plain torch (cuFFT
on a card), differentiable any number of times; half precision is computed in float32. The baseline of `pinnfuse bench
ops`.

Source: Trefethen, Spectral Methods in MATLAB (SIAM, 2000), chapter 3.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from pinnfuse.grid.grid import Grid, check_grid
from pinnfuse.grid.operators import _check_vector, _split


def derivative(u: Tensor, grid: Grid, axes: str | Sequence[str]) -> Tensor:
    """A partial derivative of `[..., *space]`, same shape: `axes` "x", "xx", "xy", ...

    Raises:
        ValueError: an axis that is not periodic, or an unknown one.
    """
    check_grid(grid, "spectral.derivative").check(u, "spectral.derivative")
    names = _split(axes, grid)
    orders = {k: names.count(axis) for k, axis in enumerate(grid.axes) if axis in names}
    _check_periodic(grid, "spectral.derivative", list(orders))
    dims = [k - grid.dimension for k in orders]
    modes = _transform(u, dims)
    for k, order in orders.items():
        modes = modes * _multiplier(u, grid, k, order, half=k - grid.dimension == dims[-1])
    return _back(modes, u, dims)


def laplacian(u: Tensor, grid: Grid) -> Tensor:
    """The sum of second derivatives of `[..., *space]`, same shape."""
    check_grid(grid, "spectral.laplacian").check(u, "spectral.laplacian")
    _check_periodic(grid, "spectral.laplacian", range(grid.dimension))
    dims = list(range(-grid.dimension, 0))
    modes = _transform(u, dims)
    return _back(modes * _laplacian_symbol(u, grid), u, dims)


def gradient(u: Tensor, grid: Grid) -> Tensor:
    """First derivatives: `[..., *space]` to `[..., d, *space]`; one transform there, d back."""
    check_grid(grid, "spectral.gradient").check(u, "spectral.gradient")
    d = grid.dimension
    _check_periodic(grid, "spectral.gradient", range(d))
    dims = list(range(-d, 0))
    modes = _transform(u, dims)
    parts = [_back(modes * _multiplier(u, grid, k, 1, half=k == d - 1), u, dims) for k in range(d)]
    return torch.stack(parts, dim=-d - 1)


def divergence(v: Tensor, grid: Grid) -> Tensor:
    """Sum of first derivatives of components: `[..., d, *space]` to `[..., *space]`."""
    _check_vector(v, check_grid(grid, "spectral.divergence"), "spectral.divergence")
    d = grid.dimension
    _check_periodic(grid, "spectral.divergence", range(d))
    dims = list(range(-d, 0))
    modes = _transform(v, dims)
    total = sum(modes.select(-d - 1, k) * _multiplier(v, grid, k, 1, half=k == d - 1) for k in range(d))
    return _back(torch.as_tensor(total), v.select(-d - 1, 0), dims)


def biharmonic(u: Tensor, grid: Grid) -> Tensor:
    """The Laplacian's square of `[..., *space]`, same shape."""
    check_grid(grid, "spectral.biharmonic").check(u, "spectral.biharmonic")
    _check_periodic(grid, "spectral.biharmonic", range(grid.dimension))
    dims = list(range(-grid.dimension, 0))
    return _back(_transform(u, dims) * _laplacian_symbol(u, grid) ** 2, u, dims)


def low_pass(u: Tensor, waves: float) -> Tensor:
    """The part of periodic fields [..., H, W] in waves of at most `waves` periods per shorter side."""
    modes, dims = torch.fft.rfft2(u), u.shape[-2:]
    side = min(dims)
    ky = torch.fft.fftfreq(dims[0], 1 / side, device=u.device)[:, None]
    kx = torch.fft.rfftfreq(dims[1], 1 / side, device=u.device)
    return torch.fft.irfft2(modes * ((ky**2 + kx**2).sqrt() <= waves + 1e-6), s=dims)


def _check_periodic(grid: Grid, caller: str, axes: Sequence[int]) -> None:
    for k in axes:
        if not grid.periodic[grid.axes[k]]:
            raise ValueError(
                f"{caller}: axis {grid.axes[k]!r} must be periodic; its boundary is {grid.sides[grid.axes[k]]}. Use "
                "the differences of pinnfuse.grid."
            )


def _real(u: Tensor) -> Tensor:
    return u.float() if u.dtype in (torch.float16, torch.bfloat16) else u


def _transform(u: Tensor, dims: Sequence[int]) -> Tensor:
    return torch.fft.rfftn(_real(u), dim=list(dims))


def _back(modes: Tensor, u: Tensor, dims: Sequence[int]) -> Tensor:
    return torch.fft.irfftn(modes, s=[u.shape[k] for k in dims], dim=list(dims)).to(u.dtype)


def _wave_numbers(u: Tensor, grid: Grid, axis: int, half: bool) -> Tensor:
    n, real = u.shape[axis - grid.dimension], _real(u)
    frequencies = torch.fft.rfftfreq if half else torch.fft.fftfreq
    k = frequencies(n, grid.spacing[axis], dtype=torch.float64, device=u.device)
    return (2 * torch.pi * k).to(real.dtype).reshape(-1, *[1] * (grid.dimension - 1 - axis))


def _multiplier(u: Tensor, grid: Grid, axis: int, order: int, half: bool) -> Tensor:
    k = _wave_numbers(u, grid, axis, half)
    n = u.shape[axis - grid.dimension]
    if order % 2 and n % 2 == 0:
        k = k * (torch.arange(len(k), device=k.device) != n // 2).reshape(k.shape)
    return (1j**order) * k**order if order % 2 else ((-1) ** (order // 2)) * k**order


def _laplacian_symbol(u: Tensor, grid: Grid) -> Tensor:
    parts = [_wave_numbers(u, grid, k, half=k == grid.dimension - 1) ** 2 for k in range(grid.dimension)]
    return -torch.as_tensor(sum(parts))
