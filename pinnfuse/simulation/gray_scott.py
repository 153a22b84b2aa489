r"""Gray-Scott: two reacting, diffusing substances that form spots, stripes and mazes.

    u_t = D_u laplacian(u) - u v^2 + F (1 - u),     v_t = D_v laplacian(v) + u v^2 - (F + k) v

u is fed at rate F and eaten by v, which decays at rate F + k. The state u = 1, v = 0 is stable; patterns grow from
patches. Source: Pearson, Complex patterns in a simple system, Science 261 (1993), whose diffusivities are the defaults
(a square of side 2.5).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor

from pinnfuse.grid import Grid
from pinnfuse.parameters import number
from pinnfuse.pde import PDE
from pinnfuse.simulation.evolution import solve

REGIMES: dict[str, tuple[float, float]] = {
    "spots": (0.030, 0.062),
    "dividing spots": (0.0367, 0.0649),
    "stripes": (0.050, 0.063),
    "maze": (0.029, 0.057),
    "holes": (0.039, 0.058),
}
"""Names of patterns -> (feed, kill), after Pearson's map."""


def gray_scott_pde(
    dimension: int = 2, feed: float = 0.0367, kill: float = 0.0649, du: float = 2e-5, dv: float = 1e-5
) -> PDE:
    """The equations in one to three space dimensions; units: rates per time, diffusivities length^2 / time."""
    axes = "xyz"[:dimension]
    laplacians = {f: "+".join(f"{f}_{a}{a}" for a in axes) for f in "uv"}
    return PDE(
        "u v",
        ["t", *axes],
        {"feed": feed, "kill": kill, "du": du, "dv": dv},
        {
            "u": f"u_t - du*({laplacians['u']}) + u*v**2 - feed*(1 - u)",
            "v": f"v_t - dv*({laplacians['v']}) - u*v**2 + (feed + kill)*v",
        },
        name="gray_scott",
    )


def patches(
    grid: Grid,
    shape: Sequence[int],
    batch: int = 1,
    *,
    count: int = 6,
    radius: float = 0.04,
    noise: float = 0.01,
    seed: int = 0,
    dtype: torch.dtype = torch.float32,
    device: torch.device | str = "cpu",
) -> Tensor:
    """Starts `[batch, 2, *space]`: u = 1, v = 0, but u = 1/2, v = 1/4 in `count` random balls, a little noise on both.

    Args:
        radius: of the balls, in units of length; they wrap around periodic axes. Large balls starve in the middle.
    """
    generator = torch.Generator().manual_seed(seed)
    at = grid.coordinates(shape, dtype=torch.float64)
    inside = torch.zeros(batch, *shape, dtype=torch.bool)
    for _ in range(count):
        squares = torch.zeros(batch, *shape, dtype=torch.float64)
        for k, (axis, n) in enumerate(zip(grid.axes, shape, strict=True)):
            extent = n * grid.spacing[k]
            centre = grid.origin[k] + extent * torch.rand(batch, 1, generator=generator, dtype=torch.float64)
            away = at[axis] - centre
            if grid.periodic[axis]:
                away = away - extent * (away / extent).round()
            squares += away.square().reshape(batch, *[n if j == k else 1 for j in range(len(shape))])
        inside |= squares < radius**2
    u = torch.where(inside, 0.5, 1.0)
    v = torch.where(inside, 0.25, 0.0)
    found = torch.stack([u, v], dim=1)
    found = found + noise * torch.rand(found.shape, generator=generator) * torch.tensor([-1.0, 1.0]).reshape(
        2, *[1] * len(shape)
    )
    return found.to(device=device, dtype=dtype)


def gray_scott(
    u0: Tensor,
    grid: Grid,
    times: Sequence[float],
    *,
    feed: float | Tensor = 0.0367,
    kill: float | Tensor = 0.0649,
    parameters: Mapping[str, Tensor | float] | None = None,
    backend: str = "auto",
) -> Tensor:
    """Integrate from `u0` `[batch, 2, *space]`; returns `[batch, len(times), 2, *space]`.

    Args:
        feed, kill: rates, one number or one per sample `[batch]` (`REGIMES` names some pairs).
        parameters: "du", "dv".
    """
    for name, value in (("feed", feed), ("kill", kill)):
        if not isinstance(value, Tensor):
            value = number(value, f"gray_scott: `{name}`")
        if not bool((torch.as_tensor(value) >= 0).all()):
            raise ValueError(f"gray_scott: `{name}` must be >= 0; got {value}.")
    given = {"feed": feed, "kill": kill, **(parameters or {})}
    return solve(gray_scott_pde(grid.dimension), u0, grid, times, parameters=given, backend=backend)
