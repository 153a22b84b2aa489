"""Run the generated kernels: buffers, launches, and the gradients cut out of them.

Points go through in chunks whose jets fit a fixed amount of memory, so memory does not grow with their number. Every
sum over points is made of one number per tile, written by the one program that owns it, and added up in a fixed order:
the same input gives the same bits.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from copy import copy
from dataclasses import dataclass, field, replace
from functools import cached_property, lru_cache, partial
from types import ModuleType
from typing import Any

import torch
import triton
from torch import Tensor

from pinnfuse.jets.closed_form import closed_form
from pinnfuse.jets.engine import JetEngine, LossResult, LossTask
from pinnfuse.jets.gradients import Gradients
from pinnfuse.jets.plan import JetPlan, Output
from pinnfuse.jets.program import Program
from pinnfuse.jets.space import ChannelSpace
from pinnfuse.kernels.jets import cache, config, fused
from pinnfuse.kernels.jets.buffers import Buffers, aligned, bytes_of_a_point, points_of_a_chunk
from pinnfuse.kernels.jets.channels import POLYNOMIAL
from pinnfuse.kernels.jets.folding import Folded
from pinnfuse.kernels.jets.hopper import generate_hopper
from pinnfuse.kernels.jets.hopper_grouped import generate_hopper_grouped, groups_on_hopper
from pinnfuse.kernels.jets.hopper_looped import generate_hopper_looped, loops_on_hopper
from pinnfuse.kernels.jets.looped import generate_looped, loops
from pinnfuse.kernels.jets.network import Operands, Stack, dense_stack, gather
from pinnfuse.kernels.jets.primitives import split_weights_kernel, weight_gradient_kernel
from pinnfuse.kernels.jets.source import generate
from pinnfuse.kernels.jets.spec import ADJOINT, LOSS, LOSS_AND_GRADIENT, OUTPUTS, Spec
from pinnfuse.kernels.jets.sums import multiprocessors as multiprocessors
from pinnfuse.kernels.jets.sums import sum_rows as sum_rows
from pinnfuse.kernels.launching import launch, step
from pinnfuse.remembered import Remembered


@lru_cache(maxsize=128)
def module(spec: Spec) -> ModuleType:
    """The generated module of a spec."""
    return cache.load(generate_looped(spec) if loops(spec.space) else generate(spec), "jets")


@lru_cache(maxsize=128)
def hopper_module(spec: Spec, ring: bool = False, lean: bool = False, grouped: bool = False) -> ModuleType:
    """Forward and backward kernels for Hopper cards."""
    if loops(spec.space):
        return cache.load(generate_hopper_grouped(spec) if grouped else generate_hopper_looped(spec), "hopper")
    return cache.load(generate_hopper(spec, ring, lean), "hopper")


@lru_cache(maxsize=64)
def constants_on(values: tuple[float, ...], dtype: torch.dtype, device: torch.device) -> Tensor:
    return torch.tensor(values or (0.0,), dtype=dtype, device=device)


@dataclass
class _Head:
    """What the adjoint of a head needs of its forward pass."""

    values: list[Any] = field(default_factory=list)
    saved: dict[int, Any] = field(default_factory=dict)


@dataclass
class _Sums:
    """Sums over the points: all columns, gradients of the hidden weights [L, H, H], and of the head's operands.

    Attributes:
        per_equation, loss: if the kernels made them; then input weights are [H, d] instead of [d, H].
    """

    columns: Tensor
    hidden: Tensor
    head: list[Tensor | None]
    per_equation: Tensor | None = None
    loss: Tensor | None = None


class TritonEngine(JetEngine):
    """A dense stack in one channel space. `chunk` is the number of points that go through together."""

    def __init__(
        self,
        program: Program,
        operands: list[Tensor],
        space: ChannelSpace,
        outputs: Sequence[Output],
        coefficients: Sequence[float],
        plan: JetPlan | None,
        precision: str,
        configuration: config.Launch | None = None,
    ):
        like = operands[0]
        self.operands = operands
        self.space, self.outputs_read, self.plan = space, tuple(outputs), plan
        self.coefficients = tuple(coefficients)
        self.stack: Stack = dense_stack(program)
        self.spec = Spec.of(self.stack, space, outputs, plan)
        names = self.spec.activations
        self.module = module(self.spec)
        self.parts = config.PARTS[precision]
        widest = max(self.stack.widths[1:-1])
        device, self.itemsize = like.device, like.element_size()
        self.looped = loops(space)
        together = 1 if self.looped else len(space)  # channels in registers at a time
        self.head = None
        if self.stack.head is not None and not self.stack.folds:
            self.head = closed_form(self.stack.head, space, self.coefficients)
        given = self.stack.tail.given if self.stack.tail is not None else None
        self.tail = None if given is None else closed_form(given, space, self.coefficients)
        on_hopper = self.head is None and (not self.looped or loops_on_hopper(space, names))
        tuned = on_hopper and config.is_hopper(device)
        chosen = configuration or config.launch(widest, len(space), precision, self.looped, tuned)
        self.config = config.fitted(chosen, together, self.parts, config.capability(device))
        self.width = config.padded_width(widest, self.config.block)
        if self.looped:  # through the ring, or not at all
            on_hopper = on_hopper and min(self.config.ring) > 1
        self.hopper = on_hopper and config.hopper(self.config, self.width, together, self.parts, device)
        chains = config.chained(self.config, self.width, self.stack.hidden, self.parts, len(names))
        self.chained = self.hopper and not self.looped and chains
        self.grouped = self.hopper and self.looped and self.config.groups > 1 and groups_on_hopper(self.spec)
        if not self.grouped:
            self.config = replace(self.config, groups=1)
        self.saves = any(name not in POLYNOMIAL for name in names)
        self.layered = self.config.thrifty and not self.chained
        self.device = device
        self.prepared: Remembered[Any, Any] = Remembered(64)  # by number of points; shared by the engines of all calls
        self.bytes_per_point = bytes_of_a_point(self, given)
        self.chunk = points_of_a_chunk(self)

    def on(self, operands: list[Tensor]) -> TritonEngine:
        """This engine for the operands of another call."""
        engine = copy(self)
        engine.operands = operands
        engine.__dict__.pop("_gathered", None)
        return engine

    @property
    def network(self) -> Operands:
        return self._gathered[0]

    @property
    def folded(self) -> Folded | None:
        return self._gathered[1]

    @cached_property
    @torch.no_grad()
    def _gathered(self) -> tuple[Operands, Folded | None]:
        """The operands as the kernels read them, and a head that became a layer."""
        network = gather(self.stack, self.operands, self.width)
        if self.stack.head is None or not self.stack.folds:
            return network, None
        folded = Folded(self.stack.head, self.operands, self.width)
        return replace(network, first=folded.weight, first_bias=folded.bias), folded

    # -- the interface -------------------------------------------------------------------------------------------

    def loss(self, task: LossTask, wanted: Sequence[bool], trained_wanted: bool) -> LossResult:
        plan, points = task.plan, task.points.contiguous()
        count, equations, trained = points.shape[0], len(plan.residuals), len(task.trained)
        gradient = any(wanted) or trained_wanted
        constants = (*self.coefficients, *(task.constants[name] for name in plan.constants))
        data = torch.stack([task.data[name] for name in plan.pde.data]) if plan.pde.data else points
        values = torch.stack([task.trained[name] for name in plan.trained]) if trained else points
        residuals = points.new_empty(count, equations) if task.keep_residuals else points
        weights = points if task.point_weights is None else task.point_weights.expand(count, equations).contiguous()
        given = (values, data, task.equation_weights, weights, points, residuals)
        mode = LOSS_AND_GRADIENT if gradient else LOSS
        weighted, keep = task.point_weights is not None, task.keep_residuals
        sums = self._run(points, mode, constants, given, weighted, keep, wanted)
        start = self.stack.widths[-1] * self.width
        per_equation, total = sums.per_equation, sums.loss
        if per_equation is None or total is None:
            per_equation = sums.columns[start : start + equations] / count
            total = (per_equation * task.equation_weights).sum()
        parameters: list[Tensor | None] = [None] * trained
        if trained_wanted and trained:
            parameters = list(sums.columns[start + equations : start + equations + trained].unbind(0))
        operand_gradients = self._gradients(sums, wanted, equations + trained)
        return LossResult(total, per_equation, residuals if keep else None, operand_gradients, parameters)

    def outputs(self, points: Tensor) -> Tensor:
        points = points.contiguous()
        result = points.new_empty(len(self.outputs_read), points.shape[0])
        self._run(
            points, OUTPUTS, self.coefficients, (points, points, points, points, points, result), False, False, ()
        )
        return result

    def adjoint(self, points: Tensor, gradient: Tensor, wanted: Sequence[bool]) -> list[Tensor | None]:
        points = points.contiguous()
        given = (points, points, points, points, gradient.contiguous(), points)
        sums = self._run(points, ADJOINT, self.coefficients, given, False, False, wanted)
        extra = 0 if self.plan is None else len(self.plan.residuals) + len(self.plan.trained)
        return self._gradients(sums, wanted, extra)

    @property
    def report(self) -> str:
        """Which kernels run, for `explain`."""
        if not self.hopper:
            return "a layer at a time, portable kernels"
        return "all hidden layers in one kernel" if self.chained else "a layer at a time, kernels for Hopper"

    def memory(self, points: Tensor) -> int:
        """Bytes that a step keeps, about."""
        if fused.applies(self, points):
            return fused.memory(self, points)
        return min(self.chunk, points.shape[0]) * self.bytes_per_point

    # -- inside --------------------------------------------------------------------------------------------------

    @property
    def _input_rows(self) -> int:
        """Rows of sums for the input weights: d, or two sets of them (see looped.py)."""
        return self.stack.widths[0] * (2 if self.looped else 1)

    def _gradients(self, sums: _Sums, wanted: Sequence[bool], extra: int) -> list[Tensor | None]:
        """Add the gradients in the sums to the head's; `extra` numbers stand between output weights and biases."""
        if not any(wanted):
            return sums.head
        stack, width, m, result, columns = self.stack, self.width, self.stack.widths[-1], sums.head, sums.columns
        last, start, d = stack.hidden + 1, m * width + extra, stack.widths[0]
        biases, inputs = columns[start + m :].split_with_sizes([last * width, self._input_rows * width])
        by_layer = biases.view(last, width).unbind(0)  # the highest layer first
        if sums.per_equation is not None:
            first = inputs.view(width, d)
        elif self.looped:  # two sets of them
            first = inputs.view(-1, d, width).sum(0).t()
        else:
            first = inputs.view(d, width).t()
        hidden = sums.hidden.unbind(0) if stack.hidden and sums.hidden.dim() == 3 else ()

        def add(position: int, value: Tensor) -> None:
            current = result[position]
            result[position] = value if current is None else current + value

        if self.folded is not None:
            gradients = Gradients(wanted)
            self.folded.adjoint(first.t(), by_layer[-1], gradients)
            result = gradients.operands
        for i in range(last + 1):
            layer = stack.layer(i)
            if layer is None:
                continue
            outs, ins = stack.widths[i + 1], stack.widths[i]
            if wanted[layer.operands[0]]:
                if i == 0:
                    value = _cut(first, outs, d)
                elif i == last:
                    value = _cut(columns[: m * width].view(m, width), m, ins)
                else:
                    value = _cut(hidden[i - 1], outs, ins)
                add(layer.operands[0], value)
            if len(layer.operands) > 1 and wanted[layer.operands[1]]:
                add(layer.operands[1], columns[start : start + m] if i == last else _cut(by_layer[last - 1 - i], outs))
        return result

    def _given(self, points: Tensor) -> Tensor:
        """Jets of the points alone that the output transform reads, [channels, n, columns]."""
        return points if self.tail is None else self.tail.forward(points, ())[0].data

    def _head_forward(self, points: Tensor, rows: int, state: _Head) -> tuple[Tensor, Tensor]:
        """Jets of the head, padded to [channels, rows, H]; `state` keeps what its adjoint needs."""
        assert self.head is not None
        detached = [t.detach() for t in self.operands]
        jets, state.values, state.saved = self.head.forward(points, detached)
        given = points.new_zeros(len(self.space), rows, self.width)
        given[:, : points.shape[0], : jets.data.shape[-1]] = jets.data
        return given, given

    def _head_backward(self, adjoint: Tensor, points: Tensor, state: _Head, gradients: Gradients) -> None:
        assert self.head is not None
        tiles = -(-points.shape[0] // self.config.rows) * self.config.rows
        channels = len(self.space)
        used = adjoint.view(-1)[: channels * tiles * self.width].view(channels, tiles, self.width)
        used = used[:, : points.shape[0], : self.stack.widths[1]]
        self.head.adjoint(used, state.values, state.saved, [t.detach() for t in self.operands], gradients)

    @property
    def columns(self) -> int:
        """Sums over points: output weights, losses, trained parameters, output biases, biases, input weights."""
        extra = 0 if self.plan is None else len(self.plan.residuals) + len(self.plan.trained)
        m = self.stack.widths[-1]
        return m * self.width + extra + m + (self.stack.hidden + 1 + self._input_rows) * self.width

    def _run(
        self,
        points: Tensor,
        mode: int,
        constants: tuple[float, ...],
        given: tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor],
        weighted: bool,
        keep: bool,
        wanted: Sequence[bool],
    ) -> _Sums:
        """`_launches` on the points' device, which need not be the current one."""
        with torch.cuda.device(points.device) if points.is_cuda else nullcontext():
            _ = self._gathered  # not in a rehearsal, which would leave it empty
            run = partial(self._launches, points, mode, constants, given, weighted, keep, wanted)
            network = (self.module, self.stack.hidden, self.width, self.config, self.parts, points.dtype, points.device)
            call = (mode, weighted, keep, any(wanted), mode == LOSS_AND_GRADIENT and fused.applies(self, points))
            try:
                return step((network, self.hopper, call), run)
            except (triton.CompilationError, RuntimeError) as problem:
                passes = isinstance(problem, triton.CompilationError) or "PassManager" in str(problem)
                if not (self.hopper and passes):
                    raise
                config.refuse_hopper(str(problem))
                self.hopper = self.chained = self.grouped = False
                self.config = replace(self.config, groups=1)
                return run()

    def _launches(
        self,
        points: Tensor,
        mode: int,
        constants: tuple[float, ...],
        given: tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor],
        weighted: bool,
        keep: bool,
        wanted: Sequence[bool],
    ) -> _Sums:
        """All launches of one call."""
        c, net, stack, kernels = self.config, self.network, self.stack, self.module
        depth, width, block = stack.hidden, self.width, c.block
        values, data, equation_weights, point_weights, adjoint, result = given
        backward = mode in (LOSS_AND_GRADIENT, ADJOINT)
        coefficients = constants_on(constants, points.dtype, points.device)
        processors = multiprocessors(points.device)
        if mode == LOSS_AND_GRADIENT and fused.applies(self, points):
            inputs = (values, data, equation_weights, point_weights)
            done = fused.run(self, points, coefficients, inputs, result, weighted, keep)
            return _Sums(done.sums, done.hidden, [None] * len(wanted), done.per_equation, done.loss)
        need_weights = backward and any(wanted[layer.operands[0]] for layer in stack.hidden_layers)
        blocks = (width // c.gradient_block) ** 2 * (1 if self.layered else max(depth, 1))
        split = max(1, processors * 2 // blocks) if need_weights else 1
        buffers = Buffers.of(self, points.shape[0], points, split)
        channels_of_a_tile = 1 if self.layered and self.looped else len(self.space)
        split = min(split, buffers.sums.shape[0] * (len(self.space) // channels_of_a_tile))
        rings = config.ring(c, width, len(self.space), self.parts) if self.hopper else (1, 1)
        copies = 2 if rings[0] > 1 and not self.chained else 1
        shape = (copies, max(self.parts, 1), *net.hidden.shape)
        halves = torch.empty(shape, dtype=buffers.a.dtype, device=points.device)
        blocks_of_a_layer = (width // block) ** 2
        scales = points.new_empty(copies, depth, blocks_of_a_layer if self.chained else aligned(blocks_of_a_layer))
        hidden_weights: Tensor = net.hidden if self.parts == 0 else halves[0, 0]
        forward_weights = net.hidden if self.parts == 0 else halves[-1, 0]
        layer_stride = net.hidden.numel()
        blocks_of = {"H": width, "BLOCK": block, "PARTS": self.parts}
        args: tuple[object, ...]
        if depth and self.parts:
            args = (net.hidden, halves, scales, layer_stride, depth, scales.shape[2])
            launch(split_weights_kernel, (copies * depth * blocks_of_a_layer,), args, blocks_of, num_warps=4)
        scales = scales[0]
        once = c.once and not triton.knobs.runtime.interpret
        common = {
            **blocks_of,
            "ROWS": c.rows,
            "ONCE": once,
            "PERMUTED": self.hopper,
            "SAVE": backward and self.saves,
            "STEP": c.step,
        }
        common |= {"MODE": mode, "WEIGHTED": weighted, "KEEP": keep, "WARPS": c.hopper_warps}
        common |= {"BO": c.gradient_block, "BI": c.gradient_block, "CHANNELS": channels_of_a_tile}
        act = [self.spec.activations.index(name) for name in stack.activations]
        count, nb = points.shape[0], width // block
        columns = buffers.sums.shape[1]
        base = columns - (depth + 1 + self._input_rows) * width
        a, z, sa, sz, saved = buffers.a, buffers.z, buffers.a_scale, buffers.z_scale, buffers.saved
        up, down = (hopper_module(self.spec, r > 1, c.lean, self.grouped) if self.hopper else kernels for r in rings)
        shared = (buffers.shared,) if self.grouped else ()
        common |= {"GROUPS": c.groups}
        forward, backward_ = (
            ({"num_warps": c.hopper_warps, **({"maxnreg": c.registers} if c.registers else {})},) * 2
            if self.hopper
            else ({"num_warps": w, "num_stages": s} for w, s in (c.forward, c.backward))
        )
        found, inner = Gradients(wanted), _Head()
        first = 1 if self.head is None else 2
        outer = points
        if self.head is not None and backward:
            outer = points.new_empty(len(self.space), buffers.sums.shape[0] * c.rows, width)

        def at(layer: int) -> int:
            return layer % 2 if self.layered else layer

        def add_weight_gradients(layer: int, above: int) -> None:
            """Of all layers from `layer` on, or of that one alone; `above` is where the adjoint lies."""
            items = tiles * (len(self.space) // channels_of_a_tile)  # where tiles are few, by channels too
            args = (a[layer], sa[layer], z[above], sz[above], buffers.weights[:, layer], items, depth, again)
            strides = (a.stride(0), sa.stride(0))
            options = {"num_warps": c.gradient[0], "num_stages": c.gradient[1]}
            launch(weight_gradient_kernel, (split * blocks,), (*args, *strides, split), common, **options)

        for start in range(0, count, self.chunk):
            tiles = -(-min(self.chunk, count - start) // c.rows)
            again = int(start > 0)
            programs = min(tiles, config.programs(c, width, processors)) if self.hopper else tiles
            ends = min(tiles, config.programs(replace(c, groups=1), width, processors)) * nb
            strides = (layer_stride, a.stride(0), sa.stride(0), saved.stride(0))
            if self.head is not None:
                args = (*self._head_forward(points[start : start + self.chunk], tiles * c.rows, inner), coefficients)
                args = (*args, a[0], sa[0], saved[0], tiles)
                launch(kernels.given_kernel, (tiles * nb,), args, {**common, "ACTIVATION": act[0]}, num_warps=c.output)
            elif self.chained:
                args = (points, net.first, net.first_bias, halves, scales, net.hidden_bias, coefficients, a, sa, saved)
                args = (*args, count, start, tiles, *strides)
                launch(up.stack_forward_kernel, (programs,), args, {**common, "DEPTH": depth}, **forward)
            else:
                args = (points, net.first, net.first_bias, coefficients, a[0], sa[0], saved[0], count, start, tiles)
                launch(kernels.input_kernel, (tiles * nb,), args, {**common, "ACTIVATION": act[0]}, num_warps=c.output)
            for i in range(0 if self.chained else depth):
                args = (a[i], sa[i], forward_weights[i], scales[i], net.hidden_bias[i], coefficients)
                args = (*args, a[i + 1], sa[i + 1], saved[i + 1], *shared, tiles, layer_stride)
                constants_ = {**common, "ACTIVATION": act[i + 1], "RING": rings[0]}
                launch(up.forward_kernel, (programs * nb * c.groups,), args, constants_, **forward)
                if self.grouped:
                    constants_["RING"] = min(rings[0], 2 * nb + 1)
                    launch(up.forward_end_kernel, (ends,), args, constants_, **forward)
            args = (
                points,
                a[depth],
                sa[depth],
                saved[depth],
                z[at(depth)],
                sz[at(depth)],
                outer,
                net.last,
                net.last_bias,
            )
            args = (*args, coefficients, values, data, self._given(points[start : start + self.chunk]))
            args = (*args, equation_weights, point_weights, adjoint, result)
            args = (*args, buffers.sums, count, start, tiles, again, columns)
            constants_ = {**common, "FIRST": first if depth == 0 else 0, "ACTIVATION": act[depth]}
            launch(kernels.output_kernel, (tiles,), args, constants_, num_warps=c.output)
            if not backward:
                continue
            if self.chained:
                args = (points, halves, scales, coefficients, a, sa, saved, z, sz, buffers.sums[:, base + width :])
                args = (*args, count, start, tiles, again, columns, *strides)
                launch(down.stack_backward_kernel, (programs,), args, {**common, "DEPTH": depth}, **backward_)
            for i in reversed(range(0 if self.chained else depth)):
                args = (
                    points,
                    z[at(i + 1)],
                    sz[at(i + 1)],
                    hidden_weights[i],
                    scales[i],
                    net.hidden_bias[i],
                    coefficients,
                )
                args = (*args, a[i], sa[i], saved[i], z[at(i)], sz[at(i)], *(() if self.hopper else (outer,)))
                args = (*args, buffers.sums[:, base + (depth - i) * width :], *shared)
                args = (*args, count, start, tiles, again, columns, layer_stride)
                constants_ = {**common, "FIRST": first if i == 0 else 0, "ACTIVATION": act[i], "RING": rings[1]}
                launch(down.backward_kernel, (programs * nb * c.groups,), args, constants_, **backward_)
                if self.grouped:
                    constants_["RING"] = min(rings[1], 2 * nb + 3)
                    launch(down.backward_end_kernel, (ends,), args, constants_, **backward_)
                if need_weights and self.layered:
                    add_weight_gradients(i, at(i + 1))
            if self.head is not None:
                self._head_backward(outer, points[start : start + self.chunk], inner, found)
            if need_weights and not self.layered:
                add_weight_gradients(0, 1)
        if mode == OUTPUTS:
            return _Sums(points, points, [])
        used = -(-min(count, self.chunk) // c.rows)
        sums = sum_rows(buffers.sums[:used])
        hidden = sum_rows(buffers.weights[:split].flatten(1)).view_as(net.hidden) if need_weights else points
        return _Sums(sums, hidden, found.operands)


def _cut(padded: Tensor, *shape: int) -> Tensor:
    """The part of a shape."""
    for axis, size in enumerate(shape):
        if padded.shape[axis] != size:
            padded = padded.narrow(axis, 0, size)
    return padded
