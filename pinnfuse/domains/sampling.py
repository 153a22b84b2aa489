"""Points of the unit cube, drawn on the device from a `torch.Generator`: uniform, Latin hypercube, Sobol, grid.

All randomness comes from the generator, so the same generator state gives the same points, and a checkpointed state
continues the same sequence. Nothing here copies from the device to the host.
"""

from __future__ import annotations

import functools
from collections.abc import Callable

import torch
from torch import Tensor

_BITS = 30  # of a Sobol number, as in torch.quasirandom


def _uniform(n: int, dims: int, generator: torch.Generator | None, device: torch.device, dtype: torch.dtype) -> Tensor:
    return torch.rand(n, dims, generator=generator, device=device, dtype=dtype)


def _latin(n: int, dims: int, generator: torch.Generator | None, device: torch.device, dtype: torch.dtype) -> Tensor:
    """One point in each of n equal slabs of every axis (McKay, Beckman & Conover, 1979)."""
    order = torch.rand(n, dims, generator=generator, device=device, dtype=dtype).argsort(dim=0)
    offset = torch.rand(n, dims, generator=generator, device=device, dtype=dtype)
    return (order.to(dtype) + offset) / n


@functools.lru_cache(maxsize=64)
def _direction_bits(dims: int, device: torch.device) -> Tensor:
    """[dims, 30 numbers, 30 bits, first bit highest] direction numbers of the Sobol sequence, 0.0 or 1.0."""
    numbers = torch.quasirandom.SobolEngine(dims).sobolstate.to(torch.int64)
    shifts = torch.arange(_BITS - 1, -1, -1)
    return ((numbers[..., None] >> shifts) & 1).to(device=device, dtype=torch.float32)


def _sobol(n: int, dims: int, generator: torch.Generator | None, device: torch.device, dtype: torch.dtype) -> Tensor:
    """Sobol points with a fresh linear matrix scramble and digital shift (Matousek, 1998) at each call.

    Both keep the net property, so a power of two is the natural n. The scramble is drawn on the device;
    `torch.quasirandom` scrambles on the host with a seed of its own, and so cannot follow a generator.
    """
    lower = torch.randint(0, 2, (dims, _BITS, _BITS), generator=generator, device=device).tril(-1).float()
    scramble = lower + torch.eye(_BITS, device=device)
    bits = (_direction_bits(dims, device) @ scramble.mT).round().to(torch.int64) & 1
    powers = 1 << torch.arange(_BITS - 1, -1, -1, device=device)
    numbers = (bits * powers).sum(-1)  # [dims, 30]
    value = torch.randint(0, 1 << _BITS, (dims,), generator=generator, device=device).expand(n, dims)
    index = torch.arange(n, device=device)
    gray = index ^ (index >> 1)
    for bit in range(max(n - 1, 1).bit_length()):
        value = value ^ (((gray >> bit) & 1)[:, None] * numbers[:, bit])
    return (value.to(dtype) + 0.5) / (1 << _BITS)


def _grid(n: int, dims: int, generator: torch.Generator | None, device: torch.device, dtype: torch.dtype) -> Tensor:
    """Midpoints of the most nearly cubic tensor grid with at most n cells: fewer than n points unless n = m^dims."""
    counts: list[int] = []
    left = n
    for axis in range(dims, 0, -1):
        count = max(1, int(left ** (1 / axis) + 1e-9))
        counts.append(count)
        left //= count
    axes = [(torch.arange(m, device=device, dtype=dtype) + 0.5) / m for m in counts]
    return torch.stack(torch.meshgrid(*axes, indexing="ij"), dim=-1).reshape(-1, dims)


_Sampler = Callable[[int, int, "torch.Generator | None", torch.device, torch.dtype], Tensor]
_SAMPLERS: dict[str, _Sampler] = {"uniform": _uniform, "lhs": _latin, "sobol": _sobol, "grid": _grid}
METHODS = tuple(_SAMPLERS)


def unit_cube(
    n: int,
    dims: int,
    generator: torch.Generator | None = None,
    device: torch.device | str = "cpu",
    dtype: torch.dtype = torch.float32,
    method: str = "sobol",
) -> Tensor:
    """n points of [0, 1]^dims.

    Args:
        n: number of points, >= 0. `grid` returns the largest nearly cubic tensor grid with at most n points.
        dims: number of axes, >= 0 (0 gives an [n, 0] tensor: a point has no free coordinate).
        generator: on `device`; None takes torch's default generator of the device.
        method: "uniform", "lhs" (Latin hypercube), "sobol" (scrambled afresh at each call) or "grid".

    Returns:
        [n, dims] tensor of `dtype` on `device`.

    Raises:
        ValueError: unknown method, negative n, integer dtype, or a generator of another device.
    """
    if method not in _SAMPLERS:
        raise ValueError(f"sample: `method` must be one of {', '.join(METHODS)}; got {method!r}.")
    if isinstance(n, bool) or not isinstance(n, int) or n < 0:
        raise ValueError(f"sample: `n` must be a whole number >= 0; got {n!r}.")
    if not dtype.is_floating_point:
        raise ValueError(f"sample: `dtype` must be a floating-point type; got {dtype}. Use torch.float32 or float64.")
    device = torch.device(device)
    if generator is not None and generator.device.type != device.type:
        raise ValueError(
            f"sample: `generator` must live on the points' device {device}; got one on {generator.device}. "
            f"Make it with torch.Generator({str(device)!r})."
        )
    if dims == 0:
        return torch.zeros(n, 0, device=device, dtype=dtype)
    if n == 0:
        return torch.zeros(0, dims, device=device, dtype=dtype)
    return _SAMPLERS[method](n, dims, generator, device, dtype)
