"""A network of any shape as a list of kernel launches: matrix products, and groups of pointwise operations between.

Gated and residual networks (modified MLP, PirateNet) are no chain of layers: a value is read by several layers, and a
layer mixes several values. Their program is cut where a product starts or ends. What lies between two cuts is
pointwise, with all channels of a unit together, and becomes one kernel; operations that no kernel has (columns that are
joined or selected, a few columns before and behind the network) run by the rules of `pinnfuse.jets.closed_form`, one by
one, in the same order.

    level of a product = level of what it reads + 1;   a pointwise operation waits for its first reader

so that `p - q`, which every layer of a modified MLP asks for, is computed where it is used and never stored.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import Any

from pinnfuse.jets.program import Affine, Concatenate, Multiply, Operation, Program, Scale, Select, Unary
from pinnfuse.kernels.jets.channels import ACTIVATIONS
from pinnfuse.kernels.jets.pointwise import NotGenerated

NARROW = 16
"""Fewer columns than this are left to torch where no product follows: coordinates, embeddings, fields."""


@dataclass(frozen=True)
class Product:
    """`x W^T` of a value, by a kernel; the bias is added by the pointwise operations that follow."""

    value: int
    source: int
    op: Affine


@dataclass(frozen=True)
class ByTorch:
    """Operation `position` of the program, by the rules of the closed form."""

    position: int


@dataclass(frozen=True)
class Group:
    """What a pointwise kernel does; equal groups share one kernel.

    Attributes:
        reads: how each value is found: "product" (plain, a bias is added), "points" (an affine map of few columns,
            made in place), "plain", "halves".
        operations: on local values: the reads first, then one per operation; operands are numbered in the group.
        writes: (local value, "plain" or "halves").
    """

    reads: tuple[str, ...]
    operations: tuple[Operation, ...]
    writes: tuple[tuple[int, str], ...]

    @property
    def operands(self) -> int:
        return sum(len(op.operands) for op in self.operations)

    @property
    def written(self) -> tuple[int, ...]:
        """Local values with an adjoint of their own."""
        return tuple(dict.fromkeys(value for value, _ in self.writes))


@dataclass(frozen=True)
class Pointwise:
    """A group with its values and operands in the program; `layers` has the affine operation of a read, if any."""

    group: Group
    reads: tuple[int, ...]
    layers: tuple[Affine | None, ...]
    writes: tuple[int, ...]
    operands: tuple[int, ...]
    width: int


Node = Product | Pointwise | ByTorch


@dataclass(frozen=True)
class Schedule:
    """Nodes in order of execution, and the program that they compute (identities added, dead code left out).

    Attributes:
        active: which values depend on an operand that wants a gradient.
        stored: value -> formats in which kernels find it.
    """

    program: Program
    nodes: tuple[Node, ...]
    active: tuple[bool, ...]

    @cached_property
    def stored(self) -> dict[int, tuple[str, ...]]:
        found: dict[int, list[str]] = {}
        for node in self.nodes:
            if isinstance(node, Pointwise):
                for value, (_, form) in zip(node.writes, node.group.writes, strict=True):
                    found.setdefault(value, []).append(form)
        return {value: tuple(forms) for value, forms in found.items()}

    @cached_property
    def shared(self) -> frozenset[int]:
        """Values whose adjoint is kept padded, as kernels want it."""
        reads = {v for n in self.nodes if isinstance(n, Pointwise) for v in n.reads}
        return frozenset(reads | set(self.stored) | {n.source for n in self.nodes if isinstance(n, Product)})

    def report(self, before: Sequence[Node] | None = None) -> str:
        """How much of the network runs where; `before`: the nodes before a kernel that does all the rest."""
        nodes = self.nodes if before is None else before
        products = sum(isinstance(n, Product) for n in nodes)
        groups = sum(isinstance(n, Pointwise) for n in nodes)
        kernels = f"{products} products and {groups} groups each way" + (", then one kernel" if before else "")
        rest = [type(self.program.operations[n.position]).__name__ for n in nodes if isinstance(n, ByTorch)]
        names = ", ".join(f"{rest.count(name)} {name}" for name in dict.fromkeys(rest))
        return kernels + (f"; by torch: {names}" if rest else "")


def count_products(program: Program) -> int:
    """How many linear layers of a program would be products of a schedule."""
    return _Plan(_alive(program), None).kind.count("product")


@lru_cache(maxsize=128)
def schedule(program: Program, trained: tuple[bool, ...] | None) -> Schedule:
    """The schedule of a program; `trained`: which operands want a gradient (None: all).

    Raises:
        NotGenerated: no product of the network would run in a kernel.
    """
    plan = _Plan(_alive(program), trained)
    while identities := plan.missing_identities():
        plan = _Plan(_with_identities(plan.program, identities), trained)
    nodes = plan.nodes()
    if not any(isinstance(node, Product) for node in nodes):
        raise NotGenerated("no hidden layer of the network can run in a kernel")
    return Schedule(plan.program, nodes, tuple(plan.active))


def _alive(program: Program) -> Program:
    """Without operations that nothing reads."""
    needed = {len(program.operations)}
    for value in range(len(program.operations), 0, -1):
        if value in needed:
            needed.update(program.operations[value - 1].inputs)
    return _renumbered(program, [v for v in range(1, len(program.operations) + 1) if v in needed], {})


def _with_identities(program: Program, identities: dict[int, frozenset[int]]) -> Program:
    """With `y = 1 x` behind the values that are keys, in the place of x for the operations at these positions."""
    return _renumbered(program, list(range(1, len(program.operations) + 1)), identities)


def _renumbered(program: Program, values: Sequence[int], identities: dict[int, frozenset[int]]) -> Program:
    number, copy = {0: 0}, {}
    operations: list[Operation] = []
    widths = [program.widths[0]]

    def append(op: Operation, width: int) -> int:
        operations.append(op)
        widths.append(width)
        return len(operations)

    if 0 in identities:
        copy[0] = append(Scale((0,)), widths[0])
    for value in values:
        op = program.operations[value - 1]
        inputs: Any = tuple(copy[j] if value - 1 in identities.get(j, ()) else number[j] for j in op.inputs)
        number[value] = append(replace(op, inputs=inputs), program.widths[value])
        if value in identities:
            copy[value] = append(Scale((number[value],)), program.widths[value])
    return Program(tuple(operations), tuple(widths))


class _Plan:
    """Who computes each value of a program, and when."""

    def __init__(self, program: Program, trained: Sequence[bool] | None):
        self.program, self.operations = program, program.operations
        count = len(self.operations) + 1
        self.readers: list[list[int]] = [[] for _ in range(count)]  # positions of operations
        for i, op in enumerate(self.operations):
            for j in dict.fromkeys(op.inputs):
                self.readers[j].append(i)
        self.active = [False] * count
        self.leads = [False] * count  # to a linear layer
        for i in reversed(range(count - 1)):
            for j in self.operations[i].inputs:
                self.leads[j] |= self.leads[i + 1] or isinstance(self.operations[i], Affine)
        self.flat = [True] + [False] * (count - 1)  # derivatives do not depend on the point, and torch holds the value
        self.deep = [False] * count  # behind a linear layer
        self.kind = ["torch"] * count
        for i, op in enumerate(self.operations):
            self.active[i + 1] = any(self.active[j] for j in op.inputs) or any(
                trained is None or trained[o] for o in op.operands
            )
            self.deep[i + 1] = isinstance(op, Affine) or any(self.deep[j] for j in op.inputs)
            self.kind[i + 1] = self._kind(i, op)
            straight = not isinstance(op, Unary | Multiply) and all(self.flat[j] for j in op.inputs)
            self.flat[i + 1] = straight and self.kind[i + 1] == "torch"
        self.level = [0] * count
        for i, op in enumerate(self.operations):
            below = max(self.level[j] for j in op.inputs)
            starts = self.kind[i + 1] == "product" or (
                self.kind[i + 1] == "torch" and any(self.kind[j] != "torch" for j in op.inputs)
            )
            self.level[i + 1] = below + starts
        for i in reversed(range(count - 1)):
            if self.kind[i + 1] in ("pointwise", "points") and self.readers[i + 1]:
                self.level[i + 1] = min(
                    self.level[r + 1] - (self.kind[r + 1] not in ("pointwise", "points")) for r in self.readers[i + 1]
                )

    def _kind(self, i: int, op: Operation) -> str:
        """ "product", "points" (a layer of few columns, made inside a group), "pointwise" or "torch"."""
        width = self.program.widths[i + 1]
        if isinstance(op, Affine):
            if not self.flat[op.inputs[0]]:
                return "product"
            return "points" if width >= NARROW and not self.active[op.inputs[0]] else "torch"
        if isinstance(op, Select | Concatenate) or any(self.program.widths[j] != width for j in op.inputs):
            return "torch"
        if isinstance(op, Unary) and (op.exponent is not None or op.name not in ACTIVATIONS):
            return "torch"
        if not isinstance(op, Unary | Multiply) and all(self.flat[j] for j in op.inputs):
            return "torch"
        wide = width >= NARROW or (self.deep[i + 1] and self.leads[i + 1])
        return "pointwise" if wide or self._between(i) else "torch"

    def _between(self, i: int) -> bool:
        """A copy next to a product: it is there for the kernel."""
        op = self.operations[i]
        around = [op.inputs[0] - 1, *self.readers[i + 1]]
        return op == Scale((op.inputs[0],)) and any(j >= 0 and isinstance(self.operations[j], Affine) for j in around)

    def missing_identities(self) -> dict[int, frozenset[int]]:
        """Values that need a copy: value -> positions of the operations that are to read it.

        A product reads what a group wrote, and what a product or a layer of the points gives is read by one group.
        """
        found: dict[int, frozenset[int]] = {}
        for value, kind in enumerate(self.kind):
            readers = self.readers[value]
            products = frozenset(r for r in readers if self.kind[r + 1] == "product")
            if kind in ("product", "points"):
                levels = {self.level[r + 1] for r in readers}
                if not readers or len(levels) > 1 or any(self.kind[r + 1] != "pointwise" for r in readers):
                    found[value] = frozenset(readers)
            elif kind == "torch" and products:
                found[value] = products
        return found

    def nodes(self) -> tuple[Node, ...]:
        result: list[Node] = []
        for level in range(max(self.level) + 1):
            mine = [i for i in range(len(self.operations)) if self.level[i + 1] == level]
            for i in mine:
                op = self.operations[i]
                if self.kind[i + 1] == "product":
                    assert isinstance(op, Affine)
                    result.append(Product(i + 1, op.inputs[0], op))
                elif self.kind[i + 1] == "torch":
                    result.append(ByTorch(i))
            result += [self._group(members) for members in self._components(mine)]
        return tuple(result)

    def _components(self, mine: Sequence[int]) -> list[list[int]]:
        """Pointwise operations of one level that share a value of that level."""
        root = {i: i for i in mine if self.kind[i + 1] == "pointwise"}

        def find(i: int) -> int:
            return i if root[i] == i else find(root[i])

        owner: dict[int, int] = {}
        for i in root:
            for j in (i + 1, *self.operations[i].inputs):
                private = self.kind[j] in ("product", "points") or (j - 1) in root
                if private and j in owner:
                    root[find(i)] = find(owner[j])
                elif private:
                    owner[j] = i
        parts: dict[int, list[int]] = {}
        for i in root:
            parts.setdefault(find(i), []).append(i)
        return list(parts.values())

    def _group(self, members: list[int]) -> Pointwise:
        inside = {i + 1 for i in members}
        reads = list(dict.fromkeys(j for i in members for j in self.operations[i].inputs if j not in inside))
        local = {value: n for n, value in enumerate([*reads, *(i + 1 for i in members)])}
        operands: list[int] = []
        operations: list[Operation] = []
        for i in members:
            op = self.operations[i]
            numbers = tuple(range(len(operands), len(operands) + len(op.operands)))
            operands += op.operands
            inputs: Any = tuple(local[j] for j in op.inputs)
            operations.append(replace(op, inputs=inputs, operands=numbers))
        writes = [(value, form) for value in sorted(inside) for form in self._forms(value, inside)]
        layers: list[Affine | None] = []
        for j in reads:
            layer = self.operations[j - 1] if self.kind[j] in ("product", "points") else None
            assert layer is None or isinstance(layer, Affine)
            layers.append(layer)
        kinds = tuple(self._read_as(j) for j in reads)
        group = Group(kinds, tuple(operations), tuple((local[value], form) for value, form in writes))
        width = self.program.widths[members[0] + 1]
        written = tuple(value for value, _ in writes)
        return Pointwise(group, tuple(reads), tuple(layers), written, tuple(operands), width)

    def _forms(self, value: int, inside: set[int]) -> list[str]:
        """How a group stores a value for its readers outside."""
        outside = [r for r in self.readers[value] if r + 1 not in inside]
        by_product = any(self.kind[r + 1] == "product" for r in outside)
        by_torch = any(self.kind[r + 1] == "torch" for r in outside) or value == len(self.operations)
        by_group = any(self.kind[r + 1] == "pointwise" for r in outside)
        return ["halves"] * by_product + ["plain"] * (by_torch or (by_group and not by_product))

    def _read_as(self, value: int) -> str:
        if self.kind[value] in ("product", "points"):
            return self.kind[value]
        if self.kind[value] == "torch":
            return "plain"
        inside = {value}
        return "plain" if "plain" in self._forms(value, inside) else "halves"
