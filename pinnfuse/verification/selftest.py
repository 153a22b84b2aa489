"""The article's check of an installation, with numbers to compare with."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class SelfTest:
    """`bool(result)` is whether it passed; `str(result)` says on what, and what was off."""

    ok: bool
    version: str
    device: str
    text: str

    def __bool__(self) -> bool:
        return self.ok

    def __str__(self) -> str:
        return f"pinnfuse {self.version} on {self.device}: {self.text}"


def selftest(device: torch.device | str | None = None, size: int = 1024) -> SelfTest:
    """`fused_operator` (Laplacian + reaction) of a size x size float32 field and its gradient, against float64 sums
    of shifted fields.

    Args:
        device: the card if there is one, by default.

    It raises nothing: what goes wrong is in the text. `pinnfuse verify` checks everything.
    """
    import pinnfuse
    from pinnfuse.compat import flashpde

    device = torch.device(device or ("cuda" if torch.cuda.is_available() else "cpu"))
    label = torch.cuda.get_device_name(device) if device.type == "cuda" else "CPU"

    def answer(ok: bool, text: str) -> SelfTest:
        return SelfTest(ok, pinnfuse.__version__, label, text)

    try:
        generator = torch.Generator(device).manual_seed(0)
        x = torch.rand(size, size, device=device, generator=generator).requires_grad_()
        found = flashpde.fused_operator(x, boundary="periodic")
        upstream = torch.rand(size, size, device=device, generator=generator)
        (pulled,) = torch.autograd.grad(found, x, upstream)
        error = max(_error(found, x), _error(pulled, upstream))  # the operator is its own transpose
    except Exception as fault:
        return answer(False, f"failed: {type(fault).__name__}: {(str(fault).splitlines() or [''])[0]}")
    if not error < 2e-6:
        return answer(False, f"failed: a fused operator is off by {error:.1e}, relative. Run `pinnfuse verify`.")
    note = "" if device.type == "cuda" else "; plain torch, since there is no card here to fuse anything on"
    return answer(True, f"success, largest error {error:.1e} (relative){note}")


def _error(found: Tensor, x: Tensor) -> float:
    x = x.detach().double()
    truth = x - 4 * x
    for dim in (0, 1):
        truth = truth + x.roll(1, dim) + x.roll(-1, dim)
    return float((found.detach().double() - truth).abs().max() / truth.abs().max())
