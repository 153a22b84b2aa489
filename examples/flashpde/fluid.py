"""Incompressible flow. The article's simulator starts from rest with nothing that moves it, and computes a pressure
that it never applies; here a vortex decays at the rate that theory gives, and no cell gains or loses mass."""

import math

import torch

from pinnfuse import Grid
from pinnfuse.simulation import FluidSimulator


def main(grid_size: int = 256, viscosity: float = 0.05, steps: int = 200) -> tuple[float, float]:
    device = "cuda" if torch.cuda.is_available() else "cpu"
    grid = Grid("x y", 2 * math.pi / grid_size, centring="cell", boundary="periodic")
    flow = FluidSimulator(grid, (grid_size, grid_size), viscosity, device=device)
    flow.set_velocity(lambda x, y: x.cos() * y.sin(), lambda x, y: -x.sin() * y.cos())
    before = flow.max_speed()
    flow.run(steps=steps, dt=0.5 * min(flow.stable_step(), 1 / steps), report=lambda f: print(f"{f.max_speed():.6f}"))
    factor, exact = flow.max_speed() / before, math.exp(-2 * viscosity * flow.time)
    divergence = float(flow.divergence().abs().max())
    print(f"time {flow.time:.3f}: speed fell to {factor:.6f}, exactly {exact:.6f}; divergence {divergence:.1e}")
    return factor / exact - 1, divergence


if __name__ == "__main__":
    main()
