"""Memory of an operation at several sizes; the peak counter starts anew each time, which the article's does not."""

import torch
from rich.console import Console

from pinnfuse import profiling
from pinnfuse.compat import flashpde
from pinnfuse.profiling.usage import show


def native(x: torch.Tensor) -> torch.Tensor:
    return x.roll(1, 0) + x.roll(-1, 0) + x.roll(1, 1) + x.roll(-1, 1) - 3 * x


def fused(x: torch.Tensor) -> torch.Tensor:
    return flashpde.fused_operator(x, boundary="periodic")


def main(sizes: tuple[int, ...] = (1024, 2048, 4096)) -> list:
    device = "cuda" if torch.cuda.is_available() else "cpu"
    found = []
    for name, op in (("native", native), ("fused", fused)):
        print(name)
        found.append(profiling.memory(op, sizes, device=device))
        show(found[-1], Console(width=120))
    print(profiling.memory_report(device))
    return found


if __name__ == "__main__":
    main()
