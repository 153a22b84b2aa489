"""Building blocks of coordinate networks: activations, input maps, embeddings, factorised weights.

Every `forward` is straight-line torch, so that `torch.fx.symbolic_trace` sees the whole network and
`pinnfuse.FusedResidualLoss` can run it in closed form.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

import torch
from torch import Tensor, nn

from pinnfuse.errors import nearest


class Sin(nn.Module):
    """sin(z), the activation of SIREN-like networks."""

    def forward(self, z: Tensor) -> Tensor:
        return torch.sin(z)


ACTIVATIONS: dict[str, type[nn.Module]] = {
    "tanh": nn.Tanh,
    "sin": Sin,
    "silu": nn.SiLU,
    "gelu": nn.GELU,
    "softplus": nn.Softplus,
    "sigmoid": nn.Sigmoid,
}


def activation(name: str) -> nn.Module:
    """The smooth activation of that name; ReLU is not among them, since its second derivative vanishes."""
    if name not in ACTIVATIONS:
        raise ValueError(f"activation: unknown {name!r}. {nearest(name, ACTIVATIONS)}")
    return ACTIVATIONS[name]()


class FactorisedLinear(nn.Module):
    r"""Dense layer with random weight factorisation, $W = \mathrm{diag}(e^s)\,V$, $s \sim N(\mu, \sigma^2)$.

    The initial W is Glorot's, as in `nn.Linear` below. Source: Wang et al., arXiv:2210.01274.

    Args:
        in_features, out_features: widths.
        mean, std: of s; the authors use 0.5 to 1 and 0.1.
    """

    def __init__(self, in_features: int, out_features: int, mean: float = 1.0, std: float = 0.1):
        super().__init__()
        weight = nn.init.xavier_normal_(torch.empty(out_features, in_features))
        scale = torch.empty(out_features, 1).normal_(mean, std)
        self.log_scale = nn.Parameter(scale)
        self.direction = nn.Parameter(weight / scale.exp())
        self.bias = nn.Parameter(torch.zeros(out_features))

    def forward(self, x: Tensor) -> Tensor:
        return nn.functional.linear(x, self.log_scale.exp() * self.direction, self.bias)


def dense(in_features: int, out_features: int, factorised: bool = False) -> nn.Module:
    """A dense layer with Glorot weights and zero bias, drawn from torch's global generator."""
    if factorised:
        return FactorisedLinear(in_features, out_features)
    layer = nn.Linear(in_features, out_features)
    nn.init.xavier_normal_(layer.weight)
    nn.init.zeros_(layer.bias)
    return layer


class InputMap(nn.Module):
    r"""Coordinates to features: affine map of bounded columns, exact periodic embedding of the others.

    A bounded column becomes $2 (x - a) / (b - a) - 1$; a column with period P becomes $\cos k\theta, \sin k\theta$ for
    $k = 1 \dots$ `harmonics`, $\theta = 2\pi (x - a) / P$, so the network is periodic with all its derivatives.

    Args:
        bounds: per column the interval (a, b).
        periods: {column: period}.
        harmonics: number of pairs for each periodic column.
    """

    shift: Tensor
    scale: Tensor

    def __init__(
        self, bounds: Sequence[tuple[float, float]], periods: Mapping[int, float] | None = None, harmonics: int = 1
    ):
        super().__init__()
        periods = dict(periods or {})
        if any(not hi > lo for lo, hi in bounds):
            raise ValueError(f"InputMap: `bounds` must hold (low, high) with low < high; got {list(bounds)}")
        if bad := [c for c, p in periods.items() if c not in range(len(bounds)) or not p > 0]:
            raise ValueError(f"InputMap: `periods` needs columns 0..{len(bounds) - 1} and positive periods; see {bad}")
        if harmonics < 1:
            raise ValueError(f"InputMap: `harmonics` must be at least 1; got {harmonics}")
        self._shift = [lo if c in periods else (lo + hi) / 2 for c, (lo, hi) in enumerate(bounds)]
        self._scale = [2 * math.pi / periods[c] if c in periods else 2 / (hi - lo) for c, (lo, hi) in enumerate(bounds)]
        self.register_buffer("shift", torch.tensor(self._shift), persistent=False)
        self.register_buffer("scale", torch.tensor(self._scale), persistent=False)
        self.columns, self.periodic, self.harmonics = len(bounds), sorted(periods), harmonics
        self.out_features = len(bounds) - len(periods) + 2 * harmonics * len(periods)

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> InputMap:
        super()._apply(fn, recurse)
        for name, values in (
            ("shift", self._shift),
            ("scale", self._scale),
        ):  # a period rounded to float32 is another one
            buffer = getattr(self, name)
            setattr(self, name, torch.tensor(values, dtype=buffer.dtype, device=buffer.device))
        return self

    def forward(self, x: Tensor) -> Tensor:
        z = (x - self.shift) * self.scale
        if not self.periodic:
            return z
        features = [z[:, c : c + 1] for c in range(self.columns) if c not in self.periodic]
        for c in self.periodic:
            for k in range(1, self.harmonics + 1):
                angle = k * z[:, c : c + 1] if k > 1 else z[:, c : c + 1]
                features += [torch.cos(angle), torch.sin(angle)]
        return torch.cat(features, dim=1)


class FourierFeatures(nn.Module):
    r"""Random Fourier features $[\cos z B, \sin z B]$ with fixed $B_{ij} \sim N(0, \sigma_i^2)$.

    Source: Tancik et al., arXiv:2006.10739.

    Args:
        in_features: width of z.
        out_features: even number of features.
        scale: sigma; 1 to 10 covers inputs in [-1, 1]. A sequence holds one for each column of z, for solutions that
            vary much faster in one direction than in another.

    Raises:
        ValueError: `out_features` is odd or not positive, or a sequence does not hold one scale per column.
    """

    frequencies: Tensor

    def __init__(self, in_features: int, out_features: int, scale: float | Sequence[float] = 1.0):
        super().__init__()
        if out_features < 2 or out_features % 2:
            raise ValueError(f"FourierFeatures: `out_features` must be even and positive; got {out_features}")
        scales = [float(scale)] * in_features if isinstance(scale, (int, float)) else list(scale)
        if len(scales) != in_features:
            raise ValueError(
                f"FourierFeatures: `scale` must be one number or one for each of {in_features} inputs (bounded columns "
                f"first, then cosine and sine of each periodic one); got {scales}"
            )
        self.register_buffer("frequencies", torch.tensor(scales)[:, None] * torch.randn(in_features, out_features // 2))
        self.out_features = out_features

    def forward(self, z: Tensor) -> Tensor:
        angle = z @ self.frequencies
        return torch.cat([torch.cos(angle), torch.sin(angle)], dim=1)


class Embedding(nn.Sequential):
    """`InputMap`, then random Fourier features if any are asked for; `out_features` is the resulting width."""

    def __init__(
        self,
        in_features: int,
        bounds: Sequence[tuple[float, float]] | None = None,
        periods: Mapping[int, float] | None = None,
        harmonics: int = 1,
        fourier_features: int = 0,
        fourier_scale: float | Sequence[float] = 1.0,
    ):
        super().__init__()
        if bounds is not None and len(bounds) != in_features:
            raise ValueError(f"`bounds` must hold one interval per input, {in_features}; got {len(bounds)}")
        if periods and bounds is None:
            raise ValueError("`periods` needs `bounds`, which say where a period starts")
        self.out_features = in_features
        if bounds is not None:
            self.append(input_map := InputMap(bounds, periods, harmonics))
            self.out_features = input_map.out_features
        if fourier_features:
            self.append(FourierFeatures(self.out_features, fourier_features, fourier_scale))
            self.out_features = fourier_features
