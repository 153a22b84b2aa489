"""L-BFGS in matrix form against the recursion that it replaces, and against dense BFGS."""

import pytest
import torch
from torch import nn

from pinnfuse.optimizers import BFGS, LBFGS


def problem(n):
    """A well-conditioned Hessian, and a stream of random vectors."""
    generator = torch.Generator().manual_seed(5)

    def vector():
        return torch.randn(n, generator=generator, dtype=torch.float64)

    root = torch.randn(n, n, generator=generator, dtype=torch.float64)
    return root @ root.T + torch.eye(n, dtype=torch.float64), vector


def learn(optimizer, s, y):
    optimizer._update(s, y, (y @ s).item(), (s @ s).item(), 1.0)


def two_loops(pairs, scale, gradient):
    """Nocedal and Wright, algorithm 7.4."""
    q, factors = gradient.clone(), []
    for s, y in reversed(pairs):
        factors.append((s @ q) / (s @ y))
        q -= factors[-1] * y
    q *= scale
    for s, y in pairs:
        q += (factors.pop() - (y @ q) / (s @ y)) * s
    return -q


@pytest.mark.parametrize("history_size", [1, 3, 20])
def test_direction_is_the_two_loop_recursion(history_size):
    hessian, vector = problem(12)
    optimizer = LBFGS([nn.Parameter(torch.zeros(12))], history_size=history_size)
    pairs = []
    for k in range(8):
        s = vector()
        pairs.append((s, hessian @ s))
        optimizer._memory["scale"] = 0.1 * (k + 1)
        learn(optimizer, *pairs[-1])
        g = vector()
        expected = two_loops(pairs[-history_size:], 0.1 * (k + 1), g)
        torch.testing.assert_close(optimizer._direction(g), expected, rtol=1e-9, atol=1e-11)
    assert optimizer._memory["S"].shape == (min(8, history_size), 12)


def test_with_all_pairs_it_is_bfgs():
    """With the same H0, L-BFGS that forgets nothing is BFGS (Nocedal and Wright, section 7.2)."""
    hessian, vector = problem(12)
    both = [cls([nn.Parameter(torch.zeros(12))]) for cls in (BFGS, LBFGS)]
    for optimizer in both:
        optimizer._memory["scale"] = 0.5
    for _ in range(6):
        s = vector()
        for optimizer in both:
            learn(optimizer, s, hessian @ s)
    g = vector()
    dense, limited = (optimizer._direction(g) for optimizer in both)
    torch.testing.assert_close(dense, limited, rtol=1e-9, atol=1e-12)
