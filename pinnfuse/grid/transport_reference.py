"""Convection and diffusion as a value, and in plain torch: along each axis face values and their differences."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from pinnfuse.grid.ghosts import Ends, Wall, extend, extend_limited
from pinnfuse.grid.grid import Grid
from pinnfuse.kernels.grid.flow import Flow
from pinnfuse.kernels.grid.hashing import hash_once


@hash_once
@dataclass(frozen=True)
class Transport:
    """A convection or diffusion operator on a grid: the kernel's layout, and per axis what lies beyond the walls.

    Of diffusion of order 2 `walls` takes the place of `ghosts_c`; both are empty for a periodic axis.
    """

    flow: Flow
    grid: Grid
    ghosts_f: tuple[Ends, ...]
    ghosts_c: tuple[Ends, ...]
    walls: tuple[tuple[Wall, ...], ...] = ()


def plain(transport: Transport, f: Tensor, c: Tensor) -> Tensor:
    """The operator in plain torch; `f` `[..., *space]`, `c` `[..., components, *space]`."""
    flow, grid = transport.flow, transport.grid
    d, dtype = grid.dimension, f.dtype
    if dtype in (torch.float16, torch.bfloat16):
        f, c = f.float(), c.float()
    total = torch.zeros_like(f)
    for k, h in enumerate(grid.spacing):
        component = c.select(-d - 1, k if flow.kind == "convection" else 0)
        line_f, line_c = (a.movedim(k - d, -1) for a in (f, component))
        ghosts = transport.ghosts_f[k], transport.ghosts_c[k]
        if flow.kind == "convection":
            part = _convect(flow, line_f, line_c, *ghosts)
        else:
            walls = transport.walls[k] if flow.limited else ()
            wide_c = extend_limited(line_c, walls) if walls else extend(line_c, ghosts[1], flow.depth)
            part = _scaled(_diffuse(flow, line_f, wide_c, ghosts[0], h), walls)
        total = total + part.movedim(-1, k - d) / h
    return total.to(dtype)


def _scaled(rows: Tensor, walls: tuple[Wall, ...]) -> Tensor:
    """The first and the last row times the factors of the walls."""
    if all(wall.factor == 1 for wall in walls):
        return rows
    factors = torch.ones(rows.shape[-1], dtype=rows.dtype, device=rows.device)
    factors[0], factors[-1] = walls[0].factor, walls[1].factor
    return rows * factors


def _convect(flow: Flow, f: Tensor, c: Tensor, ghosts_f: Ends, ghosts_c: Ends) -> Tensor:
    """h times the operator along the last dimension."""
    n, r = f.shape[-1], flow.reach
    wide_f = extend(f, ghosts_f, r)
    parts = []
    if flow.form != "conservative":
        up, down = _split(c) if flow.split else (c, None)
        part = up * _difference(flow, wide_f, n, False)
        parts.append(part if down is None else part + down * _difference(flow, wide_f, n, True))
    if flow.form != "advective":
        wide_c = extend(c, ghosts_c, r)
        up, down = _split(wide_c) if flow.split else (wide_c, None)
        part = _difference(flow, up * wide_f, n, False)
        parts.append(part if down is None else part + _difference(flow, down * wide_f, n, True))
    return parts[0] if len(parts) == 1 else 0.5 * (parts[0] + parts[1])


def _split(c: Tensor) -> tuple[Tensor, Tensor]:
    """Positive and negative part, each with slope 1/2 at zero."""
    return 0.5 * (c + c.abs()), 0.5 * (c - c.abs())


def _difference(flow: Flow, wide: Tensor, n: int, mirrored: bool) -> Tensor:
    """q at the upper face minus q at the lower face of n points, from the left, or from the right if mirrored."""
    r = flow.reach
    if mirrored:
        wide = wide.flip(-1)
    points = [wide.narrow(-1, k, n + 1) for k in range(2 * r)]
    q = face_value(flow, points)
    result = q.narrow(-1, 1, n) - q.narrow(-1, 0, n)
    return -result.flip(-1) if mirrored else result


def face_value(flow: Flow, f: list[Tensor]) -> Tensor:
    """The face value from 2 reach points, the first on the upwind side."""
    if flow.scheme == "van_leer":
        a, b = f[1] - f[0], f[2] - f[1]
        smooth = a * b > 0
        return f[1] + torch.where(smooth, a * b / torch.where(smooth, a + b, 1.0), 0.0)
    if flow.scheme == "weno5":
        return _weno5(*f[:5])
    terms = [w * x for w, x in zip(flow.weights, f, strict=True) if w]
    return sum(terms[1:], terms[0])


def _weno5(a: Tensor, b: Tensor, c: Tensor, d: Tensor, e: Tensor) -> Tensor:
    candidates = (2 * a - 7 * b + 11 * c) / 6, (-b + 5 * c + 2 * d) / 6, (2 * c + 5 * d - e) / 6
    indicators = (
        13 / 12 * (a - 2 * b + c) ** 2 + (a - 4 * b + 3 * c) ** 2 / 4,
        13 / 12 * (b - 2 * c + d) ** 2 + (b - d) ** 2 / 4,
        13 / 12 * (c - 2 * d + e) ** 2 + (3 * c - 4 * d + e) ** 2 / 4,
    )
    alphas = [w / (1e-6 + beta) ** 2 for w, beta in zip((0.1, 0.6, 0.3), indicators, strict=True)]
    weighted = sum(alpha * p for alpha, p in zip(alphas, candidates, strict=True))
    return torch.as_tensor(weighted / sum(alphas))


def _diffuse(flow: Flow, u: Tensor, wide_k: Tensor, ghosts_u: Ends, h: float) -> Tensor:
    """h times the operator along the last dimension; `wide_k` has the points outside."""
    n, p = u.shape[-1], flow.reach
    faces = n + 2 * p - 1  # those that the points read
    wide_u = extend(u, ghosts_u, flow.depth)
    slope, mean = torch.zeros_like(wide_u[..., :faces]), torch.zeros_like(wide_u[..., :faces])
    for t in range(1, p + 1):
        ahead, behind = p - 1 + t, p - t
        slope = slope + flow.weights[t - 1] * (wide_u.narrow(-1, ahead, faces) - wide_u.narrow(-1, behind, faces))
        mean = mean + flow.weights[p + t - 1] * (wide_k.narrow(-1, ahead, faces) + wide_k.narrow(-1, behind, faces))
    flux = mean * slope / h
    total = torch.zeros_like(u)
    for t in range(1, p + 1):
        total = total + flow.weights[t - 1] * (flux.narrow(-1, p + t - 1, n) - flux.narrow(-1, p - t, n))
    return total
