"""x x^T + x as two operations and as one: times, their ratio, the largest difference."""

import torch

from pinnfuse.bench import benchmark_pair
from pinnfuse.compat import flashpde


def main(size: int | None = None, runs: int = 100) -> dict:
    device = "cuda" if torch.cuda.is_available() else "cpu"
    size = size or (2048 if device == "cuda" else 512)  # some seconds on either
    x = torch.randn(size, size, device=device)
    for precision in ("highest", "high"):  # float32-accurate, then TF32; for both variants
        torch.set_float32_matmul_precision(precision)
        found = benchmark_pair(lambda x: x @ x.T + x, flashpde.fused_matmul_add, x, runs=runs)
        print(f"float32 products: {precision}\n{found}")
    torch.set_float32_matmul_precision("highest")
    return found.as_dict()


if __name__ == "__main__":
    main()
