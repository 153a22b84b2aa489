"""The loop of `pinnfuse verify`."""

from __future__ import annotations

import platform
import warnings
from collections.abc import Callable
from dataclasses import asdict, dataclass
from importlib.metadata import PackageNotFoundError, version
from typing import Any

import torch

from pinnfuse import BackendUnavailable
from pinnfuse.jets import NotRecognised, recognise
from pinnfuse.verification.cases import WithoutClosedForm, cases
from pinnfuse.verification.compare import Comparison


@dataclass(frozen=True)
class Row:
    """One comparison. `status`: "ok", "failed", or "skipped" with the reason in `note`."""

    pde: str
    network: str
    path: str
    dtype: str
    status: str
    quantity: str = ""
    error: float | None = None
    bound: float | None = None
    note: str = ""

    @property
    def case(self) -> str:
        return f"{self.pde}, {self.network}"

    @property
    def group(self) -> str:
        """Problems, or what all networks and activations are tried on."""
        return {"all features": "networks", "fourth order": "fourth derivatives"}.get(self.pde, "problems")

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)


def run(device: torch.device, quick: bool = False, report: Callable[[str], None] = lambda text: None) -> list[Row]:
    """Compare every case in every way that can run on `device`; `report` is told what is being done.

    With `quick`, 33 points instead of 1,025; neither is a multiple of a tile.
    """
    rows: list[Row] = []
    broken = ""  # why Triton is not tried again
    for pde_name, network, pde, net, points in cases(33 if quick else 1025):
        report(f"{pde_name}, {network}")
        net, points = net.to(device), points.to(device)
        comparison = Comparison(pde, net, points)
        unknown = _unknown(net, points.shape[1])
        for path in ("closed form", "forward mode", "triton"):
            for dtype in (torch.float32, torch.float64):
                key = pde_name, network, path, str(dtype).removeprefix("torch.")
                if path == "closed form" and unknown:
                    rows.append(Row(*key, "failed", note=f"not recognised: {unknown}"))
                    continue
                if path == "triton" and broken:
                    rows.append(Row(*key, "skipped", note=broken))
                    continue
                try:
                    other = WithoutClosedForm(net) if path == "forward mode" else None
                    backend = "triton" if path == "triton" else "torch"
                    with warnings.catch_warnings():
                        warnings.simplefilter("ignore")  # forward mode is what was asked for
                        quantity, error, bound = comparison.worst(backend, dtype, other)
                except BackendUnavailable as reason:
                    rows.append(Row(*key, "skipped", note=_short(str(reason))))
                except NotImplementedError as reason:
                    if path != "forward mode":
                        raise
                    rows.append(Row(*key, "skipped", note=f"torch: {_short(str(reason))}"))  # forward AD lacks some
                except Exception as fault:
                    if path != "triton":
                        raise
                    broken = "Triton failed before"
                    rows.append(Row(*key, "failed", note=_failure(fault, device)))
                else:
                    rows.append(Row(*key, "ok" if error <= bound else "failed", quantity, error, bound))
    return rows


def _unknown(net: torch.nn.Module, width: int) -> str:
    """Why a network has no closed form, "" if it has one: all of ours must have one."""
    try:
        recognise(net, width)
    except NotRecognised as reason:
        return str(reason)
    return ""


def _short(reason: str) -> str:
    return reason.removeprefix("backend 'triton' was asked for but cannot run: ").partition(". Available here")[0]


def _failure(error: Exception, device: torch.device) -> str:
    """What a report of a compiler's failure must hold."""
    text = next((line.strip() for line in reversed(str(error).splitlines()) if line.strip()), "no message")
    card = "CPU"
    if device.type == "cuda":
        major, minor = torch.cuda.get_device_capability(device)
        card = f"{torch.cuda.get_device_name(device)} (sm_{major}{minor})"
    try:
        triton = version("triton")
    except PackageNotFoundError:
        triton = "not installed"
    return (
        f"{type(error).__name__}: {text[:300]} [triton {triton}, torch {torch.__version__}, "
        f"python {platform.python_version()}, {card}]. Use backend='torch' meanwhile, and report this line."
    )


__all__ = ["Row", "run"]
