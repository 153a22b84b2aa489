"""SIREN: sine layers with frequencies and an initialisation of their own."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import torch
from torch import Tensor, nn

from pinnfuse.models.layers import Embedding
from pinnfuse.models.mlp import check_size


class Siren(nn.Module):
    r"""Dense network of sines, $a_{l+1} = \sin(\omega_l (W_l a_l + b_l))$, output $W a + b$.

    $\omega_1$ is `first_frequency`, the others are `frequency`. Weights are uniform, in the first layer within 1 / n,
    in the others within $\sqrt{6 / n} / \omega$ of zero, n the number of inputs, so that every layer's input is normal
    with variance 1. Source: Sitzmann et al., Implicit neural representations with periodic activation functions,
    NeurIPS (2020), arXiv:2006.09661.

    Args:
        in_features, out_features: numbers of coordinates and fields.
        width, depth: neurons of a hidden layer, number of hidden layers.
        first_frequency: of the first layer; 30 for images, 1 to 10 for fields on [-1, 1].
        frequency: of the others.
        harmonics: cosine and sine pairs of each periodic coordinate.
        bounds: interval of each coordinate, mapped to [-1, 1]; None leaves inputs as they are.
        periods: {column: period} of coordinates in which the network is to be exactly periodic.

    Shapes: [N, in_features] -> [N, out_features].
    """

    def __init__(
        self,
        in_features: int,
        out_features: int,
        width: int = 64,
        depth: int = 4,
        first_frequency: float = 5.0,
        frequency: float = 1.0,
        harmonics: int = 1,
        bounds: Sequence[tuple[float, float]] | None = None,
        periods: Mapping[int, float] | None = None,
    ):
        super().__init__()
        check_size("Siren", in_features=in_features, out_features=out_features, width=width, depth=depth)
        for name, value in (("first_frequency", first_frequency), ("frequency", frequency)):
            if not value > 0:
                raise ValueError(f"Siren: `{name}` must be positive; got {value!r}")
        self.embedding = Embedding(in_features, bounds, periods, harmonics)
        widths = [self.embedding.out_features] + depth * [width]
        self.hidden = nn.ModuleList(nn.Linear(a, b) for a, b in zip(widths[:-1], widths[1:], strict=True))
        self.output = nn.Linear(width, out_features)
        self.frequencies = [first_frequency] + (depth - 1) * [frequency]
        limits = [1 / widths[0]] + [math.sqrt(6 / width) / frequency] * depth
        for layer, limit in zip([*self.hidden, self.output], limits, strict=True):
            nn.init.uniform_(layer.weight, -limit, limit)
        nn.init.zeros_(self.output.bias)

    def forward(self, x: Tensor) -> Tensor:
        a = self.embedding(x)
        for layer, frequency in zip(self.hidden, self.frequencies, strict=True):
            a = torch.sin(frequency * layer(a))
        return self.output(a)
