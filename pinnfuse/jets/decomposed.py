"""Functions whose higher derivatives torch gets wrong or lacks, written in functions that it differentiates rightly.

torch 2.13: `layer_norm` is wrong from the third reverse and the second nested forward derivative on (the parameter
gradient of a second-order PDE is a third one), `instance_norm` from the second nested forward derivative; `glu` has no
nested forward derivative, and the fused attention kernels have neither a second reverse nor a forward one.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.overrides import TorchFunctionMode


class Decomposed(TorchFunctionMode):
    """While active, those functions run in their elementary form."""

    def __enter__(self) -> Decomposed:
        self._plain_attention = sdpa_kernel(SDPBackend.MATH)  # a mode does not see it inside multi_head_attention
        self._plain_attention.__enter__()
        super().__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        super().__exit__(*error)
        self._plain_attention.__exit__(*error)

    def __torch_function__(self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None) -> Any:
        return _DECOMPOSED.get(func, func)(*args, **(kwargs or {}))


def _normalised(x: Tensor, dims: list[int], eps: float) -> Tensor:
    centred = x - x.mean(dims, keepdim=True)
    return centred * torch.rsqrt(centred.square().mean(dims, keepdim=True) + eps)


def _layer_norm(
    input: Tensor,
    normalized_shape: Sequence[int],
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    eps: float = 1e-5,
    cudnn_enable: bool = True,
) -> Tensor:
    y = _normalised(input, list(range(-len(normalized_shape), 0)), eps)
    y = y if weight is None else y * weight
    return y if bias is None else y + bias


def _instance_norm(
    input: Tensor,
    running_mean: Tensor | None = None,
    running_var: Tensor | None = None,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    use_input_stats: bool = True,
    momentum: float = 0.1,
    eps: float = 1e-5,
) -> Tensor:
    if running_mean is not None or not use_input_stats:
        return functional.instance_norm(input, running_mean, running_var, weight, bias, use_input_stats, momentum, eps)
    shape = (1, -1, *[1] * (input.dim() - 2))
    y = _normalised(input, list(range(2, input.dim())), eps)
    y = y if weight is None else y * weight.view(shape)
    return y if bias is None else y + bias.view(shape)


def _glu(input: Tensor, dim: int = -1) -> Tensor:
    a, b = input.chunk(2, dim)
    return a * torch.sigmoid(b)


_DECOMPOSED: dict[Any, Callable[..., Any]] = {
    torch.layer_norm: _layer_norm,
    functional.layer_norm: _layer_norm,
    functional.instance_norm: _instance_norm,
    functional.glu: _glu,
}
