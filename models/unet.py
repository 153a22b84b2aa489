"""U-Net in one to three dimensions, periodic where the grid is.

Source: Ronneberger, Fischer, Brox, U-Net, MICCAI 2015; with residual blocks, group norm and GELU.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional

_CONV: tuple[Any, ...] = (nn.Conv1d, nn.Conv2d, nn.Conv3d)
_MODES = ("linear", "bilinear", "trilinear")


def surround(x: Tensor, periodic: Sequence[bool], low: int = 1, high: int = 1) -> Tensor:
    """Points beyond both ends of every axis: wrapped around where it is periodic, the last one repeated elsewhere."""
    for axis, wraps in enumerate(periodic):
        dim = axis - len(periodic)
        n = x.shape[dim]
        index = torch.arange(-low, n + high, device=x.device)
        x = x.index_select(dim, index % n if wraps else index.clamp(0, n - 1))
    return x


class Block(nn.Module):
    """Two 3-point convolutions with a shortcut, `[B, C, *space]` -> `[B, C', *space]`."""

    def __init__(self, inside: int, outside: int, periodic: Sequence[bool]):
        super().__init__()
        self.periodic = tuple(periodic)
        conv = _CONV[len(self.periodic) - 1]
        groups = 4 if outside % 4 == 0 else 1
        self.first, self.second = conv(inside, outside, 3), conv(outside, outside, 3)
        self.norm = nn.GroupNorm(groups, outside)
        self.shortcut = conv(inside, outside, 1) if inside != outside else nn.Identity()

    def forward(self, x: Tensor) -> Tensor:
        y = functional.gelu(self.norm(self.first(surround(x, self.periodic))))
        return self.shortcut(x) + self.second(surround(y, self.periodic))


class UNet(nn.Module):
    """U-Net, `[B, in_channels, *space]` -> `[B, out_channels, *space]`, on any grid of 2^(depth-1) points or more.

    An axis that cannot be halved evenly is pooled with its last point repeated, and interpolated back to its own size.

    Args:
        in_channels, out_channels: of the fields.
        dimension: 1, 2 or 3.
        periodic: one entry per axis.
        width: channels of the finest level, doubled at each coarser one.
        depth: levels, >= 1.
    """

    def __init__(
        self,
        in_channels: int,
        out_channels: int,
        dimension: int,
        periodic: Sequence[bool],
        width: int = 24,
        depth: int = 3,
    ):
        super().__init__()
        if min(width, depth) < 1 or not 1 <= dimension <= 3:
            raise ValueError(
                f"UNet: `width` and `depth` must be at least 1, `dimension` 1 to 3; got {width}, {depth}, {dimension}."
            )
        self.dimension, self.depth, self.periodic = dimension, depth, tuple(periodic)
        widths = [width * 2**level for level in range(depth)]
        self.lift = _CONV[dimension - 1](in_channels, width, 1)
        self.down = nn.ModuleList(
            Block(a, b, self.periodic) for a, b in zip([width, *widths[:-1]], widths, strict=True)
        )
        self.up = nn.ModuleList(Block(a + b, a, self.periodic) for a, b in zip(widths[:-1], widths[1:], strict=True))
        self.project = _CONV[dimension - 1](width, out_channels, 1)

    def forward(self, x: Tensor) -> Tensor:
        if min(x.shape[2:]) < 2 ** (self.depth - 1):
            raise ValueError(
                f"UNet: with depth {self.depth} every axis needs at least {2 ** (self.depth - 1)} points; got "
                f"{list(x.shape[2:])}. Lower the depth."
            )
        pool = (functional.avg_pool1d, functional.avg_pool2d, functional.avg_pool3d)[self.dimension - 1]
        v = self.lift(x)
        levels: list[Tensor] = []
        for k, block in enumerate(self.down):
            v = block(pool(v, 2, ceil_mode=True) if k else v)
            levels.append(v)
        for k in range(self.depth - 2, -1, -1):
            v = self.up[k](torch.cat([levels[k], self._finer(v, levels[k].shape[2:])], dim=1))
        return self.project(v)

    def _finer(self, v: Tensor, size: torch.Size) -> Tensor:
        """Interpolated to twice the points, across the period where there is one, cut to `size`."""
        wide = surround(v, self.periodic)
        fine = functional.interpolate(wide, scale_factor=2, mode=_MODES[self.dimension - 1], align_corners=False)
        inside: Any = (..., *(slice(2, 2 + n) for n in size))
        return fine[inside]
