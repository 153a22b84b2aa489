"""Sums, means and agreements over the processes of a data-parallel run. In a single process all of them do nothing.

Processes hold different points of one loss, a mean over points. With n_r of the N points on rank r of R

    L = (1 / R) sum_r s_r L_r,      s_r = R n_r / N,      L_r = mean over the points of rank r

and the gradient is the mean of the s_r g_r. `shares` gives the s_r, which are one where all ranks hold as many points;
`mean_` makes one all-reduce of everything it is given. It works with NCCL and gloo, in CUDA graphs too (NCCL).
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, distributed


def size() -> int:
    """Number of processes, R."""
    return distributed.get_world_size() if distributed.is_available() and distributed.is_initialized() else 1


def lost(error: BaseException) -> bool:
    """Whether an error is what torch raises when another process of the run is gone."""
    words = "gloo|nccl|connection (closed|reset|refused)|broken pipe"
    return size() > 1 and re.search(words, str(error), re.IGNORECASE) is not None


def rank() -> int:
    """Number of this process, from 0."""
    return distributed.get_rank() if size() > 1 else 0


@torch.no_grad()
def mean_(tensors: Sequence[Tensor]) -> None:
    """Replace the tensors by their means over the ranks: one all-reduce of all of them, one after the other.

    Every rank gets the same bits: a sum is formed once and handed to all.
    """
    if size() == 1 or not tensors:
        return
    flat = torch.cat([t.detach().reshape(-1) for t in tensors])
    distributed.all_reduce(flat)
    flat /= size()
    parts = flat.split([t.numel() for t in tensors])
    torch._foreach_copy_(list(tensors), [p.view(t.shape) for p, t in zip(parts, tensors, strict=True)])


@torch.no_grad()
def mean(tensor: Tensor) -> Tensor:
    """The mean over the ranks; the tensor itself in a single process."""
    return tensor if size() == 1 else total(tensor) / size()


@torch.no_grad()
def total(tensor: Tensor) -> Tensor:
    """The sum over the ranks; the tensor itself in a single process."""
    return _reduced(tensor, distributed.ReduceOp.SUM) if size() > 1 else tensor


@torch.no_grad()
def largest(tensor: Tensor) -> Tensor:
    """The element-wise maximum over the ranks; the tensor itself in a single process."""
    return _reduced(tensor, distributed.ReduceOp.MAX) if size() > 1 else tensor


def _reduced(tensor: Tensor, operation: Any) -> Tensor:
    result = tensor.detach().clone(memory_format=torch.contiguous_format)
    distributed.all_reduce(result, operation)
    return result


@torch.no_grad()
def same_(tensors: Sequence[Tensor]) -> None:
    """Give every rank the tensors of rank 0."""
    for tensor in tensors if size() > 1 else ():
        distributed.broadcast(tensor.detach(), 0)


def agreed(*values: Tensor) -> list[float]:
    """Scalars as numbers of the host, for decisions: their means over the ranks, so that all ranks decide alike.

    Ranks hold the same parameters, but a sum on another card may differ in the last digit; a loss is still that of the
    rank's own points, unless it was averaged before.
    """
    return mean(torch.stack([v.detach().to(torch.float64) for v in values])).tolist()


def shares(counts: Sequence[int], device: torch.device) -> Tensor:
    """[T] float64 factors s_r of the terms of a loss, from how many points of each term this rank holds (>= 0)."""
    own = torch.tensor(counts, dtype=torch.float64, device=device)
    return own * size() / total(own) if size() > 1 else torch.ones_like(own)


def gathered(value: Any, device: torch.device | None = None) -> list[Any]:
    """The values of all ranks in order on rank 0, nothing on others. Tensors should be on the CPU: they are pickled.

    Every rank must call it. `device`: of the rank; NCCL carries the bytes through it.
    """
    if size() == 1:
        return [value]
    values: list[Any] = [None] * size() if rank() == 0 else []
    if device is not None and device.type == "cuda":
        torch.cuda.set_device(device)
    distributed.gather_object(value, values or None)
    return values
