"""Parameters of any shapes and strides seen as one float64 vector."""

from collections.abc import Sequence

import torch
from torch import Tensor


def read_parameters(params: Sequence[Tensor]) -> Tensor:
    """The parameters one after the other, a copy: [n] float64."""
    return torch.cat([p.detach().reshape(-1) for p in params]).to(torch.float64)


def write_parameters(params: Sequence[Tensor], vector: Tensor) -> None:
    """Set the parameters from a vector [n], rounding to each one's dtype. Call it without gradients."""
    parts = vector.split([p.numel() for p in params])
    torch._foreach_copy_(list(params), [part.view(p.shape) for part, p in zip(parts, params, strict=True)])


def read_gradients(params: Sequence[Tensor]) -> Tensor:
    """The gradients one after the other: [n] float64. A parameter without gradient contributes zeros."""
    gradients = [torch.zeros_like(p) if p.grad is None else p.grad for p in params]
    return torch.cat([g.detach().reshape(-1) for g in gradients]).to(torch.float64)


def zero_parts(vector: Tensor, params: Sequence[Tensor], chosen: Sequence[bool]) -> None:
    """Set the entries of the chosen parameters to zero, in place."""
    for part, zero in zip(vector.split([p.numel() for p in params]), chosen, strict=True):
        if zero:
            part.zero_()
