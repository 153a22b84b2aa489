"""A product, alone and with what follows it in the same kernel."""

import torch

from pinnfuse.compat import flashpde


def main(m: int = 1024, k: int = 512, n: int = 256) -> float:
    device = "cuda" if torch.cuda.is_available() else "cpu"
    a, b = torch.randn(m, k, device=device), torch.randn(k, n, device=device)
    bias = torch.randn(n, device=device)
    product = flashpde.fused_matmul(a, b)
    layer = flashpde.fused_matmul(a, b, bias, "tanh")
    exact = a.double() @ b.double()
    errors = [float((product - exact).abs().max()), float((layer - (exact + bias.double()).tanh()).abs().max())]
    print(f"{list(product.shape)}: product off by {errors[0]:.1e}, layer by {errors[1]:.1e}")
    return max(errors)


if __name__ == "__main__":
    main()
