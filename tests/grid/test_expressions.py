"""Operators from text: against torch, with their adjoints, at walls, in kernels and without."""

import pytest
import torch

from pinnfuse import Grid
from pinnfuse.grid import Dirichlet, expression, gradient, laplacian

WALLS = Grid("x y", (0.5, 0.7), boundary={"x": (Dirichlet(0.3), "neumann"), "y": "periodic"}, order=4, centring="cell")


def field(*shape, where="cpu"):
    return torch.randn(*shape, dtype=torch.float64, device=where, requires_grad=True)


def test_pointwise():
    swish = expression("u / (1 + exp(-u))", Grid("x", 0.1, boundary="one-sided"))
    u = field(3, 2, 9)
    assert torch.allclose(swish(u), torch.nn.functional.silu(u))
    assert torch.autograd.gradcheck(swish, u)


def test_with_derivatives_parameters_and_several_fields():
    rate = expression("k*(u_xx + u_yy) - u*u_x + sin(v)", WALLS, fields="u v", k=0.1)
    u, v = field(2, 12, 13), field(12, 13)
    truth = 0.1 * laplacian(u, WALLS) - u * gradient(u, WALLS)[:, 0] + v.sin()
    assert torch.allclose(rate(u, v), truth)
    assert torch.autograd.gradcheck(rate, (field(8, 9), field(8, 9)))


def test_the_kernel(interpreter, where):
    texts = ("u / (1 + exp(-u))", "0.1*(u_xx + u_yy) - u*u_x")
    for text in texts:
        u = field(2, 11, 20, where=where)
        ours, plain = (expression(text, WALLS, backend=b)(u) for b in ("triton", "torch"))
        upstream = torch.randn_like(plain)
        grads = [torch.autograd.grad(found, u, upstream)[0] for found in (ours, plain)]
        assert torch.allclose(ours, plain, atol=1e-12) and torch.allclose(*grads, atol=1e-12)


def test_one_operator_for_one_text():
    assert expression("u_x", WALLS) is expression("u_x", WALLS)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: expression("w_x", WALLS), "w"),
        (lambda: expression("u_x", WALLS)(torch.zeros(9, 9), torch.zeros(9, 9)), "takes one tensor"),
        (lambda: expression("u_x", WALLS)(torch.zeros(9)), "must be"),
    ],
)
def test_bad_input(make, message):
    with pytest.raises(ValueError, match=message):
        make()
