"""Run a schedule: buffers, launches, and the gradients of the operands.

    forward   products (plain numbers out), pointwise groups (halves out where a product reads them, else plain)
    adjoint   the nodes backwards: a group turns adjoints of what it wrote into adjoints of what it read, a product
              adds zbar W to the adjoint of its source, and gives the gradient of its weights

An adjoint that several layers contribute to (the gates of a modified MLP, a residual stream) is one plain buffer that
they add to one after the other, so the order is fixed and the same input gives the same bits. Between the passes the
results of products and what groups wrote are kept, activations are computed again. A chunk of points is as large as a
fixed amount of memory allows.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from copy import copy
from dataclasses import dataclass, field
from typing import Any, TypeVar

import torch
import triton
from torch import Tensor
from torch.nn import functional

from pinnfuse.jets.closed_form import closed_form, dense
from pinnfuse.jets.engine import ChunkedEngine, LossResult, LossTask, positions
from pinnfuse.jets.gradients import Gradients, fit
from pinnfuse.jets.plan import JetPlan, Output
from pinnfuse.jets.program import Affine, Program
from pinnfuse.jets.space import ChannelSpace
from pinnfuse.jets.values import AffineJet, DenseJet, JetValue
from pinnfuse.kernels.jets import config, group, tiles
from pinnfuse.kernels.jets.finish import Finish, LossInputs, finish, loss_inputs
from pinnfuse.kernels.jets.finish import module as finish_module
from pinnfuse.kernels.jets.looped import loops
from pinnfuse.kernels.jets.product_launch import Halves, Products, pad
from pinnfuse.kernels.jets.runner import constants_on, sum_rows
from pinnfuse.kernels.jets.schedule import ByTorch, Node, Pointwise, Product, Schedule, schedule
from pinnfuse.kernels.jets.spec import LOSS, LOSS_AND_GRADIENT
from pinnfuse.kernels.launching import launch, step

T = TypeVar("T")

SCRATCH_BYTES = 2 * 2**30
"""Memory for the jets of a chunk of points."""


@dataclass
class _State:
    """Of one chunk: points, jets that torch holds, plain buffers, halves, what adjoints of torch operations need."""

    points: Tensor
    tiles: int
    torch: dict[int, JetValue]
    plain: dict[int, Tensor] = field(default_factory=dict)
    halves: dict[int, Halves] = field(default_factory=dict)
    saved: dict[int, Any] = field(default_factory=dict)


class ScheduledEngine(ChunkedEngine):
    """A network of any shape in one channel space. `chunk` is the number of points that go through together."""

    def __init__(
        self,
        program: Program,
        operands: list[Tensor],
        space: ChannelSpace,
        outputs: Sequence[Output],
        coefficients: Sequence[float],
        plan: JetPlan | None,
        precision: str,
    ):
        self.operands = operands
        self._detached = [t.detach() for t in operands]
        self.schedule: Schedule = schedule(program, tuple(t.requires_grad for t in operands))
        self.program = self.schedule.program
        self.finish = None if plan is None else finish(self.schedule, plan)
        self.report = self.schedule.report(None if self.finish is None else self.finish.nodes)
        self.coefficients = tuple(coefficients)
        self._jets = closed_form(self.program, space, self.coefficients)
        self._space, self._outputs = space, tuple(outputs)
        self.parts = config.PARTS[precision]
        like = operands[0]
        self.device, self.dtype = like.device, like.dtype
        products = [n for n in self.schedule.nodes if isinstance(n, Product)]
        widest = max(self.program.widths[n.value] for n in products)
        together = tiles.LOOPED if loops(space) else len(space)  # channels in registers at a time
        self.config = tiles.tiles(widest, together, self.parts, config.capability(like.device))
        self._products = Products.of(products, self.program, self._detached, self.config, self.parts)
        self._coefficients = constants_on(self.coefficients, self.dtype, self.device)
        self.bytes_per_point = self._bytes_per_point(like.element_size())
        rows = self.grain = self.config.rows  # rows behind the last point of a chunk are those behind the last of all
        self.chunk = max(rows, SCRATCH_BYTES // self.bytes_per_point // rows * rows)

    def _bytes_per_point(self, item: int) -> int:
        padded = self._products.padded
        size = {"halves": 2 * self.parts or item, "plain": item}
        numbers = sum(padded(v) * size[form] for v, forms in self.schedule.stored.items() for form in forms)
        numbers += sum(padded(node.value) * item for node in self._products.nodes)
        adjoints = sum(padded(v) * item for v in self.schedule.shared if self.schedule.active[v])
        return len(self._space) * (numbers + adjoints // 2)  # about half of the adjoints are alive at once

    # -- the interface -----------------------------------------------------------------------------------------------

    def loss(self, task: LossTask, wanted: Sequence[bool], trained_wanted: bool) -> LossResult:
        call = ("loss", task.point_weights is None, task.keep_residuals, any(wanted) or trained_wanted)
        return self._step(call, lambda engine: engine._loss(task, wanted, trained_wanted))

    def outputs(self, points: Tensor) -> Tensor:
        return self._step(("outputs",), lambda engine: ChunkedEngine.outputs(engine, points))

    def adjoint(self, points: Tensor, gradient: Tensor, wanted: Sequence[bool]) -> list[Tensor | None]:
        call = ("adjoint", tuple(wanted))
        return self._step(call, lambda engine: ChunkedEngine.adjoint(engine, points, gradient, wanted))

    def _step(self, call: tuple[Any, ...], run: Callable[[ScheduledEngine], T]) -> T:
        """Rehearsed by a twin, since the halves of the weights are kept, and a rehearsal writes none."""

        def rehearse() -> None:
            twin = copy(self)
            twin._products = Products.of(self._products.nodes, self.program, self._detached, self.config, self.parts)
            run(twin)

        network = (id(self.schedule), id(self.finish), self.config, self.parts, self.dtype, self.device)
        return step((network, call), lambda: run(self), rehearse)

    # -- loss in one kernel at the end -------------------------------------------------------------------------------

    def _loss(self, task: LossTask, wanted: Sequence[bool], trained_wanted: bool) -> LossResult:
        end = self.finish
        if end is None:
            return super().loss(task, wanted, trained_wanted)
        plan, points = task.plan, task.points.contiguous()
        count = points.shape[0]
        gradients = Gradients(wanted)
        inputs = loss_inputs(task, points)
        mode = LOSS_AND_GRADIENT if any(wanted) or trained_wanted else LOSS
        constants = (*self.coefficients, *(task.constants[name] for name in plan.constants))
        numbers = constants_on(constants, self.dtype, self.device)
        total = points.new_zeros(end.columns(self._products.padded(end.last.source)))
        for rows in self._chunks(count):
            state = self._run(points[rows], end.nodes)
            part = total.new_empty(state.tiles, total.shape[0])
            adjoint = self._buffer(end.last.source, state)
            with self._on_device():
                self._finish(end, state, mode, (points, rows.start, count), numbers, inputs, adjoint, part)
                total += sum_rows(part)
            if any(wanted):
                self._walk_back(end.nodes, {end.last.source: adjoint}, state, gradients)
        width, m = self._products.padded(end.last.source), end.fields
        weights, losses, trained, biases = total.split([m * width, end.equations, end.trained, m])
        for operand, value in zip(end.last.op.operands, (weights.view(m, width), biases), strict=False):
            if wanted[operand]:
                gradients.add(operand, value[..., : self._detached[operand].shape[-1]].clone())
        per_equation = losses / count
        return LossResult(
            (per_equation * task.equation_weights).sum(),
            per_equation,
            inputs[-1] if task.keep_residuals else None,
            gradients.operands,
            list(trained.unbind(0)) if trained_wanted else [None] * end.trained,
        )

    def _finish(
        self,
        end: Finish,
        state: _State,
        mode: int,
        place: tuple[Tensor, int, int],
        numbers: Tensor,
        inputs: LossInputs,
        adjoint: Tensor,
        part: Tensor,
    ) -> None:
        points, first, count = place
        source, op = state.halves[end.last.source], end.last.op
        width = self._products.padded(end.last.source)
        weight = pad(self._detached[op.operands[0]], end.fields, width)
        bias = self._detached[op.operands[1]] if len(op.operands) > 1 else weight.new_zeros(end.fields)
        given = points
        if end.tail is not None and end.tail.given is not None:
            given = closed_form(end.tail.given, self._space, self.coefficients).forward(state.points, ())[0].data
        trained, data, equation_weights, point_weights, residuals = inputs
        jets = (source.data, source.scale, adjoint, adjoint, adjoint, adjoint)
        inputs_of_loss = (trained, data, given, equation_weights, point_weights, points, residuals)
        integers = (count, first, state.tiles, 0, part.shape[1])
        args = (points, *jets, weight, bias.contiguous(), numbers, *inputs_of_loss, part, *integers)
        constants = {"H": width, "ROWS": self.config.rows, "BLOCK": self.config.block, "PARTS": self.parts}
        constants |= {"MODE": mode, "WEIGHTED": point_weights is not points, "KEEP": residuals is not points}
        constants |= {"ONCE": not triton.knobs.runtime.interpret, "PERMUTED": False, "FIRST": 0, "ACTIVATION": 0}
        launch(finish_module(end.spec).output_kernel, (state.tiles,), args, constants, num_warps=self.config.warps)

    # -- forward -----------------------------------------------------------------------------------------------------

    def _forward(self, points: Tensor, wanted: Sequence[bool]) -> tuple[Tensor, Any]:
        state = self._run(points.contiguous(), self.schedule.nodes)
        last = dense(self._jet(len(self.program.operations), state))
        return last[positions(self._outputs, points.device)], state

    def _run(self, points: Tensor, nodes: Sequence[Node]) -> _State:
        state = _State(points, -(-points.shape[0] // self.config.rows), {0: self._jets.coordinates(points)})
        with self._on_device():
            for node in nodes:
                match node:
                    case ByTorch():
                        op = self.program.operations[node.position]
                        inputs = [self._jet(j, state) for j in op.inputs]
                        result = self._jets.apply(node.position, op, inputs, self._detached, state.saved)
                        state.torch[node.position + 1] = result
                    case Product():
                        state.plain[node.value] = self._buffer(node.value, state)
                        self._products.multiply(node, state.halves[node.source], state.plain[node.value])
                    case Pointwise():
                        self._group_forward(node, state)
        return state

    def _group_forward(self, node: Pointwise, state: _State) -> None:
        args = [self._coefficients, *self._read_arguments(node, state)]
        for value, (_, form) in zip(node.writes, node.group.writes, strict=True):
            if form == "halves":
                state.halves[value] = self._new_halves(value, state)
                args += [state.halves[value].data, state.halves[value].scale]
            else:
                state.plain[value] = self._buffer(value, state)
                args.append(state.plain[value])
        kernel = group.module(self._space, node.group).forward_kernel
        self._launch_group(kernel, node, state, [*args, len(state.points), state.tiles], {})

    def _launch_group(
        self, kernel: Any, node: Pointwise, state: _State, args: list[Any], needs: dict[str, int]
    ) -> None:
        width = self._products.padded(node.writes[0])
        constants: dict[str, Any] = {"H": width, "ROWS": self.config.rows, "BLOCK": self.config.block}
        constants |= {"PARTS": self.parts, "ONCE": not triton.knobs.runtime.interpret, **needs}
        for r, (value, kind) in enumerate(zip(node.reads, node.group.reads, strict=True)):
            if kind == "points":
                constants[f"IN{r}"] = self._flat(value, state).width
        grid = (state.tiles * (width // self.config.block),)
        launch(kernel, grid, tuple(args), constants, num_warps=self.config.warps)

    def _read_arguments(self, node: Pointwise, state: _State) -> list[Tensor]:
        args: list[Tensor] = []
        for value, kind, layer in zip(node.reads, node.group.reads, node.layers, strict=True):
            if kind == "product":
                args += [self._plain(value, state), self._bias(value, layer)]
            elif kind == "points":
                x = self._flat(value, state)
                weight = self._detached[layer.operands[0]] if layer is not None else x.value
                padded = pad(weight, self._products.padded(value), x.width)
                rows = (x.rows[:, None] * padded).sum(-1) if loops(self._space) else x.rows.contiguous()
                args += [x.value.contiguous(), rows, padded, self._bias(value, layer)]
            elif kind == "plain":
                args.append(self._plain(value, state))
            else:
                args += [state.halves[value].data, state.halves[value].scale]
        width = self.program.widths[node.writes[0]]
        for operand in node.operands:
            row = self._detached[operand].reshape(-1).expand(width)
            args.append(functional.pad(row, (0, self._products.padded(node.writes[0]) - width)).contiguous())
        return args

    def _flat(self, value: int, state: _State) -> AffineJet:
        """What a layer of the points reads."""
        x = state.torch[self.program.operations[value - 1].inputs[0]]
        assert isinstance(x, AffineJet)
        return x

    # -- adjoint -----------------------------------------------------------------------------------------------------

    def _backward(self, gradient: Tensor, state: Any, gradients: Gradients) -> None:
        last, n = len(self.program.operations), len(state.points)
        full = gradient.new_zeros(len(self._space), n, self.program.output_width)
        full[positions(self._outputs, gradient.device)] = gradient
        adjoints: dict[int, Tensor] = {}
        self._give(last, full, adjoints, state)
        self._walk_back(self.schedule.nodes, adjoints, state, gradients)

    def _walk_back(
        self, nodes: Sequence[Node], adjoints: dict[int, Tensor], state: _State, gradients: Gradients
    ) -> None:
        zbar: dict[int, Halves] = {}
        with self._on_device():
            for node in reversed(nodes):
                self._back(node, adjoints, zbar, state, gradients)

    def _back(
        self, node: Node, adjoints: dict[int, Tensor], zbar: dict[int, Halves], state: _State, gradients: Gradients
    ) -> None:
        active = self.schedule.active
        match node:
            case ByTorch():
                op, value = self.program.operations[node.position], node.position + 1
                grad = adjoints.pop(value, None)
                if grad is None or not active[value]:
                    return
                grad = grad[:, : len(state.points), : self.program.widths[value]]
                inputs, need = [self._jet(j, state) for j in op.inputs], [active[j] for j in op.inputs]
                back = self._jets.pull_back(
                    node.position, op, grad, inputs, need, self._detached, state.saved, gradients
                )
                for j, g in back:
                    self._give(j, g, adjoints, state)
            case Product():
                if node.value not in zbar:
                    return
                z, source = zbar.pop(node.value), state.halves[node.source]
                if gradients.wanted[node.op.operands[0]]:
                    gradients.add(node.op.operands[0], self._products.outer(node, source, z))
                if active[node.source]:
                    exists = node.source in adjoints
                    out = adjoints.setdefault(node.source, self._buffer(node.source, state, exists))
                    self._products.multiply(node, z, out, transposed=True, add=exists)
            case Pointwise():
                self._group_back(node, adjoints, zbar, state, gradients)

    def _group_back(
        self,
        node: Pointwise,
        adjoints: dict[int, Tensor],
        zbar: dict[int, Halves],
        state: _State,
        gradients: Gradients,
    ) -> None:
        active = self.schedule.active
        written = tuple(dict.fromkeys(node.writes))
        if not any(v in adjoints and active[v] for v in written):
            return
        args = [self._coefficients, *self._read_arguments(node, state)]
        args += [adjoints.pop(v) if v in adjoints else torch.zeros_like(self._buffer(v, state)) for v in written]
        needs: dict[str, int] = {}
        for r, (value, kind) in enumerate(zip(node.reads, node.group.reads, strict=True)):
            if kind == "product":
                needs[f"NEED{r}"] = int(active[value])
                zbar[value] = self._new_halves(value, state)
                args += [zbar[value].data, zbar[value].scale]
            elif kind != "points":
                needs[f"NEED{r}"] = 0 if not active[value] else 2 if value in adjoints else 1
                if needs[f"NEED{r}"] == 1:
                    adjoints[value] = self._buffer(value, state)
                args.append(adjoints[value] if active[value] else self._coefficients)
        sums = self._sum_rows_of(node, state)
        width = self._products.padded(node.writes[0])
        part = self._coefficients.new_empty(state.tiles, sums * width)
        kernel = group.module(self._space, node.group).adjoint_kernel
        self._launch_group(kernel, node, state, [*args, part, len(state.points), state.tiles, sums * width], needs)
        self._collect(node, sum_rows(part).view(sums, width), state, gradients)

    def _sum_rows_of(self, node: Pointwise, state: _State) -> int:
        """Rows of sums of a group's adjoint, as `group._adjoint` orders them."""
        count = len(node.operands)
        for value, kind in zip(node.reads, node.group.reads, strict=True):
            if kind == "product":
                count += 1
            elif kind == "points":
                count += len(self._space) + self._flat(value, state).width
        return max(count, 1)

    def _collect(self, node: Pointwise, sums: Tensor, state: _State, gradients: Gradients) -> None:
        """Gradients of biases, operands and layers of the points, from the sums over the points [rows, H]."""
        width = self.program.widths[node.writes[0]]
        rows = iter(sums[:, :width].unbind(0))
        points_layers: list[tuple[Affine, AffineJet, list[Tensor]]] = []
        for value, kind, layer in zip(node.reads, node.group.reads, node.layers, strict=True):
            if layer is None:
                continue
            first = [next(rows) for _ in range(len(self._space) if kind == "points" else 1)]
            if len(layer.operands) > 1 and gradients.wanted[layer.operands[1]]:
                gradients.add(layer.operands[1], first[0].clone())
            if kind == "points":
                points_layers.append((layer, self._flat(value, state), first))
        for operand in node.operands:
            total = next(rows)
            if gradients.wanted[operand]:
                gradients.add(operand, fit(total, self._detached[operand]).clone())
        for layer, x, totals in points_layers:
            columns = [next(rows) for _ in range(x.width)]
            if gradients.wanted[layer.operands[0]]:
                weight = torch.stack(columns, 1)
                if len(totals) > 1:
                    weight = torch.addmm(weight, torch.stack(totals[1:], 1), x.rows)
                gradients.add(layer.operands[0], weight)

    def _give(self, value: int, gradient: Tensor, adjoints: dict[int, Tensor], state: _State) -> None:
        """Add a gradient [channels, n, width] that torch made."""
        if value in self.schedule.shared:
            if value not in adjoints:
                adjoints[value] = torch.zeros_like(self._buffer(value, state))
            adjoints[value][:, : gradient.shape[1], : gradient.shape[2]] += gradient
        else:
            adjoints[value] = adjoints[value] + gradient if value in adjoints else gradient

    # -- buffers -----------------------------------------------------------------------------------------------------

    def _buffer(self, value: int, state: _State, exists: bool = False) -> Tensor:
        shape = len(self._space), state.tiles * self.config.rows, self._products.padded(value)
        return self._coefficients if exists else self._coefficients.new_empty(shape)

    def _new_halves(self, value: int, state: _State) -> Halves:
        rows, width = len(self._space) * state.tiles * self.config.rows, self._products.padded(value)
        if self.parts == 0:
            data = self._coefficients.new_empty(rows, width)
            return Halves(data, data)
        scales = rows // self.config.rows, width // self.config.block
        data = torch.empty(self.parts, rows, width, dtype=torch.float16, device=self.device)
        return Halves(data, self._coefficients.new_empty(scales))

    def _jet(self, value: int, state: _State) -> JetValue:
        """A value as torch sees it."""
        if value not in state.torch:
            plain = state.plain[value][:, : len(state.points), : self.program.widths[value]]
            state.torch[value] = DenseJet(plain)
        return state.torch[value]

    def _plain(self, value: int, state: _State) -> Tensor:
        """A value as kernels see it: padded with zeros."""
        if value not in state.plain:
            data = dense(state.torch[value])
            buffer = torch.zeros_like(self._buffer(value, state))
            buffer[:, : data.shape[1], : data.shape[2]] = data
            state.plain[value] = buffer
        return state.plain[value]

    def _bias(self, value: int, layer: Affine | None) -> Tensor:
        width = self._products.padded(value)
        if layer is None or len(layer.operands) < 2:
            return self._coefficients.new_zeros(width)
        bias = self._detached[layer.operands[1]]
        return functional.pad(bias, (0, width - bias.shape[0])).contiguous()

    def _on_device(self) -> AbstractContextManager[Any]:
        """Launches go to the operands' device, which need not be the current one."""
        return torch.cuda.device(self.device) if self.device.type == "cuda" else nullcontext()
