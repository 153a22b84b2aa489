"""An operator of one's own. The article writes a pointwise kernel by hand that has no backward; here a formula or a
stencil is enough, and forward, adjoint and rows at walls are generated."""

import torch

from pinnfuse import Grid
from pinnfuse.debug import compare
from pinnfuse.grid import custom


def nine_points(h: float) -> dict:
    """The Laplacian whose error has no direction."""
    sides, corners = ((1, 0), (-1, 0), (0, 1), (0, -1)), ((1, 1), (1, -1), (-1, 1), (-1, -1))
    weights = {(0, 0): -20.0} | dict.fromkeys(sides, 4.0) | dict.fromkeys(corners, 1.0)
    return {offset: weight / (6 * h * h) for offset, weight in weights.items()}


def by_hand(u: torch.Tensor, h: float) -> torch.Tensor:
    return sum(weight * u.roll((-i, -j), (-2, -1)) for (i, j), weight in nine_points(h).items())


def main(size: int = 512) -> bool:
    device = "cuda" if torch.cuda.is_available() else "cpu"
    h = 1 / size
    periodic, walls = Grid("x y", h, boundary="periodic"), Grid("x y", h, boundary="neumann")
    u = torch.randn(size, size, device=device, requires_grad=True)
    swish = custom("u / (1 + exp(-u))", periodic)
    print(f"pointwise: {compare(swish, torch.nn.functional.silu, u, derivative=0)}")
    operator = custom(nine_points(h), periodic, name="nine_points")
    report = compare(operator, lambda u: by_hand(u, h), u, h=h)
    print(report)
    custom(nine_points(h), walls)(u).square().mean().backward()
    print(f"beside walls, too: gradient {list(u.grad.shape)}, largest {float(u.grad.abs().max()):.3g}")
    return bool(report)


if __name__ == "__main__":
    main()
