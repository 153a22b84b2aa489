"""Objectives with known minima, and a tiny network, shared by the tests of the optimisers."""

from collections.abc import Callable

import torch
from torch import Tensor, nn


def rosenbrock(x: Tensor) -> Tensor:
    """Chained Rosenbrock; minimum 0 at (1, ..., 1)."""
    return (100 * (x[1:] - x[:-1] ** 2) ** 2 + (1 - x[:-1]) ** 2).sum()


def powell_singular(x: Tensor) -> Tensor:
    """Powell's singular function; minimum 0 at the origin, where the Hessian has rank 2."""
    a, b, c, d = x
    return (a + 10 * b) ** 2 + 5 * (c - d) ** 2 + (b - 2 * c) ** 4 + 10 * (a - d) ** 4


def closure_of(optimizer: torch.optim.Optimizer, loss: Callable[[], Tensor]) -> Callable[[], Tensor]:
    """What a user writes: zero, loss, backward, return."""

    def closure() -> Tensor:
        optimizer.zero_grad()
        value = loss()
        value.backward()
        return value

    return closure


def sine_network(dtype: torch.dtype = torch.float64, seed: int = 0) -> tuple[nn.Module, Callable[[], Tensor]]:
    """A tanh network 1-16-16-1 and its mean squared distance from sin(6 x) at 64 points of [-1, 1]."""
    generator = torch.Generator().manual_seed(seed)
    net = nn.Sequential(nn.Linear(1, 16), nn.Tanh(), nn.Linear(16, 16), nn.Tanh(), nn.Linear(16, 1)).to(dtype)
    with torch.no_grad():
        for p in net.parameters():
            width = p.shape[-1] ** -0.5
            p.copy_(torch.empty(p.shape).uniform_(-width, width, generator=generator))
    x = torch.linspace(-1, 1, 64, dtype=dtype)[:, None]
    return net, lambda: (net(x) - torch.sin(6 * x)).square().mean()
