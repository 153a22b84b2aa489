r"""Weights of the points of one loss term: modules with buffers, updated in place from the residuals of a step.

In a training step of your own (all of it can be captured in a CUDA graph; the state is in `state_dict()`):

    out = loss_fn.evaluate(net, points, point_weights=weights(points))
    out.loss.backward()
    weights.update(points, out.residuals)

`ResidualAttention` and `SelfAdaptive` belong to fixed points (one weight each); `CausalWeights` to any. In a
data-parallel run maxima, means and sums are those of the points of all ranks; a rank keeps the weights of its own.

Sources: Anagnostopoulos et al., Comput. Methods Appl. Mech. Eng. 421 (2024) 116805 (attention); McClenny and
Braga-Neto, J. Comput. Phys. 474 (2023) 111722 (self-adaptive); Wang, Sankaran and Perdikaris, Comput. Methods Appl.
Mech. Eng. 421 (2024) 116813 (causal).
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from pinnfuse import parallel


class PointWeights(nn.Module):
    """Base: `module(points)` gives weights [N] >= 0 without gradient, `update` changes them."""

    def forward(self, points: Tensor) -> Tensor:
        raise NotImplementedError

    def update(self, points: Tensor, residuals: Tensor) -> None:
        """Learn from the residuals [N, E] at the points [N, d], both detached."""
        raise NotImplementedError


class PerPointWeights(PointWeights):
    """One number for each of a fixed set of points."""

    value: Tensor  # of the points of this rank

    def __init__(self, points: int, start: float):
        super().__init__()
        self.register_buffer("value", torch.full((points,), start))

    def _checked(self, points: Tensor) -> None:
        if len(points) != len(self.value):
            raise ValueError(
                f"{type(self).__name__}: made for {len(self.value)} points, but got {len(points)}. These weights "
                "belong to fixed points: keep their number, and draw them once (training.resample_every 0)."
            )


class ResidualAttention(PerPointWeights):
    r"""lambda_n <- decay lambda_n + rate |r_n| / max |r|; the weight is lambda_n^2.

    Args:
        points: N.
        rate, decay: lambda tends to at most rate / (1 - decay).
    """

    def __init__(self, points: int, rate: float = 0.01, decay: float = 0.999):
        if not (0 < rate < math.inf and 0 < decay < 1):
            raise ValueError(f"ResidualAttention: expected `rate` > 0 and `decay` in (0, 1); got {rate!r}, {decay!r}.")
        super().__init__(points, rate / (1 - decay) / 10)
        self.rate, self.decay = rate, decay

    def forward(self, points: Tensor) -> Tensor:
        self._checked(points)
        return self.value.to(points).square()

    @torch.no_grad()
    def update(self, points: Tensor, residuals: Tensor) -> None:
        size = residuals.norm(dim=1)
        share = size / parallel.largest(size.max()).clamp_min(torch.finfo(size.dtype).tiny)
        self.value.mul_(self.decay).add_(share.to(self.value), alpha=self.rate)


class SelfAdaptive(PerPointWeights):
    r"""Weights trained by ascent of the loss: lambda_n <- lambda_n + rate r_n^2 lambda_n, the weight is lambda_n^2.

    (The gradient of mean lambda^2 r^2 is 2 lambda r^2 / N; the factor is in the rate.) The mean of lambda^2 is kept
    at 1, so that the weights move the loss between points without enlarging it.

    Args:
        points: N.
        rate: of the ascent, for residuals divided by their root mean square.
    """

    def __init__(self, points: int, rate: float = 0.01):
        if not 0 < rate < math.inf:
            raise ValueError(f"SelfAdaptive: `rate` must be positive and finite; got {rate!r}.")
        super().__init__(points, 1.0)
        self.rate = rate

    def forward(self, points: Tensor) -> Tensor:
        self._checked(points)
        return self.value.to(points).square()

    @torch.no_grad()
    def update(self, points: Tensor, residuals: Tensor) -> None:
        squares = residuals.square().sum(1)
        squares = squares / _mean(squares).clamp_min(torch.finfo(squares.dtype).tiny)
        self.value.addcmul_(self.value, squares.to(self.value), value=self.rate)
        self.value.div_(_mean(self.value.square()).sqrt())


class CausalWeights(PointWeights):
    r"""Weights that hold back later times until earlier ones are solved.

    Time is cut into M pieces with mean squared residuals L_k, and a point of piece i weighs
    $w_i = \exp(-\epsilon \sum_{k<i} L_k)$. The L_k are those of the steps before, so a step costs no second pass.

    Args:
        column: of time in the points.
        start, end: of time.
        pieces: M.
        tolerance: epsilon.
        memory: factor of the old L_k in their running mean, in [0, 1); 0 takes the last step's.
    """

    losses: Tensor

    def __init__(
        self, column: int, start: float, end: float, pieces: int = 32, tolerance: float = 1.0, memory: float = 0.0
    ):
        super().__init__()
        if not (end > start and pieces >= 1 and tolerance >= 0 and 0 <= memory < 1):
            raise ValueError(
                "CausalWeights: expected start < end, `pieces` >= 1, `tolerance` >= 0, `memory` in [0, 1); "
                f"got ({start}, {end}), {pieces}, {tolerance}, {memory}."
            )
        self.column, self.start, self.end = column, start, end
        self.pieces, self.tolerance, self.memory = pieces, tolerance, memory
        self.register_buffer("losses", torch.zeros(pieces))

    @property
    def piece_weights(self) -> Tensor:
        """[M] weights of the pieces; the last one near 1 means that all times are trained."""
        before = torch.nn.functional.pad(torch.cumsum(self.losses[:-1], 0), (1, 0))  # a difference would cancel
        return torch.exp(-self.tolerance * before)

    def _piece(self, points: Tensor) -> Tensor:
        share = (points[:, self.column] - self.start) / (self.end - self.start)
        return (share * self.pieces).long().clamp(0, self.pieces - 1)

    def forward(self, points: Tensor) -> Tensor:
        return self.piece_weights[self._piece(points)].to(points)

    @torch.no_grad()
    def update(self, points: Tensor, residuals: Tensor) -> None:
        squares = residuals.square().sum(1).to(self.losses)
        piece = self._piece(points)
        zero = torch.zeros_like(self.losses)
        own = zero.index_add(0, piece, squares), zero.index_add(0, piece, torch.ones_like(squares))
        total, count = parallel.total(torch.stack(own)).unbind(0)
        mean = torch.where(count > 0, total / count.clamp_min(1), self.losses)
        self.losses.mul_(self.memory).add_(mean, alpha=1 - self.memory)


def _mean(values: Tensor) -> Tensor:
    """Over the points of all ranks, which may hold different numbers of them."""
    if parallel.size() == 1:
        return values.mean()
    total, count = parallel.total(torch.stack([values.sum(), values.new_full((), float(len(values)))])).unbind(0)
    return total / count
