"""A stand-in for Gluon on a CPU: runs the text of the Hopper kernels with torch tensors, one program after the other.

Triton's interpreter does not run Gluon. This checks what a text says: offsets, the order of blocks in a ring, formulas,
sums. Layouts, registers and races need a card. Copies arrive when a group is waited for, and leave NaN until then.
"""

from __future__ import annotations

import ast
import re
from types import SimpleNamespace
from typing import Any

import torch
from torch import Tensor

UNITS = torch.tensor([r // 32 * 32 + (r % 8) // 2 * 8 + (r % 32) // 8 * 2 + r % 2 for r in range(64)])


class Owners:
    """Which program of a launch wrote each number, so that no other one reads or writes it: their order is open."""

    def __init__(self) -> None:
        self.program, self._of = 0, {}  # type: ignore[var-annotated]

    def start(self) -> None:
        self._of.clear()

    def check(self, memory: Tensor, offset: Any, written: bool) -> None:
        if not written and memory.data_ptr() not in self._of:
            return
        owner = self._of.setdefault(memory.data_ptr(), torch.full(memory.shape, -1, dtype=torch.int32))
        at = torch.as_tensor(offset)
        assert (at >= 0).all(), "before the beginning of a tensor"
        found = owner[at]
        assert ((found == -1) | (found == self.program)).all(), "a number that another program of the launch wrote"
        if written:
            owner[at] = self.program


OWNERS = Owners()


class Pointer:
    """Offsets into the memory of a tensor."""

    def __init__(self, memory: Tensor, offset: Any):
        self.memory, self.offset = memory, offset

    @classmethod
    def of(cls, tensor: Tensor) -> Pointer:
        size = tensor.untyped_storage().nbytes() // tensor.element_size()
        return cls(tensor.as_strided((size,), (1,), 0), tensor.storage_offset())

    def __add__(self, more: Any) -> Pointer:
        return Pointer(self.memory, self.offset + more)

    def __sub__(self, more: Any) -> Pointer:
        return Pointer(self.memory, self.offset - more)


def load(p: Pointer, mask: Any = None, other: float = 0.0) -> Any:
    OWNERS.check(p.memory, p.offset if mask is None else p.offset[mask.expand_as(p.offset)], False)
    if mask is None:
        return p.memory[p.offset]
    return torch.where(mask, p.memory[torch.where(mask, p.offset, 0)], other)


def store(p: Pointer, x: Any, mask: Any = None) -> None:
    OWNERS.check(p.memory, p.offset if mask is None else p.offset[mask], True)
    if mask is not None:
        p.memory[p.offset[mask]] = x[mask]
    else:
        p.memory[p.offset] = x.to(p.memory.dtype) if isinstance(x, Tensor) else x


class Copies:
    """Asynchronous copies to shared memory, in groups."""

    def __init__(self) -> None:
        self.open: list[tuple[dict[int, Tensor], int, Tensor]] = []
        self.groups: list[list[tuple[dict[int, Tensor], int, Tensor]]] = []

    def start(self, shared: dict[int, Tensor], i: int, p: Pointer) -> None:
        shared[i] = torch.full((64, 64), float("nan"))
        self.open.append((shared, i, load(p).clone()))

    def commit_group(self) -> None:
        self.groups.append(self.open)
        self.open = []

    def wait_group(self, left: int) -> None:
        while len(self.groups) > left:
            for shared, i, block in self.groups.pop(0):
                shared[i] = block.float()


def reduce(values: Any, axis: int, combine: Any) -> Any:
    slices = [[v.select(axis, i) for v in values] for i in range(values[0].shape[axis])]
    total = slices[0]
    for following in slices[1:]:
        total = combine(*total, *following)
        total = total if isinstance(total, tuple) else (total,)
    return total if len(values) > 1 else total[0]


def split(x: Tensor, m: Tensor, parts: int) -> tuple[Tensor, Tensor, Tensor]:
    exponent = torch.floor(torch.log2(m.clamp_min(1e-30)))
    y = x * torch.exp2(13 - exponent)
    high = y.half()
    low = (y - high.float()).half() if parts == 2 else high
    return high, low, torch.exp2(exponent - 13)


class Machine:
    """Names that a generated text uses."""

    def __init__(self) -> None:
        self.program, self.programs, self.copies = 0, 1, Copies()

    def names(self) -> dict[str, Any]:
        gl = SimpleNamespace(
            constexpr=int, float32=torch.float32, int64=torch.int64, static_range=range, load=load, store=store,
            program_id=lambda _: self.program, num_programs=lambda _: self.programs, SliceLayout=lambda *_: None,
            arange=lambda a, b, layout=None: torch.arange(a, b), reduce=reduce, abs=torch.abs, maximum=torch.maximum,
            minimum=min, where=torch.where, sum=lambda x, axis: x.sum(axis),
            max=lambda x, axis: x.amax(axis), zeros=lambda shape, dtype, layout=None: torch.zeros(shape),
        )  # fmt: skip
        calls = [name for name in dir(self) if not name.startswith("_") and name not in ("names", "copies")]
        return {
            "gl": gl, "tl": torch, "async_copy": self.copies, "gluon": None, "product_layout": lambda _: None,
            "unit_at": lambda r: UNITS[r], "tanh": torch.tanh, "sigmoid": torch.sigmoid,
            "softplus": torch.nn.functional.softplus, "opaque_zero": lambda *_: 0, "barrier": lambda: None,
            "warpgroup_mma_wait": lambda _, deps: deps if len(deps) > 1 else deps[0],
            **{name: getattr(self, name) for name in calls},
        }  # fmt: skip

    # -- hopper_primitives -------------------------------------------------------------------------------------------

    def positions(self, stride: int, warps: int, operand: bool) -> Tensor:
        return torch.arange(64)[:, None] * stride + torch.arange(64)[None, :]

    def pieces(self, stride: int, warps: int) -> Tensor:
        return self.positions(stride, warps, False)

    def to_memory(self, x: Tensor, warps: int) -> Tensor:
        return x[:, UNITS]

    def from_memory(self, x: Tensor, layout: None = None) -> Tensor:
        return x[:, torch.argsort(UNITS)]

    def put(self, p: Pointer, part: int, scale_ptr: Pointer, x: Tensor, m: Tensor, parts: int, warps: int) -> Any:
        high, low, inverse = split(x, m, parts)
        store(p, self.to_memory(high, warps))
        if parts == 2:
            store(p + part, self.to_memory(low, warps))
        store(scale_ptr, inverse)
        return high, low, inverse

    def put_block(self, p: Pointer, part: int, scale_ptr: Pointer, x: Tensor, parts: int, warps: int) -> None:
        self.put(p, part, scale_ptr, x, x.abs().max(), parts, warps)

    def get(self, p: Pointer, part: int, scale_ptr: Pointer, parts: int, warps: int) -> Tensor:
        x = load(p).float() + (load(p + part).float() if parts == 2 else 0.0)
        return self.from_memory(x) * load(scale_ptr)

    def operand(self, x: Tensor, warps: int) -> Tensor:
        return x

    def add_to(self, p: Pointer, x: Tensor, again: int) -> None:
        store(p, x + load(p) if again else x)

    def load_weights(
        self, w: Pointer, stride: int, nb: int, H: int, parts: int, turned: bool, ring: bool, _: int
    ) -> Any:
        r, shared, kb = torch.arange(64), {}, H // 64
        for i in range(parts * kb):
            if turned:
                rows, columns = i % kb * 64 + (UNITS if ring else r), nb * 64 + r
            else:
                rows, columns = nb * 64 + r, i % kb * 64 + r
            self.copies.start(shared, i, w + rows[:, None] * H + columns[None, :] + i // kb * stride)
        self.copies.commit_group()
        return shared

    def load_all_weights(self, w: Pointer, stride: int, depth: int, parts: int, warps: int) -> Any:
        shared: dict[int, Tensor] = {}
        for i in range(parts * depth):
            self.copies.start(shared, i, w + self.pieces(64, warps) + i // depth * stride + i % depth * 4096)
        self.copies.commit_group()
        return shared

    def weights_ready(self) -> None:
        self.copies.wait_group(0)

    def allocate_ring(self, ring: int, parts: int) -> dict[int, Tensor]:
        return {i: torch.full((64, 64), float("nan")) for i in range(ring * parts)}

    def fetch(self, ring: dict[int, Tensor], slot: int, p: Pointer, part: int, parts: int) -> None:
        for i in range(parts):
            self.copies.start(ring, slot * parts + i, p + i * part)

    def arrived(self, ring: int) -> None:
        self.copies.wait_group(ring - 2)

    def step_ring(self, slot: int, ring: int) -> int:
        return (slot + 1) % ring

    def start_ring_product(
        self, ring: Any, slot: int, w: Any, kb: int, KB: int, parts: int, turned: bool, _: int
    ) -> Any:
        low = ring[slot * parts + 1] if parts == 2 else None
        return self.start_product(ring[slot * parts], low, w, kb, KB, parts, turned, _)

    def finish_ring_product(self, t: Tensor) -> Tensor:
        return t

    def start_product(self, ah: Any, al: Any, w: Any, kb: int, KB: int, parts: int, turned: bool, _: int) -> Tensor:
        def block(i: int) -> Tensor:
            return w[i] if turned else w[i].t()

        t = ah.float() @ block(kb)
        return t + al.float() @ block(kb) + ah.float() @ block(KB + kb) if parts == 2 else t

    def finish_product(self, t: Tensor, ah: Tensor, al: Tensor, parts: int) -> Tensor:
        return t

    def load_operand(self, p: Pointer, part: int, parts: int, warps: int) -> tuple[Tensor, Tensor]:
        return self.from_memory(load(p)), self.from_memory(load(p + part)) if parts == 2 else load(p)

    def get_from_ring(self, ring: Any, slot: int, scale: Tensor, parts: int, warps: int) -> Tensor:
        x = ring[slot * parts] + (ring[slot * parts + 1] if parts == 2 else 0.0)
        return self.from_memory(x) * scale

    def keep(
        self, blocks: Any, k: int, x: Tensor, m: Tensor, p: Pointer, write: bool, parts: int, warps: int
    ) -> Tensor:
        high, low, inverse = split(x, m, parts)
        for i, half in enumerate((high, low)[:parts]):
            blocks[k * parts + i] = half.float()
            if write:
                store(p + i * 4096, self.to_memory(half, warps))
        return inverse

    def fetch_all(self, blocks: Any, p: Pointer, channels: int, parts: int) -> None:
        for i in range(channels * parts):
            self.copies.start(blocks, i, p + i * 4096)
        self.copies.commit_group()

    def start_outer_product(self, z: Any, a: Any, k: int, parts: int, warps: int) -> Tensor:
        t = z[k * parts].t() @ a[k * parts]
        if parts == 2:
            t = t + z[k * parts + 1].t() @ a[k * parts] + z[k * parts].t() @ a[k * parts + 1]
        return t


class Kernel:
    """A generated kernel that runs here."""

    def __init__(self, machine: Machine, function: Any):
        self.machine, self.function = machine, function
        self.__name__ = function.__name__
        self.arg_names = list(function.__code__.co_varnames[: function.__code__.co_argcount])

    def __getitem__(self, grid: tuple[int, ...]) -> Any:
        def run(*args: Any, **constants: Any) -> None:
            known = {k: v for k, v in constants.items() if k in self.arg_names}
            self.machine.programs = grid[0]
            OWNERS.start()
            for self.machine.program in range(grid[0]):
                OWNERS.program = self.machine.program
                values = [Pointer.of(a) if isinstance(a, Tensor) else a for a in args]
                self.function(*values, **known)
                self.machine.copies.wait_group(0)

        return run


class _Immutable(ast.NodeTransformer):
    """`x += y` as `x = x + y`, since a torch tensor would change under its other names."""

    def visit_AugAssign(self, node: ast.AugAssign) -> ast.Assign:  # noqa: N802
        assert isinstance(node.target, ast.Name)
        old = ast.Name(node.target.id, ast.Load())
        return ast.Assign([node.target], ast.BinOp(old, node.op, node.value))


def module(text: str) -> SimpleNamespace:
    """The kernels of a generated Gluon text."""
    text = re.sub(r"\.to\(gl\.(int64|float32)\)", "", text)
    tree = ast.parse(text)
    body = [node for node in tree.body if isinstance(node, ast.FunctionDef)]
    kernels = [node.name for node in body if any(isinstance(d, ast.Call) for d in node.decorator_list)]
    kernels += [node.name for node in body if node.name.endswith("_kernel")]
    for node in body:
        node.decorator_list = []
    machine = Machine()
    names = machine.names()
    tree = ast.fix_missing_locations(_Immutable().visit(ast.Module(body, [])))
    exec(compile(tree, "generated", "exec"), names)
    return SimpleNamespace(**{name: Kernel(machine, names[name]) for name in dict.fromkeys(kernels)})
