"""The backends of network residuals, and how one is chosen.

    "autograd"  nested torch.autograd.grad: any network, any device, differentiable again; the baseline
    "torch"     closed-form jets in bounded memory for recognised networks, nested forward mode for the others
    "triton"    one fused kernel for recognised networks on CUDA
    "auto"      the fastest of these that can run here; says once what it picked

An explicit choice never falls back.
"""

from __future__ import annotations

import functools
import importlib.util
import logging
import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from pinnfuse.errors import BackendUnavailable, nearest
from pinnfuse.jets import ClosedFormEngine, ForwardModeEngine, JetEngine, NotRecognised, Output, Recognised, recognise
from pinnfuse.jets.plan import JetPlan
from pinnfuse.jets.space import ChannelSpace
from pinnfuse.jets.trial import forward_mode_obstacle

BACKENDS = ("auto", "autograd", "torch", "triton")
NO_CLOSED_FORM = "no closed form: "
log = logging.getLogger("pinnfuse")


@dataclass(frozen=True)
class Choice:
    """A backend for one network: `path` is "nested autograd", "closed form", "forward mode" or "fused kernel"."""

    backend: str
    path: str
    reason: str
    recognised: Recognised | None


def check_name(backend: str, caller: str) -> None:
    if backend not in BACKENDS:
        raise ValueError(f"{caller}: unknown `backend`; got {backend!r}. {nearest(str(backend), BACKENDS)}")


def choose(backend: str, net: nn.Module, points: Tensor, space: ChannelSpace, plan: JetPlan | None) -> Choice:
    """Which path runs `net` on these points, for the channels of `space`; `plan` is None for bare derivatives.

    Raises:
        BackendUnavailable: an explicit "triton" that cannot run, with the reason.
    """
    if backend == "autograd":
        return Choice("autograd", "nested autograd", "asked for", None)
    try:
        recognised, unknown = recognise(net, points.shape[1]), ""
    except NotRecognised as reason:
        recognised, unknown = None, str(reason)
    if backend in ("triton", "auto"):
        obstacle = f"the network has no closed form: {unknown}" if unknown else ""
        obstacle = obstacle or _triton_obstacle(recognised, points, space, plan)
        if not obstacle:
            assert recognised is not None
            return _said(Choice("triton", "fused kernel", _triton_path(recognised, plan), recognised), backend)
        if backend == "triton":
            raise BackendUnavailable(
                f"backend 'triton' was asked for but cannot run: {obstacle}. Available here: 'torch', "
                "'autograd', or 'auto'."
            )
    if recognised is not None:
        return _said(Choice("torch", "closed form", "the network is recognised", recognised), backend)
    collapsed = (alpha for operator in space.operators for alpha, _ in operator.terms)
    obstacle = forward_mode_obstacle(net, points, tuple(dict.fromkeys((*space.indices, *collapsed))))
    if not obstacle:
        return _said(Choice("torch", "forward mode", NO_CLOSED_FORM + unknown, None), backend)
    if backend == "torch":
        raise BackendUnavailable(
            f"backend 'torch' was asked for but cannot run: no closed form ({unknown}), and {obstacle}. "
            "Available here: 'autograd', or 'auto'."
        )
    return _said(Choice("autograd", "nested autograd", f"{NO_CLOSED_FORM}{unknown}; {obstacle}", None), backend)


def recognised(net: nn.Module, points: Tensor, caller: str) -> Recognised:
    """The closed-form program of `net`, for what only closed-form jets can do.

    Raises:
        BackendUnavailable: it has none, with the reason.
    """
    try:
        return recognise(net, points.shape[1])
    except NotRecognised as reason:
        raise BackendUnavailable(
            f"{caller} needs a network in closed form, and this one has none: {reason}. Use dense layers and known "
            "activations, or a method that needs gradients only."
        ) from None


def _triton_obstacle(recognised: Recognised | None, points: Tensor, space: ChannelSpace, plan: JetPlan | None) -> str:
    """Why the fused kernel cannot run, "" if it can."""
    if not _triton_installed():
        return "Triton is not installed (it exists for Linux only)"
    from pinnfuse.kernels import jets  # the only place that may import triton

    return jets.obstacle(recognised, points, plan) or jets.too_large(space)


def _triton_path(recognised: Recognised, plan: JetPlan | None) -> str:
    """Which kernels run the network."""
    from pinnfuse.kernels import jets

    return jets.path(recognised.program, plan).reason


@functools.cache
def _triton_installed() -> bool:
    return importlib.util.find_spec("triton") is not None  # walks through sys.path where it is not


_announced: set[tuple[str, str, str]] = set()


def _said(choice: Choice, asked: str) -> Choice:
    """Say once what `auto` picked; a slower path than closed form is worth a warning, whoever asked for it."""
    key = (asked, choice.path, choice.reason)
    if key not in _announced:
        _announced.add(key)
        if choice.path in ("forward mode", "nested autograd"):
            warnings.warn(
                f"pinnfuse runs this network by nested {choice.path.removeprefix('nested ')}, slower than closed form: "
                f"{choice.reason.removeprefix(NO_CLOSED_FORM)}. loss_fn.explain(net, points) lists the known layers.",
                stacklevel=5,
            )
        elif asked == "auto":
            log.info("backend 'auto' picked %r (%s): %s", choice.backend, choice.path, choice.reason)
    return choice


def engine(
    choice: Choice,
    net: nn.Module,
    dtype: torch.dtype,
    space: ChannelSpace,
    outputs: Sequence[Output],
    coefficients: Sequence[float],
    plan: JetPlan | None,
    precision: str,
    check: Callable[[Tensor, int], None],
) -> JetEngine:
    """The engine of a choice other than "autograd", for points of that dtype.

    `check` sees a network's value where its width is unknown.
    """
    if choice.recognised is None:
        return ForwardModeEngine(net, space, outputs, check)
    operands = choice.recognised.operands(net, dtype)
    if choice.backend == "triton":
        from pinnfuse.kernels import jets

        return jets.engine(choice.recognised.program, operands, space, outputs, coefficients, plan, precision)
    return ClosedFormEngine(choice.recognised.program, operands, space, outputs, coefficients)


__all__ = ["BACKENDS", "Choice", "check_name", "choose", "engine"]
