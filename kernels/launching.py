"""Launch compiled kernels without repeating Triton's inspection of the arguments, which outlasts a small kernel."""

from __future__ import annotations

import logging
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
