"""What "float32" means for the matrix products of a fused loss.

The choice follows `torch.get_float32_matmul_precision()` unless `precision=` overrides it:

    "highest" -> "float32": as accurate as IEEE float32          "high" -> "tf32": 10-bit mantissa, about 3 digits fewer
    "medium"  -> "bf16x3": two bfloat16 halves, 16 bits           float64 networks -> "float64", always
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any

import torch

_FROM_TORCH = {"highest": "float32", "high": "tf32", "medium": "bf16x3"}
_TO_TORCH = {name: switch for switch, name in _FROM_TORCH.items()}


def resolve(precision: str | None, dtype: torch.dtype, caller: str = "FusedResidualLoss") -> str:
    """One of "float64", "float32", "tf32", "bf16x3".

    Raises:
        ValueError: an unknown name, or one that does not fit the parameters' dtype.
    """
    if precision is not None and precision not in (*_TO_TORCH, *_FROM_TORCH, "float64"):
        raise ValueError(
            f"{caller}: `precision` must be None, 'float32', 'tf32', 'bf16x3', 'float64' (or torch's "
            f"'highest', 'high', 'medium'); got {precision!r}."
        )
    if dtype == torch.float64:
        if precision not in (None, "float64"):
            raise ValueError(
                f"{caller}: `precision={precision!r}` asks for less than the network's float64. Use "
                "precision=None with a float64 network, or convert the network with net.float()."
            )
        return "float64"
    if precision == "float64":
        raise ValueError(
            f"{caller}: `precision='float64'` needs a float64 network; got float32. Convert both with "
            "net.double() and points.double()."
        )
    name = precision or matmul_precision()
    return _FROM_TORCH.get(name, name)


def matmul_precision() -> str:
    """`torch.get_float32_matmul_precision()`, also where `torch.backends.*.fp32_precision` was set: then it raises."""
    try:
        return torch.get_float32_matmul_precision()
    except RuntimeError:
        return "high" if torch.backends.cuda.matmul.fp32_precision == "tf32" else "highest"


@contextmanager
def torch_matmul(precision: str) -> Iterator[None]:
    """Run torch's own products in a resolved precision."""
    before = matmul_precision()
    wanted = _TO_TORCH.get(precision, before)
    if wanted == before:
        yield
        return
    torch.set_float32_matmul_precision(wanted)
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(before)


def no_autocast(device_type: str) -> AbstractContextManager[Any]:
    """Switch autocast off inside; nothing where it is off, since its own switch takes ten microseconds."""
    return torch.autocast(device_type, enabled=False) if torch.is_autocast_enabled(device_type) else nullcontext()


@contextmanager
def torch_convolutions() -> Iterator[None]:
    """Convolutions as accurate as matrix products: by default cuDNN takes TF32 for them, cuBLAS does not.

    Where `torch.backends.cudnn.conv.fp32_precision` says otherwise than that of recurrent layers, it was chosen.
    """
    try:
        before = torch.backends.cudnn.allow_tf32
    except RuntimeError:
        yield
        return
    torch.backends.cudnn.allow_tf32 = before and matmul_precision() != "highest"
    try:
        yield
    finally:
        torch.backends.cudnn.allow_tf32 = before
