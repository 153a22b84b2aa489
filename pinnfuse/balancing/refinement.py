r"""Points where the residual is large: RAD draws all of them anew, RAR-D adds some to those at hand.

Of candidates x with residual r the probability is p ~ |r|^k / mean |r|^k + c. Drawing without replacement takes the
largest of log p + Gumbel noise: one sort on the device, nothing on the host. In a data-parallel run the mean is that
over the candidates of all ranks, and every rank chooses n of its own, which are a sample of the same domain.

Source: Wu, Zhu, Tan, Kartha and Lu, Comput. Methods Appl. Mech. Eng. 403 (2023) 115671; their good values are k = 1,
c = 1 for RAD and k = 2, c = 0 for RAR-D.
"""

from __future__ import annotations

import torch
from torch import Tensor

from pinnfuse import parallel


def rad(
    candidates: Tensor,
    residuals: Tensor,
    n: int,
    k: float = 1.0,
    c: float = 1.0,
    generator: torch.Generator | None = None,
) -> Tensor:
    """[n, d] of the candidates [M, d], without repetition, likelier where the residuals [M, E] are large.

    Raises:
        ValueError: fewer candidates than points, or k, c out of range.
    """
    if n > len(candidates):
        raise ValueError(f"rad: {n} points cannot be chosen from {len(candidates)} candidates. Give more candidates.")
    if k < 0 or c < 0:
        raise ValueError(f"rad: `k` and `c` must be >= 0; got {k!r}, {c!r}.")
    size = residuals.detach().norm(dim=1).pow(k)
    probability = size / parallel.mean(size.mean()).clamp_min(torch.finfo(size.dtype).tiny) + c
    uniform = torch.rand(len(candidates), generator=generator, device=candidates.device, dtype=torch.float64)
    keys = probability.double().log() - torch.log(-torch.log(uniform.clamp_min(1e-300)))
    return candidates[keys.topk(n).indices]


def rar_d(
    points: Tensor,
    candidates: Tensor,
    residuals: Tensor,
    n: int,
    k: float = 2.0,
    c: float = 0.0,
    generator: torch.Generator | None = None,
) -> Tensor:
    """The points [N, d] and n more, chosen by `rad`: [N + n, d]."""
    return torch.cat([points, rad(candidates, residuals, n, k, c, generator)])
