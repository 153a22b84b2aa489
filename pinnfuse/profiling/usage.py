"""Memory of an operation and of the device, in MB = 10^6 bytes.

On a card the numbers are the allocator's, whose peak counter is reset before every measurement; it hands out blocks of
512 bytes. On a CPU, which has no counter, the bytes of all tensors alive at once are added up (`PeakStorage`): scratch
memory inside an operation is not seen.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.table import Table
from torch import Tensor

from pinnfuse.profiling.storage import PeakStorage

MB = 1e6


@dataclass(frozen=True)
class Memory:
    """Of one operation at one size.

    `forward` and `backward` are peaks beyond what was there before each of them; `saved` is what the forward leaves for
    the backward beside its result; `gradients` what the backward returns.
    """

    size: Any
    input: float
    forward: float
    result: float
    saved: float
    backward: float | None
    gradients: float | None


def memory(
    op: Callable[..., Tensor],
    sizes: Sequence[Any],
    *,
    device: torch.device | str = "cpu",
    dtype: torch.dtype = torch.float32,
    inputs: Callable[[Any], Sequence[Tensor]] | None = None,
    backward: bool = True,
) -> list[Memory]:
    """Memory of `op(*inputs)` for every size, after one call that is not counted (compilation, workspaces).

    Args:
        sizes: n for one n x n tensor of random numbers, or shapes; or what `inputs` understands.
        inputs: `inputs(size)` makes the arguments; those that require grad get a gradient.
        backward: measure the gradient of `op` too, with an upstream gradient that is there before.

    Raises:
        ValueError: a size that is no number or shape; an operation that returns no tensor.
    """
    device = torch.device(device)
    return [_measure(op, size, _arguments(size, inputs, device, dtype, backward), device, backward) for size in sizes]


def _arguments(size: Any, inputs: Any, device: torch.device, dtype: torch.dtype, backward: bool) -> Sequence[Tensor]:
    if inputs is not None:
        return inputs(size)
    shape = (size, size) if isinstance(size, int) else tuple(size) if isinstance(size, Sequence) else ()
    if not shape or not all(isinstance(n, int) and n > 0 for n in shape):
        raise ValueError(f"memory: `sizes` must be numbers or shapes; got {size!r}. Pass `inputs` for anything else.")
    return [torch.rand(shape, device=device, dtype=dtype, requires_grad=backward)]


def _measure(
    op: Callable[..., Tensor], size: Any, given: Sequence[Tensor], device: torch.device, backward: bool
) -> Memory:
    result = op(*given)
    if not isinstance(result, Tensor):
        raise ValueError(f"memory: `op` must return a tensor; got {type(result).__name__}. Wrap it in a lambda.")
    wanted = [x for x in given if x.requires_grad]
    upstream = torch.rand_like(result) if backward and wanted else None
    if upstream is not None:
        torch.autograd.grad(result, wanted, upstream)
    del result
    kept: list[Any] = []
    forward, held = _peak(lambda: kept.append(op(*given)), device)
    result_bytes = _bytes(kept[0])
    down = gradients = None
    if upstream is not None:
        down, _ = _peak(lambda: kept.append(torch.autograd.grad(kept[0], wanted, upstream)), device)
        gradients = sum(map(_bytes, kept[1])) / MB
    own = sum({x.untyped_storage().data_ptr(): x.untyped_storage().nbytes() for x in given}.values())
    return Memory(
        size,
        own / MB,
        forward / MB,
        result_bytes / MB,
        max(held - result_bytes, 0) / MB,
        None if down is None else down / MB,
        gradients,
    )


def _bytes(x: Tensor) -> int:
    return x.numel() * x.element_size()


def _peak(call: Callable[[], Any], device: torch.device) -> tuple[int, int]:
    """(peak, what is still held at the end), bytes beyond what was there before."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)
        torch.cuda.reset_peak_memory_stats(device)
        before = torch.cuda.memory_allocated(device)
        call()
        torch.cuda.synchronize(device)
        peak = torch.cuda.max_memory_allocated(device) - before
        return peak, max(torch.cuda.memory_allocated(device) - before, 0)
    with PeakStorage() as storage:
        call()
        held = storage.held
    return storage.peak, held


def peak_memory(call: Callable[[], Any], device: torch.device) -> int:
    """Bytes that a call needs at its peak beyond what was there before."""
    return _peak(call, device)[0]


def show(rows: Sequence[Memory], console: Console) -> None:
    """As a table."""
    names = ("input", "forward peak", "result", "saved", "backward peak", "gradients")
    table = Table("size", *(f"{name}, MB" for name in names), box=SIMPLE_HEAD)
    for row in rows:
        numbers = (row.input, row.forward, row.result, row.saved, row.backward, row.gradients)
        table.add_row(str(row.size), *("-" if x is None else f"{x:,.2f}" for x in numbers))
    console.print(table)


@dataclass(frozen=True)
class MemoryReport:
    """Of a device, MB: `allocated` by tensors of this process, `reserved` by its allocator (tensors included), `free`
    for anybody as the driver says, `elsewhere` in other processes and the context, `total`. On a CPU `reserved` is
    what the process has resident, `allocated` the same."""

    device: str
    allocated: float
    reserved: float
    free: float
    elsewhere: float
    total: float

    @property
    def available(self) -> float:
        """What new tensors of this process can have: `free`, and what is reserved but unused."""
        return self.free + self.reserved - self.allocated

    def __str__(self) -> str:
        numbers = {name: getattr(self, name) for name in ("allocated", "reserved", "free", "elsewhere", "total")}
        return f"{self.device}: " + ", ".join(f"{name} {value:,.0f} MB" for name, value in numbers.items())


def memory_report(device: torch.device | str | None = None) -> MemoryReport:
    """What is used and what is truly free; of the current card if there is one, else of the CPU."""
    device = torch.device(device or ("cuda" if torch.cuda.is_available() else "cpu"))
    if device.type == "cuda":
        free, total = torch.cuda.mem_get_info(device)
        allocated, reserved = torch.cuda.memory_allocated(device), torch.cuda.memory_reserved(device)
    else:
        lines = dict(line.split(":") for line in Path("/proc/meminfo").read_text().splitlines() if ":" in line)
        free, total = (1024 * int(lines[name].split()[0]) for name in ("MemAvailable", "MemTotal"))
        pages = int(Path("/proc/self/statm").read_text().split()[1])
        allocated = reserved = pages * 4096
    numbers = (allocated, reserved, free, max(total - free - reserved, 0), total)
    return MemoryReport(str(device), *(x / MB for x in numbers))
