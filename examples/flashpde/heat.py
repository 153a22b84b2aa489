"""A hot square that diffuses, by explicit steps written out, then by `simulation.heat` with a start that tells more.

The article's step is so small that 5,000 of them spread heat over 0.005 of a cell's area, and its maximum never moves;
the step here is near the limit of stability. And a mode of the discrete Laplacian decays by a factor known exactly.
"""

import math

import torch

from pinnfuse import Grid
from pinnfuse.compat import flashpde
from pinnfuse.simulation import heat


def solve_heat_equation(nx: int, ny: int, nt: int, alpha: float, every: int = 1000) -> torch.Tensor:
    device = "cuda" if torch.cuda.is_available() else "cpu"
    dx, dy = 1 / (nx - 1), 1 / (ny - 1)
    dt = 0.2 * min(dx, dy) ** 2 / alpha  # below the limit of 1/4
    u = torch.zeros(nx, ny, device=device)
    u[nx // 4 : 3 * nx // 4, ny // 4 : 3 * ny // 4] = 1.0
    for step in range(nt):
        u = u + dt * alpha * flashpde.laplacian_2d(u, dx, dy, boundary="periodic")
        if step % every == 0:
            print(f"step {step}: largest {float(u.max()):.6f}, sum {float(u.sum()):.2f}")
    return u


def eigenmode(n: int, steps: int) -> float:
    """Relative error of the decay of a mode, against the exact factor of the discrete steps."""
    device = "cuda" if torch.cuda.is_available() else "cpu"
    grid = Grid("x y", 2 * math.pi / n, boundary="periodic")
    at = grid.coordinates((n, n), device, torch.float64)
    u0 = at["x"].cos()[:, None] * at["y"].sin()[None, :]
    dt = 0.2 * grid.spacing[0] ** 2
    found = heat(u0, grid, diffusivity=1.0, dt=dt, steps=steps)
    factor = (1 - 2 * dt * (2 * math.sin(math.pi / n) / grid.spacing[0]) ** 2) ** steps
    return float((found - factor * u0).abs().max()) / factor


def main(n: int = 256, steps: int = 5000) -> float:
    u = solve_heat_equation(n, n, steps, alpha=0.01)
    print(f"after {steps} steps: largest {float(u.max()):.6f}")
    error = eigenmode(n, steps)
    print(f"a mode decays by its exact factor to {error:.1e}")
    return error


if __name__ == "__main__":
    main()
