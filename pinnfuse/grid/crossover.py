"""From which size on a kernel pays: below it the host's time per call decides, and plain torch may be faster.

On every card "auto" measures both as called, once for each operator, dtype and power of two of points up to LARGE, with
and without gradient, and keeps the faster one on disk (`crossovers.json` in the cache folder). No table is shipped:
the host's time depends on the processor and on the versions of torch and of this library as much as on the card.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

import torch
from torch import Tensor

import pinnfuse
from pinnfuse.kernels.measured import Store, card

log = logging.getLogger("pinnfuse")
LARGE = 2**22
"""Points of a field, batch included, from which on its bytes decide and not the host."""
ROUNDS, CALLS = 5, 8
TIE = 0.95
"""Plain torch must be faster by this much: kernels also need less memory."""
_inside: ContextVar[bool] = ContextVar("pinnfuse_grid_inside_graphs", default=False)
_found: dict[tuple[str, int, bool, str | None], str] = {}
"""What this process has read of the store, under what a call can name without writing a text."""
_store: Store[str] = Store("crossovers.json", str, lambda entry: entry if entry in ("torch", "triton") else None)


@contextmanager
def inside_graphs(on: bool = True) -> Iterator[None]:
    """Calls in this context warm up what is captured later: kernels, which must not be compiled in a capture."""
    token = _inside.set(on or _inside.get())
    try:
        yield
    finally:
        _inside.reset(token)


def prefix(name: str, dtype: torch.dtype, device: torch.device, variant: Any = "") -> str:
    """What the sizes of an operator are measured under; "" without a card, where there is nothing to choose."""
    if device.type != "cuda":
        return ""
    versions = f"torch {torch.__version__}, pinnfuse {pinnfuse.__version__}"
    what = [name, *([str(variant)] if variant else []), str(dtype).removeprefix("torch.")]
    return ", ".join([card(device), versions, *what])


def known(measured: str, tensors: Sequence[Tensor]) -> str | None:
    """What was found for these tensors, None if nothing yet. Kernels where the host's time does not count: for large
    fields, and in a CUDA graph or a compiled function."""
    points = tensors[0].numel()
    if points >= LARGE:
        return "triton"
    gradient = torch.is_grad_enabled() and any([t.requires_grad for t in tensors])
    key = (measured, max(0, points - 1).bit_length(), gradient, os.environ.get("PINNFUSE_CACHE"))
    found = _found.get(key)
    if found == "triton" or _inside.get() or torch.compiler.is_compiling() or _capturing(tensors[0]):
        return "triton"
    if found is None:
        found = _store.known(_key(measured, tensors))
        if found is not None:
            _found[key] = found
    return found


def faster(measured: str, kernel: Callable[..., Any], plain: Callable[..., Any], tensors: Sequence[Tensor]) -> str:
    """ "torch" or "triton" for these tensors, measured if it is not known."""
    found = known(measured, tensors)
    if found is None:
        times = _seconds((plain, kernel), tensors)
        found = "torch" if times[0] < TIE * times[1] else "triton"
        key = _key(measured, tensors)
        log.info("%s: torch %.3g ms, triton %.3g ms", key, 1e3 * times[0], 1e3 * times[1])
        _store.write(key, found)
    return found


def _key(measured: str, tensors: Sequence[Tensor]) -> str:
    gradient = torch.is_grad_enabled() and any(t.requires_grad for t in tensors)
    return f"{measured}, 2^{max(0, tensors[0].numel() - 1).bit_length()} points{', gradient' if gradient else ''}"


def _capturing(tensor: Tensor) -> bool:
    return tensor.is_cuda and torch.cuda.is_current_stream_capturing()


def _seconds(functions: Sequence[Callable[..., Any]], tensors: Sequence[Tensor]) -> list[float]:
    """The best time of a call of each, with its backward where the tensors want one; in turns, on copies."""
    wanted = torch.is_grad_enabled()
    copies = [t.detach().clone().requires_grad_(wanted and t.requires_grad) for t in tensors]
    leaves = [t for t in copies if t.requires_grad]

    def step(function: Callable[..., Any]) -> None:
        found = function(*copies)
        out = found if isinstance(found, Tensor) else found[0]
        if leaves:
            torch.autograd.grad(out, leaves, torch.ones_like(out), allow_unused=True)

    best = [float("inf")] * len(functions)
    for function in functions:
        step(function)  # compiles
    for _ in range(ROUNDS):
        for k, function in enumerate(functions):
            _wait(copies[0])
            start = time.perf_counter()
            for _ in range(CALLS):
                step(function)
            _wait(copies[0])
            best[k] = min(best[k], (time.perf_counter() - start) / CALLS)
    return best


def _wait(tensor: Tensor) -> None:
    if tensor.is_cuda:
        torch.cuda.synchronize(tensor.device)
