"""Derivatives of elementwise functions against torch's own, order by order."""

import pytest
import torch

from pinnfuse.jets.unary import UNARY, unary

REFERENCE = {
    "silu": torch.nn.functional.silu,
    "gelu": torch.nn.functional.gelu,
    "softplus": torch.nn.functional.softplus,
}


def torch_derivatives(f, z, n):
    z = z.clone().requires_grad_()
    values = [f(z)]
    for _ in range(n):
        if not values[-1].requires_grad:
            values.append(torch.zeros_like(z))
            continue
        (g,) = torch.autograd.grad(values[-1].sum(), z, create_graph=True)
        values.append(g)
    return [v.detach() for v in values]


@pytest.mark.parametrize("name", sorted(UNARY))
def test_derivatives_up_to_order_nine(name):
    """The adjoint of a PDE of the highest order, 8, needs nine."""
    z = torch.linspace(0.3, 3.0, 41, dtype=torch.float64)
    if name not in ("log", "sqrt", "reciprocal"):
        z = torch.cat((-z, z, z.new_zeros(1)))
    expected = torch_derivatives(REFERENCE.get(name, getattr(torch, name, None)), z, 9)
    for k, (got, truth) in enumerate(zip(unary(name)(z, 9), expected, strict=True)):
        scale = truth.abs().max()
        assert (got - truth).abs().max() <= 1e-12 * scale * 10**k / 10, (name, k)


@pytest.mark.parametrize("exponent", [2.0, 3.0, 4.0, 0.5, -2.0, 1.7])
def test_powers(exponent):
    z = torch.linspace(0.4, 2.0, 17, dtype=torch.float64)
    expected = torch_derivatives(lambda t: t**exponent, z, 4)
    for got, truth in zip(unary("power", exponent)(z, 4), expected, strict=True):
        got = torch.zeros_like(z) if got is None else got
        torch.testing.assert_close(got, truth, rtol=1e-12, atol=1e-13)


def test_integer_powers_are_finite_at_zero():
    derivatives = unary("power", 2.0)(torch.zeros(1, dtype=torch.float64), 5)
    assert [None if d is None else float(d) for d in derivatives] == [0.0, 0.0, 2.0, None, None, None]


@pytest.mark.parametrize("name", ["tanh", "sigmoid", "softplus", "silu", "gelu", "erf", "erfc"])
def test_no_nan_far_out(name):
    z = torch.tensor([-1e4, -50.0, 50.0, 1e4, 1e-30, 0.0])
    for derivative in unary(name)(z, 5):
        assert torch.isfinite(derivative).all(), name
