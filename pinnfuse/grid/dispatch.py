"""Which backend runs an operator on a tensor, and what is said about it.

    "torch"   plain torch, any device, differentiable any number of times
    "triton"  one kernel forward, one backward, on a card
    "auto"    kernels on a card, else plain torch; small fields on a card: what was measured faster there

An explicit choice never falls back. With PINNFUSE_STRICT=1 neither does "auto" silently: a CPU tensor on a machine
with a card, or a kernel that does not compile, raises.
"""

from __future__ import annotations

import contextlib
import functools
import importlib.util
import os
import platform
import warnings
from collections.abc import Callable, Hashable, Iterator
from contextvars import ContextVar
from dataclasses import dataclass, replace
from importlib.metadata import PackageNotFoundError, version
from typing import TypeVar

import torch
from torch import Tensor
from torch.autograd import forward_ad

from pinnfuse.errors import BackendUnavailable, nearest
from pinnfuse.grid import crossover
from pinnfuse.grid.grid import DTYPES

BACKENDS = ("auto", "torch", "triton")
T = TypeVar("T")
_wanted: ContextVar[dict[str, str] | None] = ContextVar("pinnfuse_grid_backends", default=None)
_said: set[str] = set()


@contextlib.contextmanager
def backends(**choices: str) -> Iterator[None]:
    """Inside this context, "auto" means the backend named for an operator: `with backends(laplacian="torch"): ...`."""
    for name, backend in choices.items():
        check_name(backend, f"backends({name})")
    token = _wanted.set({**(_wanted.get() or {}), **choices})
    try:
        yield
    finally:
        _wanted.reset(token)


def wanted(backend: str, name: str) -> str:
    """The backend of operator `name` in this context."""
    chosen = _wanted.get()
    return chosen.get(name, "auto") if chosen is not None and backend == "auto" else backend


def check_name(backend: str, caller: str) -> None:
    if backend not in BACKENDS:
        raise ValueError(f"{caller}: unknown `backend`; got {backend!r}. {nearest(str(backend), BACKENDS)}")


@dataclass(frozen=True)
class Choice:
    """What runs an operator; `explicit` choices do not fall back. `measured`: what the sizes from which on its kernel
    pays are kept under, "" where nothing is measured (`pinnfuse.grid.crossover`)."""

    backend: str
    explicit: bool
    name: str
    measured: str = ""

    def run(self, kernel: Callable[..., T], plain: Callable[..., T], *tensors: Tensor) -> T:
        """The kernel or plain torch, functions of `tensors`. A kernel that does not compile falls back once and says
        so, under "auto"."""
        if self.backend == "torch" or (not self.explicit and self.name in _broken):
            return plain(*tensors)
        try:
            if self.measured and tensors and crossover.faster(self.measured, kernel, plain, tensors) == "torch":
                return plain(*tensors)
            return kernel(*tensors)
        except (ValueError, torch.OutOfMemoryError):
            raise
        except Exception as fault:
            if not _of_triton(fault):
                raise
            message = f"{self.name}: its Triton kernel failed: {_failure(fault)}"
            if self.explicit or strict():
                raise BackendUnavailable(f"{message}. Use backend='torch' meanwhile.") from fault
            _broken.add(self.name)
            warnings.warn(f"{message}. Running plain torch from now on.", stacklevel=3)
            return plain(*tensors)


_broken: set[str] = set()


def strict() -> bool:
    return os.environ.get("PINNFUSE_STRICT", "") not in ("", "0")


def choose(backend: str, name: str, *tensors: Tensor, variant: Hashable = "") -> Choice:
    """The backend of operator `name` on these tensors; `variant` (a text, or what has one) tells apart operators of one
    name that take different times.

    Raises:
        BackendUnavailable: "triton" was asked for and cannot run, with the reason.
    """
    backend = wanted(backend, name)
    first = tensors[0]
    alike = first.is_cuda and all([t.dtype == first.dtype and t.device == first.device for t in tensors])
    if alike and not transforming():
        return _on_card(backend, name, first.dtype, first.device, variant)
    return _choose(backend, name, *tensors)


@functools.lru_cache(maxsize=1024)
def _on_card(backend: str, name: str, dtype: torch.dtype, device: torch.device, variant: Hashable) -> Choice:
    """Nothing else decides on a card, and small operators have no time to ask twice."""
    choice = _choose(backend, name, torch.empty(0, dtype=dtype, device=device))
    if choice.explicit or choice.backend == "torch":
        return choice
    return replace(choice, measured=crossover.prefix(name, dtype, device, variant))


def _choose(backend: str, name: str, *tensors: Tensor) -> Choice:
    check_name(backend, name)
    if backend == "torch":
        return Choice("torch", True, name)
    reason = obstacle(*tensors)
    if backend == "triton":
        if reason:
            raise BackendUnavailable(
                f"{name}: backend 'triton' was asked for but cannot run: {reason}. Available here: 'torch', or 'auto'."
            )
        return Choice("triton", True, name)
    if tensors[0].device.type == "cpu" and torch.cuda.is_available() and not interpreting():
        _on_cpu(name)
    return Choice("torch" if reason else "triton", False, name)


def obstacle(*tensors: Tensor) -> str:
    """Why kernels cannot run on these tensors, "" if they can."""
    if not _installed():
        return "Triton is not installed (it exists for Linux only)"
    if transforming() and any(map(_transformed, tensors)):
        return "torch.func and forward-mode derivatives see plain torch only"
    for tensor in tensors:
        if tensor.dtype not in DTYPES:
            return f"{tensor.dtype} has no kernels"
        if tensor.is_cuda:
            if _capability(tensor.device) < (8, 0):
                return "the card's compute capability is below 8.0"
        elif not interpreting():
            return f"a tensor is on {tensor.device.type}; kernels need a CUDA card"
    return ""


def transforming() -> bool:
    """Whether torch.func or forward-mode differentiation is at work here: a kernel would read values and lose the rest,
    a tangent without a word."""
    return forward_ad._current_level >= 0 or torch._C._functorch.peek_interpreter_stack() is not None


def _transformed(tensor: Tensor) -> bool:
    if torch._C._functorch.is_functorch_wrapped_tensor(tensor):
        return True
    return forward_ad._current_level >= 0 and forward_ad.unpack_dual(tensor).tangent is not None


@functools.cache
def _capability(device: torch.device) -> tuple[int, int]:
    return torch.cuda.get_device_capability(device)


@functools.cache
def _installed() -> bool:
    return importlib.util.find_spec("triton") is not None


def interpreting() -> bool:
    """Kernels on CPU tensors in Triton's interpreter, as tests do."""
    return os.environ.get("PINNFUSE_INTERPRET") == "1" and os.environ.get("TRITON_INTERPRET") == "1"


def _on_cpu(name: str) -> None:
    text = f"{name} runs on the CPU although this machine has a CUDA card. Move the field with u.cuda()."
    if strict():
        raise BackendUnavailable(text)
    if "cpu" not in _said:
        _said.add("cpu")
        warnings.warn(text, stacklevel=4)


def _of_triton(fault: Exception) -> bool:
    return any(cls.__module__.partition(".")[0] == "triton" for cls in type(fault).__mro__)


def _failure(fault: Exception) -> str:
    """The last line that says something, and the versions that a report needs."""
    text = next((line.strip() for line in reversed(str(fault).splitlines()) if line.strip()), "no message")
    try:
        triton = version("triton")
    except PackageNotFoundError:
        triton = "not installed"
    return f"{type(fault).__name__}: {text[:300]} [triton {triton}, torch {torch.__version__}, {platform.platform()}]"
