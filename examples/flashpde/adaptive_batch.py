"""The largest batch that fits. The article assumes half a GB a sample; here it is measured and tried."""

import torch
from torch import nn

import pinnfuse
from pinnfuse.profiling import auto_batch_size

PDE = pinnfuse.PDE("u", "t x", equations={"burgers": "u_t + u*u_x - 0.01*u_xx"})


def main(fraction: float = 0.8, width: int = 64, largest: int = 2**20, budget: int | None = None) -> tuple:
    device = "cuda" if torch.cuda.is_available() else "cpu"
    net = nn.Sequential(nn.Linear(2, width), nn.Tanh(), nn.Linear(width, width), nn.Tanh(), nn.Linear(width, 1)).to(
        device
    )
    draw = lambda n: torch.rand(n, 2, device=device)  # noqa: E731
    found = []
    for backend in ("autograd", "auto"):
        loss = pinnfuse.FusedResidualLoss(PDE, backend=backend)
        found.append(auto_batch_size(net, loss, fraction, draw=draw, largest=largest, budget=budget))
        print(f"{backend}: {found[-1]}")
    return tuple(found)


if __name__ == "__main__":
    main()
