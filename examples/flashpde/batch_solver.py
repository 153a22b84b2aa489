"""A batch of heat problems: the article's loop over samples, and the batch at once."""

import torch

from pinnfuse.bench import benchmark_pair
from pinnfuse.compat import flashpde


def batch_pde_solver(batch: torch.Tensor) -> torch.Tensor:
    """One sample after the other."""
    return torch.stack([flashpde.pde_solver(sample, boundary="periodic") for sample in batch])


def batched(batch: torch.Tensor) -> torch.Tensor:
    """All samples at once."""
    return flashpde.pde_solver(batch, boundary="periodic")


def main(samples: int = 16, size: int | None = None, runs: int = 20) -> float:
    device = "cuda" if torch.cuda.is_available() else "cpu"
    size = size or (256 if device == "cuda" else 32)  # some seconds on either
    u0 = torch.rand(samples, size, size, device=device)
    found = benchmark_pair(batch_pde_solver, batched, u0, ("loop", "batch"), runs=runs)
    print(found)
    return found.max_absolute


if __name__ == "__main__":
    main()
