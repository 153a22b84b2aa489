"""Where agents start: drawn from Philox and rounded to whole units, so a start is the same on any device."""

from __future__ import annotations

from numbers import Real
from typing import Any

import torch
from torch import Tensor

from pinnfuse.errors import nearest
from pinnfuse.simulation.physarum import checks
from pinnfuse.simulation.physarum.fixed import CELL, PICK, PLACE, SPREAD, TURN, along, below, cosine, philox, sine, wrap

MODES = ("uniform", "point", "ring", "disc", "image")


def spawn(
    mode: str,
    identity: Tensor,
    shape: tuple[int, int],
    clock: Tensor,
    *,
    radius: float | None = None,
    jitter: float = 0.0,
    weights: Any = None,
    obstacles: Tensor | None = None,
    torus: bool = True,
) -> tuple[Tensor, Tensor, Tensor]:
    """x, y, heading of new agents, int32 [A] in the units of `fixed`.

    Args:
        mode: "uniform": anywhere, any heading. "point": the centre, any heading. "ring": on a circle about the centre,
            heading along it. "disc": evenly in a disc about the centre, heading inward. "image": in a cell drawn with
            probability proportional to `weights`, any heading.
        identity: int32 [A], the counter of the random numbers.
        shape: cells (height, width).
        clock: int64 [2], step and seed.
        radius: of ring and disc, in cells; a third of the shorter side by default.
        jitter: largest random displacement along each axis, in cells.
        weights: [H, W] for "image", >= 0, taken to 1/65536 of the largest.
        obstacles: uint8 [H, W]; a uniform start avoids them, another one that meets them is refused.
        torus: whether displaced agents wrap around, or stay at the wall.

    Raises:
        ValueError: an unknown mode, weights that are missing or all zero, a radius or jitter that does not fit, a start
            inside an obstacle.
    """
    if mode not in MODES:
        raise ValueError(f"Physarum: unknown `spawn`; got {mode!r}. {nearest(str(mode), MODES)}")
    height, width = shape
    radius = min(shape) / 3 if radius is None else radius
    for name, value, top in (("spawn_radius", radius, min(shape) / 2), ("spawn_jitter", jitter, min(shape))):
        if isinstance(value, bool) or not isinstance(value, Real) or not 0 <= value <= top:
            raise ValueError(f"Physarum: `{name}` must lie in [0, {top:g}] cells; got {value!r}. Choose a smaller one.")
    a, b, c, _ = philox(clock[1], identity.long(), clock[0], PLACE)
    angle = (a >> 16).int()
    x, y = torch.full_like(identity, width * CELL // 2), torch.full_like(identity, height * CELL // 2)
    heading = (c >> 16).int()
    if mode == "image":
        x, y = _drawn(weights, identity, shape, clock)
    elif mode == "uniform" and obstacles is not None:
        x, y = _drawn((obstacles == 0).double(), identity, shape, clock)
    elif mode == "uniform":
        x, y = below(a, width * CELL).int(), below(b, height * CELL).int()
    elif mode in ("ring", "disc"):
        share = torch.ones_like(b, dtype=torch.float64) if mode == "ring" else (b.double() / 2**32).sqrt()
        distance = (share * (radius * CELL)).long()
        x, y = x + along(distance, cosine(angle)), y + along(distance, sine(angle))
        heading = (angle + (TURN // 4 if mode == "ring" else TURN // 2)) & (TURN - 1)
    if jitter:
        words = philox(clock[1], identity.long(), clock[0], SPREAD)
        reach = round(jitter * CELL)
        x, y = (v + (below(w, 2 * reach + 1) - reach).int() for v, w in zip((x, y), words[:2], strict=True))
    limits = (width * CELL, height * CELL)
    x, y = (wrap(v, n) if torus else v.clamp(0, n - 1) for v, n in zip((x, y), limits, strict=True))
    if obstacles is not None and bool((obstacles[(y >> 16).long(), (x >> 16).long()] != 0).any()):
        raise ValueError(
            f"Physarum: spawn={mode!r} puts agents inside obstacles. Use spawn='uniform' without jitter, or other maps."
        )
    return x, y, heading


def _drawn(weights: Any, identity: Tensor, shape: tuple[int, int], clock: Tensor) -> tuple[Tensor, Tensor]:
    """A uniform place inside a cell drawn by weight; whole-number weights, so that their sums are exact."""
    if weights is None:
        raise ValueError("Physarum: spawn='image' needs weights; got none. Pass spawn_weights, or an image.")
    weights = checks.tensor("spawn_weights", weights, 0.0, [shape]).double().cpu()
    if not bool((weights > 0).any()):
        raise ValueError("Physarum: spawn weights must not all be zero; check the image, or the obstacles.")
    sums = (weights * (65535 / float(weights.max()))).round().long().flatten().cumsum(0).to(identity.device)
    a, b, c, d = philox(clock[1], identity.long(), clock[0], PICK)
    total = int(sums[-1])  # < 2^44; two words give 53 bits
    ticket = ((a << 21) | (b >> 11)).double() * (total / 2.0**53)
    cell = torch.searchsorted(sums, ticket.long().clamp(max=total - 1), right=True)
    x, y = (cell % shape[1] << 16) + (c >> 16), (cell // shape[1] << 16) + (d >> 16)
    return x.int(), y.int()
