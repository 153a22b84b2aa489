"""A CUDA card that is not here: kernels are compiled for it, into Triton's cache, and do not run.

    with card("h200") as compiled:
        loss = FusedResidualLoss(pde, backend="triton")(net.to("cuda"), points.to("cuda"))
        loss.backward()

Tensors "on the card" are ordinary tensors of the CPU that say they are elsewhere: whatever chooses, shapes and launches
kernels runs as it would there, so the cache gets the very entries that the card asks for. What kernels would have
written is not written, so no number means anything.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager, nullcontext
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any
from unittest import mock

import torch
import torch._dynamo  # reads the functions that are replaced below
import triton
from torch import Tensor
from torch.overrides import TorchFunctionMode
from triton.backends.compiler import GPUTarget
from triton.runtime import driver

from pinnfuse.errors import BackendUnavailable, nearest

GB = 2**30


@dataclass(frozen=True)
class Card:
    """What choices of kernels depend on: sums are split by the number of multiprocessors, for example."""

    name: str
    capability: tuple[int, int]
    multiprocessors: int
    memory: int


CARDS = {
    "a100": Card("NVIDIA A100-SXM4-80GB", (8, 0), 108, 80 * GB),
    "h100": Card("NVIDIA H100 80GB HBM3", (9, 0), 132, 80 * GB),
    "h200": Card("NVIDIA H200", (9, 0), 132, 141 * GB),
    "b200": Card("NVIDIA B200", (10, 0), 148, 180 * GB),
}
"""Cards by the names that `card` takes."""


@dataclass(frozen=True)
class Compiled:
    """A kernel, where its cache entry lies, and the seconds of each stage of compilation; none if it was there."""

    kernel: str
    hash: str
    seconds: Mapping[str, float]
    signature: str


@contextmanager
def card(name: str) -> Iterator[list[Compiled]]:
    """Pretend that the current device is a card; gives the kernels that were asked for inside.

    Args:
        name: one of `CARDS`.

    Raises:
        ValueError: an unknown name.
        BackendUnavailable: there is a card, or Triton interprets in this process.
    """
    if name not in CARDS:
        raise ValueError(f"a card that is not here: `name` must be one of {', '.join(CARDS)}. {nearest(name, CARDS)}")
    if torch.cuda.is_available():  # it would be given the kernels and constants that this process keeps from here
        raise BackendUnavailable(
            "a card that is not here: this process sees one that is. Start it with CUDA_VISIBLE_DEVICES= (empty)."
        )
    if triton.knobs.runtime.interpret:
        raise BackendUnavailable("kernels cannot be compiled where TRITON_INTERPRET=1 is set; unset it.")
    chosen, compiled = CARDS[name], []

    def listen(*, src: Any, metadata: Any, metadata_group: Any, times: Any, cache_hit: bool) -> None:
        stages = dict(times.lowering_stages) if not cache_hit else {}
        seconds = {} if cache_hit else {"front end": times.ir_initialization / 1e6}
        seconds |= {stage: t / 1e6 for stage, t in stages.items()}
        compiled.append(Compiled(src.name, metadata["hash"], seconds, str(src.signature)))

    before = driver._active
    with ExitStack() as stack:
        driver.set_active(_Driver(chosen))
        stack.callback(driver.set_active, before)
        stack.enter_context(mock.patch.object(triton.knobs.compilation, "listener", listen))
        for module, replacements in _REPLACED.items():
            stack.enter_context(mock.patch.multiple(module, **replacements))
        stack.enter_context(mock.patch.multiple(torch.cuda, **_cuda(chosen)))
        stack.enter_context(mock.patch.object(torch, "Generator", _Generator))
        stack.enter_context(_Elsewhere())
        yield compiled


DEVICE = torch.device("cuda", 0)
PYTHON_LEVEL = {"has_torch_function": lambda _: False}
_REPLACED: dict[Any, dict[str, Any]] = {
    torch.autograd: PYTHON_LEVEL,
    torch._tensor: {
        **PYTHON_LEVEL,
        "has_torch_function_unary": lambda _: False,
        "has_torch_function_variadic": lambda *_: False,
    },
    torch.nn.functional: {
        **PYTHON_LEVEL,
        "has_torch_function_unary": lambda _: False,
        "has_torch_function_variadic": lambda *_: False,
    },
}
"""Functions of torch that are written in Python would run without the mode below; so only what they call is changed."""


_SAID: dict[Any, Any] = {
    Tensor.device.__get__: DEVICE,
    Tensor.is_cuda.__get__: True,  # type: ignore[attr-defined]
    Tensor.is_cpu.__get__: False,  # type: ignore[attr-defined]
    Tensor.get_device: 0,
}


class _Elsewhere(TorchFunctionMode):
    """Tensors say that they are on the card; devices in arguments become the CPU."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func in _SAID:
            return _SAID[func]
        if func in (Tensor.cuda, Tensor.pin_memory):
            return args[0]
        if func is torch.device:
            return func(*args, **(kwargs or {}))
        kwargs = {key: _here(value) for key, value in (kwargs or {}).items() if key != "pin_memory"}
        return func(*(_here(value) for value in args), **kwargs)


def _here(value: Any) -> Any:
    if isinstance(value, torch.device) or (isinstance(value, str) and value.startswith("cuda")):
        return torch.device("cpu")
    return value


class _Generator(torch.Generator):
    """A generator of the CPU that says it is where it was asked for."""

    asked: torch.device

    def __new__(cls, device: Any = "cpu") -> _Generator:
        made = super().__new__(cls)
        made.asked = torch.device(device)
        return made

    @property
    def device(self) -> torch.device:  # type: ignore[override]
        return self.asked


class _Driver:
    """What Triton asks of a card."""

    def __init__(self, chosen: Card):
        major, minor = chosen.capability
        self.target = GPUTarget("cuda", 10 * major + minor, 32)
        shared = 227 * 1024 if major >= 9 else 163 * 1024
        properties = {"max_shared_mem": shared, "multiprocessor_count": chosen.multiprocessors}
        self.utils = SimpleNamespace(
            load_binary=lambda *_: (object(), object(), 0, 0, 1024), get_device_properties=lambda _: properties
        )

    def launcher_cls(self, src: Any, metadata: Any) -> Any:
        return lambda *_: None

    def get_current_target(self) -> GPUTarget:
        return self.target

    def get_current_device(self) -> int:
        return 0

    def get_current_stream(self, device: int) -> int:
        return 0

    def get_active_torch_device(self) -> torch.device:
        return DEVICE


class _Nothing:
    """A stream, an event or a graph of a card that is not here."""

    cuda_stream = 0

    def __init__(self, *_: Any, **__: Any):
        pass

    def __getattr__(self, name: str) -> Any:
        return (lambda *_, **__: 1.0) if name == "elapsed_time" else (lambda *_, **__: None)

    def __enter__(self) -> _Nothing:
        return self

    def __exit__(self, *_: Any) -> None:
        pass


def _cuda(chosen: Card) -> dict[str, Any]:
    """Functions of `torch.cuda` by their names."""
    properties = SimpleNamespace(
        name=chosen.name, major=chosen.capability[0], minor=chosen.capability[1], total_memory=chosen.memory,
        multi_processor_count=chosen.multiprocessors, L2_cache_size=50 * 2**20,
    )  # fmt: skip
    nothing: Any = lambda *_, **__: None  # noqa: E731
    zero: Any = lambda *_, **__: 0  # noqa: E731
    return {
        "is_available": lambda: True,
        "device_count": lambda: 1,
        "current_device": zero,
        "get_device_capability": lambda *_: chosen.capability,
        "get_device_name": lambda *_: chosen.name,
        "get_device_properties": lambda *_: properties,
        "mem_get_info": lambda *_: (chosen.memory, chosen.memory),
        "memory_allocated": zero,
        "max_memory_allocated": zero,
        "memory_reserved": zero,
        "is_current_stream_capturing": lambda: False,
        "device": lambda *_: nullcontext(),
        "device_of": lambda *_: nullcontext(),
        "stream": lambda *_: nullcontext(),
        "graph": lambda *_, **__: nullcontext(),
        **dict.fromkeys(["Stream", "Event", "CUDAGraph", "current_stream"], _Nothing),
        **dict.fromkeys(
            ["synchronize", "empty_cache", "reset_peak_memory_stats", "set_device", "set_sync_debug_mode", "_sleep"]
            + ["get_rng_state", "set_rng_state"],
            nothing,
        ),
    }
