"""Both variants in one trace, under their names; open it in https://ui.perfetto.dev."""

import tempfile

import torch
from rich.console import Console

from pinnfuse import profiling
from pinnfuse.compat import flashpde
from pinnfuse.profiling.comparison import show


def main(size: int = 2048, folder: str | None = None, steps: int = 20) -> profiling.Comparison:
    device = "cuda" if torch.cuda.is_available() else "cpu"
    x = torch.randn(size, size, device=device)
    variants = {"native": lambda: torch.matmul(x, x.T) + x, "fused": lambda: flashpde.fused_matmul_add(x)}
    found = profiling.compare(variants, folder or tempfile.mkdtemp(), device=device, steps=steps)
    show(found, Console(width=120))
    return found


if __name__ == "__main__":
    main()
