"""Softmax over rows of any length: values, gradients, extremes."""

import pytest
import torch

from pinnfuse.kernels.softmax import softmax


@pytest.mark.parametrize("columns", [1, 127, 128, 129, 4096, 9001])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_values_and_gradients(columns, dtype, where) -> None:
    x = (4 * torch.randn(3, columns, dtype=dtype, device=where)).requires_grad_()
    g = torch.randn(3, columns, dtype=dtype, device=where)
    exact = x.detach().double().requires_grad_()
    truth = torch.softmax(exact, -1)
    eager = torch.softmax(x, -1)
    ours = softmax(x)
    (wanted,) = torch.autograd.grad(truth, exact, g.double())
    (theirs,) = torch.autograd.grad(eager, x, g)
    (found,) = torch.autograd.grad(ours, x, g)
    eps = torch.finfo(dtype).eps
    for a, b, c in ((ours.detach(), eager.detach(), truth.detach()), (found, theirs, wanted)):
        # twice eager's own rounding, plus 16 eps: exp of one library or another is off by two units, sums add some
        assert float((a - c).norm()) <= 2 * float((b - c).norm()) + 16 * eps * float(c.norm())


def test_gradcheck_and_any_shape(where) -> None:
    x = torch.randn(2, 3, 5, dtype=torch.float64, device=where).transpose(0, 2).requires_grad_()
    assert torch.autograd.gradcheck(softmax, x)
    assert torch.allclose(softmax(x), torch.softmax(x, -1))


def test_half_precision_and_extremes(where) -> None:
    x = torch.tensor([[1e4, 0.0, -1e4], [float("-inf"), 3.0, 3.0]], device=where)
    assert torch.equal(softmax(x), torch.tensor([[1.0, 0.0, 0.0], [0.0, 0.5, 0.5]], device=where))
    half = torch.randn(4, 33, device=where).half()
    assert (softmax(half).float() - torch.softmax(half.float(), -1)).abs().max() < 5e-4


def test_errors(where) -> None:
    with pytest.raises(ValueError, match="floating point"):
        softmax(torch.ones(3, dtype=torch.int64, device=where))
    x = torch.randn(2, 3, device=where, requires_grad=True)
    with pytest.raises(RuntimeError, match="use torch.softmax"):
        torch.autograd.grad(softmax(x)[0, 0], x, create_graph=True)
