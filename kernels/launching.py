"""Launch compiled kernels without repeating Triton's inspection of the arguments, which outlasts a small kernel."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Any

import triton
from torch import Tensor

log = logging.getLogger("pinnfuse")

_compiled: dict[Any, Any] = {}


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
    if compiled is None:
        log.info("compiling %s (kept in Triton's cache)", kernel.__name__)
        _compiled[key] = kernel[grid](*args, **dict(zip(names, values, strict=True)), **options)
    else:
        compiled[(*grid, 1, 1)[:3]](*args, *values)


class Prepared:
    """A launch of which all but the tensors is known; compiled once for each alignment of the tensors.

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
        if run is not None:
            run(*pointers, *self._rest)  # Triton takes addresses for what they are
            return
        compiled = self.kernel[self.grid](*tensors, *self._numbers, **self.constants, **self.options)
        if not triton.knobs.runtime.interpret:
            log.info("compiled %s (kept in Triton's cache)", self.kernel.__name__)
            self._runs[key] = compiled[(*self.grid, 1, 1)[:3]]
