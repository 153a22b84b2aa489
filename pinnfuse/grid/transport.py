"""Convection and diffusion with a field as coefficient: face values and their differences, walls by ghost points.

Along each axis a field is extended beyond walls by the polynomial through the numbers nearest the end, its wall's own
among them (`pinnfuse.grid.stencils.ghost_rows`); a coefficient, of which the boundary says nothing, by the points
inside. Then one formula holds everywhere. The adjoint of the kernels is derived in `kernels/grid/flow_lines.py`.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from fractions import Fraction
from functools import lru_cache

import torch
from torch import Tensor

from pinnfuse.errors import nearest
from pinnfuse.grid.boundary import Neumann
from pinnfuse.grid.dispatch import choose
from pinnfuse.grid.grid import Grid
from pinnfuse.grid.stencils import Row, fit, ghost_rows
from pinnfuse.kernels.grid.flow import Flow
from pinnfuse.kernels.grid.hashing import hash_once

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
Ends = tuple[tuple[Row, ...], ...]


@dataclass(frozen=True)
class Wall:
    """One end of an axis for diffusion of order 2: whether k is extrapolated to the wall (else the first point lies on
    it), and the factor of the row there, the inverse of its share of a control volume."""

    extrapolated: bool = True
    factor: float = 1.0


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
    order = grid.order if order is None else order
    if order not in (2, 4, 6):
        raise ValueError(f"convection: `order` must be 2, 4 or 6; got {order!r}.")
    space = grid.check(f, "convection", "f")
    found = grid.check(velocity, "convection", "velocity", leading=1)
    d = grid.dimension
    if found != space or velocity.shape[-d - 1] != d:
        raise ValueError(
            f"convection: `velocity` must be [..., {d}, *space] with space {list(space)}; got {list(velocity.shape)}. "
            "Stack its components with torch.stack((...), dim=-3) for two axes."
        )
    transport = _convection(grid, scheme, form, order)
    return _run("convection", transport, f, velocity, 1, backend)


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

        return k * laplacian(u, grid, order=order, backend=backend)
    order = grid.order if order is None else order
    if order not in (2, 4, 6):
        raise ValueError(f"diffusion: `order` must be 2, 4 or 6; got {order!r}.")
    space = grid.check(u, "diffusion")
    if k.dim() == 0:
        k = k.expand(space)
    if grid.check(k, "diffusion", "k") != space:
        raise ValueError(f"diffusion: `k` must be [..., *space] with space {list(space)}; got {list(k.shape)}.")
    return _run("diffusion", _diffusion(grid, order), u, k.unsqueeze(-grid.dimension - 1), 1, backend)


@lru_cache(maxsize=256)
def _convection(grid: Grid, scheme: str, form: str, order: int) -> Transport:
    count = SCHEMES[scheme] or order + 1
    weights = FACES.get(order if scheme == "central" else scheme, ())
    reach = len(weights) // 2 or {"van_leer": 2, "weno5": 3}[scheme]
    return _transport(grid, "convection", scheme, form, reach, weights, scheme != "central", reach, count, count)


@lru_cache(maxsize=256)
def _diffusion(grid: Grid, order: int) -> Transport:
    p = order // 2
    points = tuple((Fraction(2 * t - 1, 2) * sign, 0) for t in range(1, p + 1) for sign in (1, -1))
    staggered, midpoint = (fit(points, m, Fraction(0))[::2] for m in (1, 0))
    count_k = 3 if order == 2 else order
    found = _transport(
        grid, "diffusion", f"order {order}", "", p, (*staggered, *midpoint), False, 2 * p - 1, order + 1, count_k
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


def _transport(
    grid: Grid,
    kind: str,
    scheme: str,
    form: str,
    reach: int,
    weights: tuple[Fraction, ...],
    split: bool,
    depth: int,
    count_f: int,
    count_c: int,
) -> Transport:
    periodic = tuple(grid.periodic[axis] for axis in reversed(grid.axes))
    numbers = tuple(map(float, weights))
    flow = Flow(kind, scheme, form, grid.dimension, periodic, reach, numbers, split, depth, count_f, count_c)
    ghosts_f = tuple(ghost_rows(grid, axis, count_f, depth) for axis in grid.axes)
    ghosts_c = tuple(ghost_rows(grid, axis, count_c, depth, known_outside=False) for axis in grid.axes)
    return Transport(flow, grid, ghosts_f, ghosts_c)


def _run(name: str, transport: Transport, f: Tensor, c: Tensor, leading: int, backend: str) -> Tensor:
    """Broadcast the leading dimensions, check the numbers of points, choose the backend."""
    grid, flow = transport.grid, transport.flow
    d = grid.dimension
    _check(name, grid.axes, flow, tuple(f.shape[-d:]))
    other = "k" if name == "diffusion" else "velocity"
    if f.dtype != c.dtype or f.device != c.device:
        raise ValueError(
            f"{name}: `{other}` must have the dtype and device of the field, {f.dtype} on {f.device}; got {c.dtype} on "
            f"{c.device}. Use {other}.to(field)."
        )
    if f.shape[:-d] != c.shape[: c.dim() - d - leading]:
        try:
            batch = torch.broadcast_shapes(f.shape[:-d], c.shape[: c.dim() - d - leading])
        except RuntimeError as error:
            raise ValueError(
                f"{name}: leading dimensions must broadcast; got {list(f.shape[:-d])} of the field and "
                f"{list(c.shape[: c.dim() - d - leading])} of `{other}`."
            ) from error
        f = f.expand(*batch, *f.shape[-d:])
        c = c.expand(*batch, *c.shape[-d - leading :])
    chosen = choose(backend, name, f, c, variant=flow.variant)
    if chosen.backend == "torch":
        return plain(transport, f, c)
    return chosen.run(lambda f, c: _kernel(f, c, transport), lambda f, c: plain(transport, f, c), f, c)


@lru_cache(maxsize=4096)
def _check(name: str, axes: tuple[str, ...], flow: Flow, space: tuple[int, ...]) -> None:
    for k, (axis, n) in enumerate(zip(axes, space, strict=True)):
        known = 0 if flow.periodic[len(axes) - 1 - k] else max(flow.count_f, flow.count_c)
        least = max(flow.taps + 1, 2 * flow.reach - 1, known)  # the backward reads 2 reach - 1 points far
        if n < least:
            raise ValueError(
                f"{name}: `{'u' if name == 'diffusion' else 'f'}` must have at least {least} points along {axis!r}; "
                f"got {n}. Refine the grid or lower its order."
            )


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


def extend(u: Tensor, ends: Ends, depth: int) -> Tensor:
    """The last dimension with `depth` points more at both ends."""
    low, high = ends
    if not low and not high:
        n = u.shape[-1]
        return u.index_select(-1, torch.arange(-depth, n + depth, device=u.device) % n)

    def ghost(row: Row, end: int) -> Tensor:
        value = torch.full_like(u[..., :1], row.constant)
        for i, w in zip(row.offsets_from_that_end, row.weights, strict=True):
            j = u.shape[-1] - 1 - i if end else i
            value = value + w * u[..., j : j + 1]
        return value

    return torch.cat([*(ghost(r, 0) for r in reversed(low)), u, *(ghost(r, 1) for r in high)], dim=-1)


def extend_limited(k: Tensor, walls: tuple[Wall, ...]) -> Tensor:
    """The last dimension with one point more at both ends, so that the mean with the first one is k on the wall."""

    def ghost(wall: Wall, *nearest: Tensor) -> Tensor:
        return nearest[0] - limited_slope(*nearest) if wall.extrapolated else nearest[0]

    n = k.shape[-1]
    low, high = ([k.narrow(-1, n - 1 - i if end else i, 1) for i in range(3)] for end in (0, 1))
    return torch.cat([ghost(walls[0], *low), k, ghost(walls[1], *high)], dim=-1)


def limited_slope(k0: Tensor, k1: Tensor, k2: Tensor) -> Tensor:
    """The smallest in size of k1 - k0, k2 - k1 and k0 with the sign of the first two, 0 if these differ."""
    a, b = k1 - k0, k2 - k1
    limit = torch.where(b.abs() <= k0.abs(), b, a.sign() * k0.abs())
    smallest = torch.where((a.abs() <= b.abs()) & (a.abs() <= k0.abs()), a, limit)
    return torch.where(a * b > 0, smallest, 0.0)


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


def _kernel(f: Tensor, c: Tensor, transport: Transport) -> Tensor:
    if torch.is_grad_enabled() and (f.requires_grad or c.requires_grad):
        return _Flow.apply(f, c, transport)
    return _launch(f, c, transport)


def _launch(f: Tensor, c: Tensor, transport: Transport) -> Tensor:
    from pinnfuse.kernels.grid.run_flow import forward

    out = torch.empty(f.shape, dtype=f.dtype, device=f.device)
    if out.numel():
        forward(transport.flow, _numbers(transport, f), *_flat(transport, f, c), _flat_scalar(transport, out))
    return out


class _Flow(torch.autograd.Function):
    """The kernels. The backward has no derivative of its own."""

    @staticmethod
    def forward(ctx, f: Tensor, c: Tensor, transport: Transport) -> Tensor:
        ctx.transport = transport
        ctx.save_for_backward(f, c)
        return _launch(f, c, transport)

    @staticmethod
    def backward(ctx, gradient: Tensor):
        from pinnfuse.kernels.grid.run_flow import backward

        transport: Transport = ctx.transport
        if torch.is_grad_enabled():
            raise RuntimeError(
                f"{transport.flow.kind}: the backward kernel has no derivative of its own (create_graph=True). Use "
                "backend='torch', which can be differentiated any number of times."
            )
        f, c = ctx.saved_tensors
        need_f, need_c = ctx.needs_input_grad[:2]
        grad_f = torch.empty(f.shape, dtype=f.dtype, device=f.device) if need_f else None
        grad_c = torch.empty(c.shape, dtype=c.dtype, device=c.device) if need_c else None
        if f.numel() and (need_f or need_c):
            flat_f, flat_c = _flat(transport, f, c)
            backward(
                transport.flow,
                _numbers(transport, f),
                _flat_scalar(transport, gradient),
                flat_f,
                flat_c,
                None if grad_f is None else _flat_scalar(transport, grad_f),
                None if grad_c is None else _flat_vector(transport, grad_c),
            )
        return grad_f, grad_c, None


def _flat(transport: Transport, f: Tensor, c: Tensor) -> tuple[Tensor, Tensor]:
    return _flat_scalar(transport, f), _flat_vector(transport, c)


def _flat_scalar(transport: Transport, f: Tensor) -> Tensor:
    return f.reshape(-1, 1, *f.shape[-transport.grid.dimension :])


def _flat_vector(transport: Transport, c: Tensor) -> Tensor:
    d = transport.grid.dimension
    return c if c.dim() == d + 2 else c.reshape(-1, *c.shape[-d - 1 :])


def _numbers(transport: Transport, like: Tensor) -> Tensor:
    dtype = torch.float64 if like.dtype == torch.float64 else torch.float32
    return _on_device(transport, dtype, like.device)


@lru_cache(maxsize=256)
def _on_device(transport: Transport, dtype: torch.dtype, device: torch.device) -> Tensor:
    """1/h per axis, then the tables of ghost points, in the order of `Flow.table`."""
    flow = transport.flow
    found = [1.0 / h for h in reversed(transport.grid.spacing)]
    for k in reversed(range(flow.dimension)):
        found += table(transport.ghosts_f[k], flow.count_f, flow.depth)
        if flow.limited:
            for wall in transport.walls[k] or (Wall(), Wall()):
                found += [float(wall.extrapolated), wall.factor]
        else:
            found += table(transport.ghosts_c[k], flow.count_c, flow.depth)
    return torch.tensor(found, dtype=torch.float64).to(device=device, dtype=dtype)


def table(ends: Ends, count: int, depth: int) -> list[float]:
    """Per end and point outside the weights of the `count` numbers nearest the end, and the wall's constant."""
    found: list[float] = []
    for rows in ends:
        for row in rows or (Row((), ()),) * depth:
            entries = [0.0] * count
            for i, w in zip(row.offsets_from_that_end, row.weights, strict=True):
                entries[i] = w
            found += [*entries, row.constant]
    return found
