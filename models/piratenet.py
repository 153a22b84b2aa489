"""PirateNet: gated residual blocks that start as the identity."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import torch
from torch import Tensor, nn

from pinnfuse.models.layers import Embedding, dense
from pinnfuse.models.layers import activation as make_activation
from pinnfuse.models.mlp import check_size


class PirateBlock(nn.Module):
    r"""One block: $f = s(W_1 a)$, $g = f p + (1 - f) q$, $h = s(W_2 g)$, $k = h p + (1 - h) q$,
    $a' = \alpha\, s(W_3 k) + (1 - \alpha)\, a$, with the trained scalar $\alpha$ zero at first.
    """

    def __init__(self, width: int, activation: str, weight_factorisation: bool):
        super().__init__()
        self.first, self.second, self.third = (dense(width, width, weight_factorisation) for _ in range(3))
        self.activation = make_activation(activation)
        self.alpha = nn.Parameter(torch.zeros(1))

    def forward(self, a: Tensor, p: Tensor, q: Tensor) -> Tensor:
        g = q + self.activation(self.first(a)) * (p - q)
        k = q + self.activation(self.second(g)) * (p - q)
        return a + self.alpha * (self.activation(self.third(k)) - a)


class PirateNet(nn.Module):
    """Physics-informed residual adaptive network. Source: Wang et al., arXiv:2402.00326.

    Starts as a linear map of its Fourier features. Arguments as in `MLP`, except:

    Args:
        depth: number of blocks of three dense layers.
        width: neurons of each layer, equal to the number of Fourier features; even.
    """

    def __init__(
        self,
        in_features: int,
        out_features: int,
        width: int = 64,
        depth: int = 2,
        activation: str = "tanh",
        fourier_scale: float | Sequence[float] = 1.0,
        harmonics: int = 1,
        weight_factorisation: bool = True,
        bounds: Sequence[tuple[float, float]] | None = None,
        periods: Mapping[int, float] | None = None,
    ):
        super().__init__()
        check_size("PirateNet", in_features=in_features, out_features=out_features, width=width, depth=depth)
        self.embedding = Embedding(in_features, bounds, periods, harmonics, width, fourier_scale)
        self.activation = make_activation(activation)
        self.gate_p = dense(width, width, weight_factorisation)
        self.gate_q = dense(width, width, weight_factorisation)
        self.blocks = nn.ModuleList(PirateBlock(width, activation, weight_factorisation) for _ in range(depth))
        self.output = dense(width, out_features, weight_factorisation)

    def forward(self, x: Tensor) -> Tensor:
        a = self.embedding(x)
        p = self.activation(self.gate_p(a))
        q = self.activation(self.gate_q(a))
        for block in self.blocks:
            a = block(a, p, q)
        return self.output(a)
