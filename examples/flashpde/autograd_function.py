"""A function whose backward is written by hand, and a check that it is right."""

import torch

from pinnfuse.compat import flashpde


def main(size: int = 1000) -> float:
    device = "cuda" if torch.cuda.is_available() else "cpu"
    x = torch.randn(size, device=device, requires_grad=True)
    y = flashpde.optimized_function(x).sum()
    y.backward()
    few = x.detach()[:20].double().requires_grad_()
    assert torch.autograd.gradcheck(flashpde.optimized_function, few)
    (native,) = torch.autograd.grad(torch.nn.functional.silu(x).sum(), x)
    error = float((x.grad - native).abs().max())
    print(f"y = {y.item():.4f}; gradient differs from torch's by {error:.1e}")
    return error


if __name__ == "__main__":
    main()
