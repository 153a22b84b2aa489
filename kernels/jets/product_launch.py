"""Products of a schedule, forward, adjoint and weight gradient: kernels on halves, or a library in float64."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import torch
import triton
from torch import Tensor
from torch.nn import functional

from pinnfuse.jets.program import Program
from pinnfuse.kernels.jets.config import padded_width
from pinnfuse.kernels.jets.products import outer_kernel, product_kernel, split_kernel
from pinnfuse.kernels.jets.runner import multiprocessors, sum_rows
from pinnfuse.kernels.jets.schedule import Product
from pinnfuse.kernels.jets.tiles import Tiles
from pinnfuse.kernels.launching import launch


@dataclass
class Halves:
    """Jets [PARTS, channels rows, H], or weights, with their inverse scales; plain numbers for float64."""

    data: Tensor
    scale: Tensor


class Products(ABC):
    """The products of one program with the operands of one call. Tensors are padded with zeros to whole blocks."""

    def __init__(
        self, nodes: Sequence[Product], program: Program, operands: Sequence[Tensor], tiles: Tiles, parts: int
    ):
        self.nodes, self.program, self.operands, self.tiles, self.parts = nodes, program, operands, tiles, parts

    @staticmethod
    def of(
        nodes: Sequence[Product], program: Program, operands: Sequence[Tensor], tiles: Tiles, parts: int
    ) -> Products:
        kind = KernelProducts if parts else LibraryProducts
        return kind(nodes, program, operands, tiles, parts)

    def padded(self, value: int) -> int:
        """Columns of a value's buffers."""
        return padded_width(self.program.widths[value], self.tiles.block)

    @cached_property
    def _padded_weights(self) -> list[Tensor]:
        return [pad(self.operands[n.op.operands[0]], self.padded(n.value), self.padded(n.source)) for n in self.nodes]

    @abstractmethod
    def multiply(self, node: Product, x: Halves, out: Tensor, transposed: bool = False, add: bool = False) -> None:
        """out [channels, rows, H] (+)= x W^T, or x W if `transposed`."""

    def outer(self, node: Product, x: Halves, z: Halves) -> Tensor:
        """The gradient of the weights, [out, in], from the input and the adjoint of the output."""
        total = sum_rows(self._partial_outers(node, x, z)).view(self.padded(node.value), self.padded(node.source))
        return total[: self.program.widths[node.value], : self.program.widths[node.source]]

    @abstractmethod
    def _partial_outers(self, node: Product, x: Halves, z: Halves) -> Tensor:
        """[parts of the rows, out in], to be added up."""

    def _split(self, node: Product, rows: int, blocks: int, device: torch.device) -> int:
        """In how many parts the rows of a weight gradient of so many blocks are taken."""
        return max(1, min(rows // self.tiles.rows, 2 * multiprocessors(device) // blocks))


class LibraryProducts(Products):
    """In float64, by torch: Triton compiles tensor-core products of 8 x 8 x 4 numbers alone, cuBLAS has larger ones."""

    @cached_property
    def _weights(self) -> dict[int, Tensor]:
        return {node.value: w for node, w in zip(self.nodes, self._padded_weights, strict=True)}

    def multiply(self, node: Product, x: Halves, out: Tensor, transposed: bool = False, add: bool = False) -> None:
        w, rows = self._weights[node.value], out.view(-1, out.shape[-1])
        w = w if transposed else w.t()
        if add:
            rows.addmm_(x.data.view(len(rows), -1), w)
        else:
            torch.mm(x.data.view(len(rows), -1), w, out=rows)

    def _partial_outers(self, node: Product, x: Halves, z: Halves) -> Tensor:
        """Batches of rows, since one product of so few columns would leave most of a card without work."""
        a, z_rows = x.data.view(-1, self.padded(node.source)), z.data.view(-1, self.padded(node.value))
        blocks = max(1, a.shape[1] * z_rows.shape[1] // 128**2)
        split = self._split(node, len(a), blocks, a.device)
        length = len(a) // split
        whole = split * length
        part = a.new_empty(split + (whole < len(a)), z_rows.shape[1], a.shape[1])
        z_parts, a_parts = z_rows[:whole].unflatten(0, (split, length)), a[:whole].unflatten(0, (split, length))
        torch.bmm(z_parts.mT, a_parts, out=part[:split])
        if whole < len(a):
            torch.mm(z_rows[whole:].mT, a[whole:], out=part[split])
        return part.flatten(1)


class KernelProducts(Products):
    """On halves."""

    @cached_property
    def _weights(self) -> dict[int, Halves]:
        """Padded weights of every product, as halves, once for all chunks."""
        padded = self._padded_weights
        found: dict[int, Halves] = {}
        for node, w, largest in zip(self.nodes, padded, torch._foreach_norm(padded, float("inf")), strict=True):
            halves = Halves(torch.empty(self.parts, *w.shape, dtype=torch.float16, device=w.device), w.new_empty(1))
            args = (w, largest, halves.data, halves.scale, w.numel())
            launch(split_kernel, (w.numel() // 1024,), args, {"BLOCK": 1024, "PARTS": self.parts}, num_warps=4)
            found[node.value] = halves
        return found

    def _sizes(self, node: Product) -> dict[str, Any]:
        sizes = {"IN": self.padded(node.source), "OUT": self.padded(node.value), "ROWS": self.tiles.rows}
        return {**sizes, "BLOCK": self.tiles.block, "PARTS": self.parts}

    def multiply(self, node: Product, x: Halves, out: Tensor, transposed: bool = False, add: bool = False) -> None:
        t, w, rows = self.tiles, self._weights[node.value], out.shape[0] * out.shape[1]
        columns = _divisor(out.shape[2], t.product_columns, t.block)
        constants = {**self._sizes(node), "TRANSPOSED": transposed, "ADD": add, "BM": t.product_rows, "BN": columns}
        grid = (triton.cdiv(rows, t.product_rows) * (out.shape[2] // columns),)
        args = (x.data, x.scale, w.data, w.scale, out, rows)
        launch(product_kernel, grid, args, constants, num_warps=t.product[0], num_stages=t.product[1])

    def _partial_outers(self, node: Product, x: Halves, z: Halves) -> Tensor:
        sizes, t = self._sizes(node), self.tiles
        blocks = {key: _divisor(sizes[side], t.outer_block, t.block) for key, side in (("BI", "IN"), ("BO", "OUT"))}
        count = sizes["IN"] // blocks["BI"] * (sizes["OUT"] // blocks["BO"])
        rows = z.data.numel() // sizes["OUT"] // self.parts
        split = self._split(node, rows, count, z.data.device)
        part = x.scale.new_empty(split, sizes["OUT"] * sizes["IN"])
        args = (x.data, x.scale, z.data, z.scale, part, rows, split)
        constants = {**sizes, **blocks}
        launch(outer_kernel, (count * split,), args, constants, num_warps=t.outer[0], num_stages=t.outer[1])
        return part


def pad(w: Tensor, rows: int, columns: int) -> Tensor:
    """A matrix with zeros below and at its right, contiguous."""
    return functional.pad(w, (0, columns - w.shape[1], 0, rows - w.shape[0])).contiguous()


def _divisor(width: int, largest: int, block: int) -> int:
    """The largest of block, 2 block, 4 block .. up to `largest` that divides a padded width."""
    while block * 2 <= largest and width % (block * 2) == 0:
        block *= 2
    return block
