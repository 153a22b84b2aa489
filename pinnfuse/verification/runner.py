"""Networks and PDEs of `pinnfuse verify`: rows, and the tasks that find them."""

from __future__ import annotations

import warnings
from dataclasses import asdict, dataclass
from typing import Any

import torch

from pinnfuse import BackendUnavailable
from pinnfuse.jets import NotRecognised, recognise
from pinnfuse.models import ACTIVATIONS
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


QUICK_FORWARD = ("poisson_nd", "all features, tanh", "fourth order, tanh")
"""What quick runs take through forward mode: a Laplacian of many coordinates, nonlinear and mixed terms, order 4."""


@dataclass(frozen=True)
class NetworkTask:
    """A case by its name, one path or several, and dtypes; `count` points, which is no multiple of a tile."""

    name: str
    paths: tuple[str, ...]
    dtypes: tuple[str, ...]
    count: int

    @property
    def label(self) -> str:
        return f"{self.name}, {', '.join((*self.paths, *self.dtypes))}"

    @property
    def seconds(self) -> float:
        """On a core: kernels to compile, or operations of forward mode."""
        if "triton" in self.paths:
            return 40.0 if self.name.startswith("fourth order") else 15.0
        return 3.0 if "forward mode" in self.paths else 1.0

    def rows(self, device: torch.device) -> list[Row]:
        pde_name, network, pde, net, points = cases()[self.name](self.count)
        net, points = net.to(device), points.to(device)
        comparison = Comparison(pde, net, points)
        unknown = _unknown(net, points.shape[1])
        found = []
        for path in self.paths:
            for text in self.dtypes:
                key = pde_name, network, path, text
                if path == "closed form" and unknown:
                    found.append(Row(*key, "failed", note=f"not recognised: {unknown}"))
                else:
                    found.append(_compared(key, comparison, net))
        return found

    def lost(self, why: str) -> Row:
        pde, _, network = self.name.partition(", ")
        return Row(pde, network, " and ".join(self.paths), " and ".join(self.dtypes), "failed", note=why)


def network_tasks(device: torch.device, quick: bool = False) -> list[NetworkTask]:
    """Every case in every way.

    With `quick`, 33 points instead of 1,025; activations by the equation of fourth order alone, which takes every
    derivative that others take; forward mode on `QUICK_FORWARD`; kernels in float64 on networks, not on problems.
    """
    count = 33 if quick else 1025
    both = ("float32", "float64")
    found = []
    for name in cases():
        pde, _, network = name.partition(", ")
        if quick and pde == "all features" and network in ACTIVATIONS and network != "tanh":
            continue
        forward = ("forward mode",) if not quick or name in QUICK_FORWARD else ()
        found.append(NetworkTask(name, ("closed form", *forward), both, count))
        kernels = both if not quick or pde == "all features" or device.type != "cuda" else ("float32",)
        if device.type == "cuda":
            found += [NetworkTask(name, ("triton",), (dtype,), count) for dtype in kernels]
        else:
            found.append(NetworkTask(name, ("triton",), kernels, count))
    return found


def _compared(key: tuple[str, str, str, str], comparison: Comparison, net: torch.nn.Module) -> Row:
    _, _, path, text = key
    try:
        other = WithoutClosedForm(net) if path == "forward mode" else None
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # forward mode is what was asked for
            backend = "triton" if path == "triton" else "torch"
            quantity, error, bound = comparison.worst(backend, getattr(torch, text), other)
    except BackendUnavailable as reason:
        return Row(*key, "skipped", note=_short(str(reason)))
    except NotImplementedError as reason:
        if path != "forward mode":
            raise
        return Row(*key, "skipped", note=f"torch: {_short(str(reason))}")  # forward AD lacks some
    return Row(*key, "ok" if error <= bound else "failed", quantity, error, bound)


def _unknown(net: torch.nn.Module, width: int) -> str:
    """Why a network has no closed form, "" if it has one: all of ours must have one."""
    try:
        recognise(net, width)
    except NotRecognised as reason:
        return str(reason)
    return ""


def _short(reason: str) -> str:
    return reason.removeprefix("backend 'triton' was asked for but cannot run: ").partition(". Available here")[0]
