"""Dense networks from coordinates to fields."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from torch import Tensor, nn

from pinnfuse.models.layers import Embedding, dense
from pinnfuse.models.layers import activation as make_activation


def check_size(name: str, **sizes: int) -> None:
    """Raise ValueError unless every size is a positive integer."""
    for key, value in sizes.items():
        if not isinstance(value, int) or value < 1:
            raise ValueError(f"{name}: `{key}` must be a positive integer; got {value!r}")


class MLP(nn.Module):
    r"""Dense network, $a_0 = e(x)$, $a_{l+1} = s(W_l a_l + b_l)$, output $W a + b$.

    With `residual=True` a hidden layer of equal widths adds its input, $a_{l+1} = a_l + s(W_l a_l + b_l)$.

    Args:
        in_features: number of coordinates.
        out_features: number of fields.
        width: neurons of each hidden layer.
        depth: number of hidden layers.
        activation: tanh, sin, silu, gelu, softplus or sigmoid.
        residual: skip connections around hidden layers.
        fourier_features: number of random Fourier features (even); 0 for none.
        fourier_scale: standard deviation of their frequencies, for inputs in [-1, 1]; or one for each input, bounded
            coordinates first, then cosine and sine of each periodic one.
        harmonics: cosine and sine pairs of each periodic coordinate.
        weight_factorisation: random weight factorisation of every layer.
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
        activation: str = "tanh",
        residual: bool = False,
        fourier_features: int = 0,
        fourier_scale: float | Sequence[float] = 1.0,
        harmonics: int = 1,
        weight_factorisation: bool = False,
        bounds: Sequence[tuple[float, float]] | None = None,
        periods: Mapping[int, float] | None = None,
    ):
        super().__init__()
        check_size("MLP", in_features=in_features, out_features=out_features, width=width, depth=depth)
        self.embedding = Embedding(in_features, bounds, periods, harmonics, fourier_features, fourier_scale)
        widths = [self.embedding.out_features] + depth * [width]
        self.hidden = nn.ModuleList(
            dense(a, b, weight_factorisation) for a, b in zip(widths[:-1], widths[1:], strict=True)
        )
        self.activation = make_activation(activation)
        self.output = dense(width, out_features, weight_factorisation)
        self.skip = [residual and a == b for a, b in zip(widths[:-1], widths[1:], strict=True)]

    def forward(self, x: Tensor) -> Tensor:
        a = self.embedding(x)
        for layer, skip in zip(self.hidden, self.skip, strict=True):
            h = self.activation(layer(a))
            a = a + h if skip else h
        return self.output(a)


class ModifiedMLP(nn.Module):
    r"""Gated network, $a_{l+1} = s_l \odot p + (1 - s_l) \odot q$ with $s_l = s(W_l a_l + b_l)$.

    The gates are $p = s(W_p e + b_p)$, $q = s(W_q e + b_q)$ of the embedded input e. Source: Wang, Teng, Perdikaris,
    SIAM J. Sci. Comput. 43 (2021) A3055, arXiv:2001.04536. Arguments as in `MLP`.
    """

    def __init__(
        self,
        in_features: int,
        out_features: int,
        width: int = 64,
        depth: int = 4,
        activation: str = "tanh",
        fourier_features: int = 0,
        fourier_scale: float | Sequence[float] = 1.0,
        harmonics: int = 1,
        weight_factorisation: bool = False,
        bounds: Sequence[tuple[float, float]] | None = None,
        periods: Mapping[int, float] | None = None,
    ):
        super().__init__()
        check_size("ModifiedMLP", in_features=in_features, out_features=out_features, width=width, depth=depth)
        self.embedding = Embedding(in_features, bounds, periods, harmonics, fourier_features, fourier_scale)
        first = self.embedding.out_features
        self.gate_p = dense(first, width, weight_factorisation)
        self.gate_q = dense(first, width, weight_factorisation)
        widths = [first] + depth * [width]
        self.hidden = nn.ModuleList(
            dense(a, b, weight_factorisation) for a, b in zip(widths[:-1], widths[1:], strict=True)
        )
        self.activation = make_activation(activation)
        self.output = dense(width, out_features, weight_factorisation)

    def forward(self, x: Tensor) -> Tensor:
        a = self.embedding(x)
        p = self.activation(self.gate_p(a))
        q = self.activation(self.gate_q(a))
        for layer in self.hidden:
            s = self.activation(layer(a))
            a = q + s * (p - q)
        return self.output(a)
