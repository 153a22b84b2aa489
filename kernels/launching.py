"""Launch compiled kernels without repeating Triton's inspection of the arguments, which outlasts a small kernel.

Before a step runs for the first time its kernels are compiled together (`step`), one a thread: Triton's passes and its
assembler run outside of Python's lock.
"""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Callable, Hashable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, wait
from contextlib import contextmanager
from threading import Lock, local
from typing import Any, TypeVar

import torch
import triton
from torch import Tensor

log = logging.getLogger("pinnfuse")
T = TypeVar("T")

SILENCE = 2.0
"""Seconds of compilation before a message says what a call is waiting for."""

_compiled: dict[Any, Any] = {}
_known: set[Hashable] = set()
_compiling = Lock()


class _Rehearsal(local):
    """Kernels that this thread's rehearsal has asked for, compiled or to be, and their device; None outside of one."""

    asked: list[tuple[Any, torch.device]] | None = None


_rehearsal = _Rehearsal()


def step(key: Hashable, run: Callable[[], T], rehearse: Callable[[], Any] | None = None) -> T:
    """`run()`. For a new key all kernels that it launches are compiled first, several at a time.

    Which kernels these are is found by a rehearsal, in which launches do nothing: `rehearse`, or `run` where it leaves
    no trace beyond what it returns.
    """
    if key in _known or _rehearsal.asked is not None or triton.knobs.runtime.interpret:
        return run()
    if hasattr(triton, "AsyncCompileMode") and not (
        torch.cuda.is_available() and torch.cuda.is_current_stream_capturing()
    ):
        _compile_together(rehearse or run)
        _known.add(key)
    return run()


def _compile_together(rehearse: Callable[[], Any]) -> None:
    """Errors of the compiler are left to the launch itself."""
    asked: list[tuple[Any, torch.device]] = []
    with _compiling, _whole_front_ends(), ThreadPoolExecutor(min(16, os.cpu_count() or 1)) as threads:
        with triton.AsyncCompileMode(threads, ignore_errors=True) as mode:
            _rehearsal.asked = asked
            try:
                rehearse()
            finally:
                _rehearsal.asked = None
            if wait(mode.raw_futures, SILENCE).not_done:
                log.warning("pinnfuse compiles kernels (%d), once; Triton's cache keeps them", len(mode.raw_futures))
        wait([threads.submit(_load, kernel, device) for kernel, device in asked])


@contextmanager
def _whole_front_ends() -> Iterator[None]:
    """Threads of Python take turns only where one waits or leaves the lock, as Triton's passes do.

    `ast.parse` in two threads at once fails before Python 3.11.8 and 3.12.2 (its depth is counted in one place).
    """
    before = sys.getswitchinterval()
    sys.setswitchinterval(60.0)
    try:
        yield
    finally:
        sys.setswitchinterval(before)


def _load(kernel: Any, device: torch.device) -> None:
    """To the card, with the C code that starts it, for which Triton 3.6 calls a C compiler."""
    compiled = kernel.result(ignore_errors=True) if hasattr(kernel, "result") else kernel
    if compiled is not None:
        with torch.cuda.device(device):
            compiled.run  # noqa: B018


def launch(
    kernel: Any, grid: tuple[int, ...], args: tuple[Any, ...], constants: dict[str, Any], **options: int
) -> None:
    """`kernel[grid](*args, **constants, **options)`.

    The kernel's parameters are `args`, then those of `constants` that its signature names. Dtypes must follow from the
    constants; integers must be marked `do_not_specialize` or always be multiples of 16.
    """
    if triton.knobs.runtime.interpret:
        kernel[grid](*args, **{name: constants[name] for name in kernel.arg_names[len(args) :]}, **options)
        return
    names = kernel.arg_names[len(args) :]
    values = tuple(constants[name] for name in names)
    shapes = tuple(
        a.data_ptr() % 16 == 0 if isinstance(a, Tensor) else a >= 2**31 for a in args
    )  # what Triton would look at
    key = (kernel, args[0].device, args[0].dtype, values, shapes, tuple(options.values()))
    compiled = _compiled.get(key)
    if _rehearsal.asked is not None:
        if compiled is None:
            found = kernel.run(*args, grid=grid, warmup=True, **dict(zip(names, values, strict=True)), **options)
            _rehearsal.asked.append((found, args[0].device))
    elif compiled is None:
        log.info("compiling %s (kept in Triton's cache)", kernel.__name__)
        _compiled[key] = kernel[grid](*args, **dict(zip(names, values, strict=True)), **options)
    else:
        compiled[(*grid, 1, 1)[:3]](*args, *values)


class Prepared:
    """A launch of which all but the tensors is known; compiled once for each alignment of the tensors.

    The kernel's parameters are tensors, `integers`, then `constants` in its order.
    For small kernels, where Triton's inspection of arguments and even a key for a table of launches outlast the work.
    """

    def __init__(
        self, kernel: Any, grid: tuple[int, ...], integers: Sequence[int], constants: dict[str, Any], **options: int
    ):
        self.kernel, self.grid, self.options = kernel, grid, options
        self.constants = constants
        self._numbers = tuple(integers)
        self._rest = (*integers, *constants.values())
        self._runs: dict[Any, Callable[..., None]] = {}

    def __call__(self, tensors: Sequence[Tensor]) -> None:
        pointers = [tensor.data_ptr() for tensor in tensors]
        bits = 0
        for pointer in pointers:
            bits |= pointer
        key = None if bits % 16 == 0 else tuple(pointer % 16 == 0 for pointer in pointers)
        run = self._runs.get(key)
        if _rehearsal.asked is not None:
            if run is None:
                found = self.kernel.run(
                    *tensors, *self._numbers, grid=self.grid, warmup=True, **self.constants, **self.options
                )
                _rehearsal.asked.append((found, tensors[0].device))
            return
        if run is not None:
            run(*pointers, *self._rest)  # Triton takes addresses for what they are
            return
        compiled = self.kernel[self.grid](*tensors, *self._numbers, **self.constants, **self.options)
        if not triton.knobs.runtime.interpret:
            log.info("compiled %s (kept in Triton's cache)", self.kernel.__name__)
            self._runs[key] = compiled[(*self.grid, 1, 1)[:3]]
