"""Convection and diffusion with a field as coefficient: face values and their differences, walls by ghost points.

Along each axis a field is extended beyond walls by the polynomial through the numbers nearest the end, its wall's own
among them (`pinnfuse.grid.stencils.ghost_rows`); a coefficient, of which the boundary says nothing, by the points
inside. Then one formula holds everywhere. The adjoint of the kernels is derived in `kernels/grid/flow_lines.py`.
"""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor

from pinnfuse.errors import nearest
from pinnfuse.grid.boundary import Neumann
from pinnfuse.grid.dispatch import choose
from pinnfuse.grid.ghosts import Wall
from pinnfuse.grid.grid import Grid, check_order, check_real
from pinnfuse.grid.stencils import Row, fit, ghost_rows
from pinnfuse.grid.transport_fused import fused
from pinnfuse.grid.transport_reference import Transport, plain
from pinnfuse.kernels.grid.flow import Flow
from pinnfuse.parameters import number

FORMS = ("advective", "conservative", "skew")
FACES = {
    2: (Fraction(1, 2), Fraction(1, 2)),
    4: tuple(Fraction(k, 12) for k in (-1, 7, 7, -1)),
    6: tuple(Fraction(k, 60) for k in (1, -8, 37, 37, -8, 1)),
    "upwind1": (Fraction(1), Fraction(0)),
    "upwind3": tuple(Fraction(k, 6) for k in (-1, 5, 2, 0)),
}
"""Weights of linear face values on the points from the upwind side to the downwind side."""
SCHEMES = {"central": 0, "upwind1": 2, "upwind3": 4, "van_leer": 2, "weno5": 4}
"""Schemes of convection, and how many numbers nearest a wall give the points outside (central: order + 1)."""


def convection(
    f: Tensor,
    velocity: Tensor,
    grid: Grid,
    *,
    scheme: str = "central",
    form: str = "advective",
    order: int | None = None,
    backend: str = "auto",
) -> Tensor:
    r"""Transport of `f` by a velocity: $v\cdot\nabla f$, $\nabla\cdot(v f)$, or their mean.

    Args:
        f: `[..., *space]`.
        velocity: `[..., d, *space]`, one component per axis; leading dimensions broadcast with those of `f`.
        scheme: "central" (of the grid's order, 2, 4 or 6); upwind: "upwind1", "upwind3" (order 1, 3), "van_leer"
            (limited, order 2; no new extrema), "weno5" (order 5 where smooth).
        form: "advective" $v\cdot\nabla f$; "conservative" $\nabla\cdot(v f)$, whose sum over a period vanishes; "skew",
            the mean of both, which conserves $\int f^2$ exactly with the central scheme on periodic axes.
        order: of the central scheme, instead of the grid's.

    Returns:
        `[..., *space]`. Upwind schemes split $v f$ by the sign of $v$ at the points; a point with $v = 0$ gives $v$
        the mean of both one-sided derivatives as its gradient. Next to walls van Leer extrapolates linearly, WENO5
        cubically (order 3); a `f` of size far from 1 should be scaled for WENO5, whose smoothness indicators are
        compared with 1e-6.

    Raises:
        ValueError: unknown scheme or form, shapes that disagree, too few points.
        BackendUnavailable: an explicit `backend` cannot run here.

    Source: van Leer, J. Comput. Phys. 14 (1974); Jiang and Shu, J. Comput. Phys. 126 (1996).
    """
    if scheme not in SCHEMES:
        raise ValueError(f"convection: unknown `scheme`; got {scheme!r}. {nearest(str(scheme), SCHEMES)}")
    if form not in FORMS:
        raise ValueError(f"convection: unknown `form`; got {form!r}. {nearest(str(form), FORMS)}")
    order = check_order(grid, order, "convection")
    space = grid.check(f, "convection", "f")
    found = grid.check(velocity, "convection", "velocity", leading=1)
    d = grid.dimension
    if found != space or velocity.shape[-d - 1] != d:
        raise ValueError(
            f"convection: `velocity` must be [..., {d}, *space] with space {list(space)}; got {list(velocity.shape)}. "
            "Stack its components with torch.stack((...), dim=-3) for two axes."
        )
    return _run(_convection(grid, scheme, form, order), f, velocity, backend)


def diffusion(u: Tensor, k: Tensor | float, grid: Grid, *, order: int | None = None, backend: str = "auto") -> Tensor:
    r"""$\nabla\cdot(k\nabla u)$ in flux form, k averaged to the faces.

    Order 2 is a finite-volume scheme up to the walls. The flux through a wall is k there times the slope there, the
    given one of a Neumann wall: k is that of the first point where this lies on the wall (whose control volume is then
    half as wide), else k_0 - s/2 with

        s = the smallest in size of k_1 - k_0, k_2 - k_1 and k_0, with their sign; 0 if the first two differ in sign,

    which is of second order where k is smooth and keeps k > 0, and constant, where it jumps. The sum over control
    volumes is the flux through the walls. Orders 4 and 6 extrapolate k by polynomials.

    Args:
        u: `[..., *space]`.
        k: `[..., *space]`, broadcast with `u`; or a number, which gives k times the Laplacian.
        order: 2, 4 or 6; the grid's own by default.

    Returns:
        `[..., *space]`; its sum over a period vanishes.
    """
    if not isinstance(k, Tensor):
        from pinnfuse.grid.operators import laplacian

        return number(k, "diffusion: `k`") * laplacian(u, grid, order=order, backend=backend)
    order = check_order(grid, order, "diffusion")
    space = grid.check(u, "diffusion")
    if k.dim() == 0:
        check_real(k, "diffusion", "k")
        k = k.expand(space)
    if grid.check(k, "diffusion", "k") != space:
        raise ValueError(f"diffusion: `k` must be [..., *space] with space {list(space)}; got {list(k.shape)}.")
    return _run(_diffusion(grid, order), u, k.unsqueeze(-grid.dimension - 1), backend)


@lru_cache(maxsize=256)
def _convection(grid: Grid, scheme: str, form: str, order: int) -> Transport:
    count = SCHEMES[scheme] or order + 1
    weights = FACES.get(order if scheme == "central" else scheme, ())
    reach = len(weights) // 2 or {"van_leer": 2, "weno5": 3}[scheme]
    return _transport(
        grid,
        kind="convection",
        scheme=scheme,
        form=form,
        reach=reach,
        weights=tuple(map(float, weights)),
        split=scheme != "central",
        depth=reach,
        count_f=count,
        count_c=count,
    )


@lru_cache(maxsize=256)
def _diffusion(grid: Grid, order: int) -> Transport:
    p = order // 2
    points = tuple((Fraction(2 * t - 1, 2) * sign, 0) for t in range(1, p + 1) for sign in (1, -1))
    staggered, midpoint = (fit(points, m, Fraction(0))[::2] for m in (1, 0))
    found = _transport(
        grid,
        kind="diffusion",
        scheme=f"order {order}",
        form="",
        reach=p,
        weights=tuple(map(float, (*staggered, *midpoint))),
        split=False,
        depth=2 * p - 1,
        count_f=order + 1,
        count_c=3 if order == 2 else order,
    )
    return found if order > 2 else _finite_volumes(found)


def _finite_volumes(transport: Transport) -> Transport:
    """Walls of order 2: the point outside carries the wall's slope where the first point lies on the wall, too."""
    grid, walls, ghosts = transport.grid, [], []
    for k, (axis, h) in enumerate(zip(grid.axes, grid.spacing, strict=True)):
        found, rows = [], list(transport.ghosts_f[k])
        for end, side in enumerate(() if grid.periodic[axis] else grid.sides[axis]):
            on_wall = isinstance(side, Neumann) and grid.centring == "node"
            found.append(Wall(False, 2.0) if on_wall else Wall())
            if on_wall:
                rows[end] = (Row((0,), (1.0,), h * side.number * (1 if end else -1)),)
        walls.append(tuple(found))
        ghosts.append(tuple(rows))
    limited = replace(transport.flow, limited=True)
    return replace(transport, flow=limited, ghosts_f=tuple(ghosts), walls=tuple(walls))


def _transport(grid: Grid, **layout: Any) -> Transport:
    """On a grid; `layout` is what `Flow` holds besides its dimension and periods."""
    flow = Flow(dimension=grid.dimension, periodic=tuple(grid.periodic[axis] for axis in reversed(grid.axes)), **layout)
    ghosts_f = tuple(ghost_rows(grid, axis, flow.count_f, flow.depth) for axis in grid.axes)
    ghosts_c = tuple(ghost_rows(grid, axis, flow.count_c, flow.depth, known_outside=False) for axis in grid.axes)
    return Transport(flow, grid, ghosts_f, ghosts_c)


def _run(transport: Transport, f: Tensor, c: Tensor, backend: str) -> Tensor:
    """Broadcast the leading dimensions, check the numbers of points, choose the backend.

    Args:
        f: `[..., *space]`.
        c: `[..., components, *space]`.
    """
    flow, d = transport.flow, transport.grid.dimension
    _check(transport.grid.axes, flow, tuple(f.shape[-d:]))
    name, other = flow.kind, "k" if flow.kind == "diffusion" else "velocity"
    if f.dtype != c.dtype or f.device != c.device:
        raise ValueError(
            f"{name}: `{other}` must have the dtype and device of the field, {f.dtype} on {f.device}; got {c.dtype} on "
            f"{c.device}. Use {other}.to(field)."
        )
    batch_f, batch_c = f.shape[:-d], c.shape[: -d - 1]
    if batch_f != batch_c:
        try:
            batch = torch.broadcast_shapes(batch_f, batch_c)
        except RuntimeError as error:
            raise ValueError(
                f"{name}: leading dimensions must broadcast; got {list(batch_f)} of the field and {list(batch_c)} of "
                f"`{other}`."
            ) from error
        f = f.expand(*batch, *f.shape[-d:])
        c = c.expand(*batch, *c.shape[-d - 1 :])
    chosen = choose(backend, name, f, c, variant=flow.variant)
    if chosen.backend == "torch":
        return plain(transport, f, c)
    return chosen.run(lambda f, c: fused(f, c, transport), lambda f, c: plain(transport, f, c), f, c)


@lru_cache(maxsize=4096)
def _check(axes: tuple[str, ...], flow: Flow, space: tuple[int, ...]) -> None:
    for k, (axis, n) in enumerate(zip(axes, space, strict=True)):
        known = 0 if flow.periodic[len(axes) - 1 - k] else max(flow.count_f, flow.count_c)
        least = max(flow.taps + 1, 2 * flow.reach - 1, known)  # the backward reads 2 reach - 1 points far
        if n < least:
            raise ValueError(
                f"{flow.kind}: `{'u' if flow.kind == 'diffusion' else 'f'}` must have at least {least} points along "
                f"{axis!r}; got {n}. Refine the grid or lower its order."
            )
