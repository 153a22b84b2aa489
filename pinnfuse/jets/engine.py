"""What a backend must offer, and the part that all torch backends share: chunks of points in bounded memory.

An engine serves one call: it holds the network's operands (tensors connected to the parameters by ordinary autograd)
and turns points into outputs, or straight into a loss with its gradients. The loss is a mean over points, so the
gradients of a chunk are complete before the next chunk starts, and memory does not grow with the number of points.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager
from copy import copy
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor

from pinnfuse.jets import lanes
from pinnfuse.jets.closed_form import closed_form
from pinnfuse.jets.gradients import Gradients, PointGradients
from pinnfuse.jets.plan import JetPlan, Output, broadcast, evaluate_residuals
from pinnfuse.jets.program import Program
from pinnfuse.jets.space import ChannelSpace
from pinnfuse.jets.workspace import Workspace, borrowed


@dataclass(frozen=True)
class LossTask:
    """One loss: `sum_e equation_weights[e] * mean_n(point_weights[n, e] * r[n, e]^2)`.

    Attributes:
        points: [N, d]; data: name -> [N].
        constants, trained: values of the PDE's constant and trained parameters.
        equation_weights: [E]; point_weights: [N, E] or None for ones.
        keep_residuals: return the residuals too.
    """

    plan: JetPlan
    points: Tensor
    constants: dict[str, float]
    trained: dict[str, Tensor]
    data: dict[str, Tensor]
    equation_weights: Tensor
    point_weights: Tensor | None = None
    keep_residuals: bool = False


@dataclass
class LossResult:
    """Loss (scalar), per equation `mean_n(w r^2)` [E], residuals [N, E] if kept, gradients in operand order."""

    loss: Tensor
    per_equation: Tensor
    residuals: Tensor | None
    operand_gradients: list[Tensor | None]
    trained_gradients: list[Tensor | None]


class JetEngine(ABC):
    """One network in one channel space. `wanted` says which operands need a gradient; none: no gradient work."""

    operands: list[Tensor]

    @abstractmethod
    def loss(self, task: LossTask, wanted: Sequence[bool], trained_wanted: bool) -> LossResult:
        """Loss and, where wanted, its gradients."""

    @abstractmethod
    def outputs(self, points: Tensor) -> Tensor:
        """The requested channels [R, N], without a graph."""

    @abstractmethod
    def adjoint(self, points: Tensor, gradient: Tensor, wanted: Sequence[bool]) -> list[Tensor | None]:
        """Gradients of the operands for an upstream gradient [R, N] of the outputs."""


class ChunkedEngine(JetEngine):
    """Loss, outputs and adjoint by looping over chunks of points."""

    chunk: int
    grain = 1
    """Chunks start at multiples of it: points that an engine's kernels take together."""

    @abstractmethod
    def _forward(self, points: Tensor, wanted: Sequence[bool]) -> tuple[Tensor, Any]:
        """Outputs [R, n] of a chunk and what its adjoint needs."""

    @abstractmethod
    def _backward(self, gradient: Tensor, state: Any, gradients: Gradients) -> None:
        """Add the chunk's operand gradients for an upstream gradient [R, n]."""

    def loss(self, task: LossTask, wanted: Sequence[bool], trained_wanted: bool) -> LossResult:
        count = len(task.points)
        residuals = task.points.new_empty(count, len(task.plan.residuals)) if task.keep_residuals else None

        def sums(share: Share) -> _Sums:
            lane, chunks = share
            return lane._sums(chunks, task, wanted, trained_wanted, residuals)

        with self._shares(count) as shares:
            total, *others = lanes.run(sums, shares)
        for other in others:
            total.add(other)
        per_equation = (total.squares / count).to(task.points.dtype)
        return LossResult(
            (per_equation * task.equation_weights).sum(),
            per_equation,
            residuals,
            total.gradients.operands,
            list(total.trained.values()) if trained_wanted else [None] * len(total.trained),
        )

    def _sums(
        self,
        chunks: Sequence[slice],
        task: LossTask,
        wanted: Sequence[bool],
        trained_wanted: bool,
        residuals: Tensor | None,
    ) -> _Sums:
        """Over some chunks; fills their rows of `residuals`."""
        plan, points = task.plan, task.points
        count, equations, outputs_count = len(points), len(plan.residuals), len(plan.outputs)
        gradients = Gradients(wanted)
        parameters = [*plan.constant_tensors(task.constants), *(task.trained[name].detach() for name in plan.trained)]
        trained: dict[str, Tensor | None] = dict.fromkeys(task.trained)
        squares = torch.zeros(equations, dtype=torch.float64, device=points.device)
        scale = (2 / count) * task.equation_weights.unsqueeze(1)
        for rows in chunks:
            x = points[rows]
            outputs, state = self._forward(x, wanted)
            data = (task.data[name][rows] for name in plan.pde.data)
            arguments = (*outputs.detach().unbind(0), *x.unbind(1), *parameters, *data)
            r = torch.stack(broadcast(plan.residual_function(*arguments), x))
            weighted = r if task.point_weights is None else task.point_weights[rows].t() * r
            squares += (weighted * r).sum(1, dtype=torch.float64)
            if residuals is not None:
                residuals[rows] = r.t()
            if any(wanted) or trained_wanted:
                found = broadcast(plan.adjoint_function(*arguments, *(weighted * scale).unbind(0)), x)
                if any(wanted):
                    self._backward(torch.stack(found[:outputs_count]), state, gradients)
                for name, gradient in zip(plan.trained, found[outputs_count:], strict=True):
                    trained[name] = _plus(trained[name], gradient.sum())
        return _Sums(squares, gradients, trained)

    def outputs(self, points: Tensor) -> Tensor:
        none = [False] * len(self.operands)

        def outputs(share: Share) -> list[Tensor]:
            lane, chunks = share
            return [lane._forward(points[rows], none)[0].detach() for rows in chunks]

        with self._shares(len(points)) as shares:
            parts = lanes.run(outputs, shares)
        return torch.cat([part for some in parts for part in some], dim=1)

    def adjoint(self, points: Tensor, gradient: Tensor, wanted: Sequence[bool]) -> list[Tensor | None]:
        def gradients(share: Share) -> Gradients:
            found, (lane, chunks) = Gradients(wanted), share
            for rows in chunks:
                _, state = lane._forward(points[rows], wanted)
                lane._backward(gradient[:, rows], state, found)
            return found

        with self._shares(len(points)) as shares:
            total, *others = lanes.run(gradients, shares)
        for other in others:
            total.merge(other)
        return total.operands

    @contextmanager
    def _lane(self) -> Iterator[ChunkedEngine]:
        """This engine with memory of its own, for one thread and one call."""
        yield self

    def _most_lanes(self, count: int) -> int:
        """How many threads may share the chunks of `count` points."""
        return 1

    @contextmanager
    def _shares(self, count: int) -> Iterator[list[Share]]:
        """Who runs which chunks: neighbours together, always the same for the same numbers of points and threads."""
        number = self._most_lanes(count)
        chunks = list(self._chunks(count, number))
        each = -(-len(chunks) // number)
        with ExitStack() as stack:
            yield [(stack.enter_context(self._lane()), chunks[i : i + each]) for i in range(0, len(chunks), each)]

    def _chunks(self, count: int, multiple: int = 1) -> Iterator[slice]:
        """As few as `chunk` allows and a multiple of a number, and as equal as can be."""
        number = -(-count // (self.chunk * multiple)) * multiple
        size = -(-count // (number * self.grain)) * self.grain
        return (slice(start, min(start + size, count)) for start in range(0, count, size))


Share = tuple[ChunkedEngine, list[slice]]
"""What one thread does: an engine with memory of its own, and its chunks."""


@dataclass
class _Sums:
    """Of some chunks: `sum_n w r^2` [E], gradients of the operands, and of the trained parameters by name."""

    squares: Tensor
    gradients: Gradients
    trained: dict[str, Tensor | None]

    def add(self, other: _Sums) -> None:
        self.squares += other.squares
        self.gradients.merge(other.gradients)
        for name, gradient in other.trained.items():
            if gradient is not None:
                self.trained[name] = _plus(self.trained[name], gradient)


def _plus(total: Tensor | None, part: Tensor) -> Tensor:
    return part if total is None else total + part


class ClosedFormEngine(ChunkedEngine):
    """A recognised network by closed-form jets (`pinnfuse.jets.closed_form`)."""

    _memory: Workspace

    def __init__(
        self,
        program: Program,
        operands: list[Tensor],
        space: ChannelSpace,
        outputs: Sequence[Output],
        coefficients: Sequence[float],
    ):
        self.operands = operands
        self._detached = [t.detach() for t in operands]
        self._jets = closed_form(program, space, tuple(coefficients))
        self._outputs = tuple(outputs)
        like = operands[0] if operands else torch.empty(0)
        self._fewest = LANE_BYTES // bytes_per_point(program, space, like.element_size()) + 1
        self.chunk = chunk_size(program, space, like)

    def linearise(self, task: LossTask) -> Iterator[tuple[slice, Tensor, list[Tensor], list[Tensor]]]:
        """Chunk by chunk: rows, residuals [n, E], and their derivatives [n, E, *shape] by operands, by trained values.

        For every equation one adjoint that does not sum over the points.
        """
        with self._lane() as lane:
            for rows in self._chunks(len(task.points)):
                yield rows, *lane._linearised(task, rows)

    def _linearised(self, task: LossTask, rows: slice) -> tuple[Tensor, list[Tensor], list[Tensor]]:
        wanted, x = [True] * len(self.operands), task.points[rows]
        outputs, state = self._forward(x, wanted)
        leaves = [outputs.detach()] + [v.detach().expand(len(x)).clone() for v in task.trained.values()]
        leaves = [leaf.requires_grad_() for leaf in leaves]
        data = {name: column[rows] for name, column in task.data.items()}
        with torch.enable_grad():
            trained = dict(zip(task.trained, leaves[1:], strict=True))
            r = evaluate_residuals(task.plan, leaves[0], x, task.constants, trained, data)
            columns = [
                torch.autograd.grad(c.sum(), leaves, retain_graph=True, materialize_grads=True) for c in r.unbind(1)
            ]
        found = [PointGradients(wanted) for _ in columns]
        for gradients, (upstream, *_) in zip(found, columns, strict=True):
            self._backward(upstream, state, gradients)
        by_operand = [
            torch.stack([_or_zeros(g.operands[i], len(r), operand) for g in found], 1)
            for i, operand in enumerate(self.operands)
        ]
        return r.detach(), by_operand, [torch.stack(c, 1) for c in list(zip(*columns, strict=True))[1:]]

    @contextmanager
    def _lane(self) -> Iterator[ClosedFormEngine]:
        lane = copy(self)
        with borrowed() as lane._memory:
            yield lane

    def _most_lanes(self, count: int) -> int:
        on_cpu = all(operand.device.type == "cpu" for operand in self.operands)
        return max(1, min(torch.get_num_threads(), lanes.MOST_LANES, count // self._fewest)) if on_cpu else 1

    def _forward(self, points: Tensor, wanted: Sequence[bool]) -> tuple[Tensor, Any]:
        self._memory.restart(len(points))  # the chunk before is done
        out, values, saved = self._jets.forward(points, self._detached, self._memory)
        return out.data[positions(self._outputs, points.device)], (out, values, saved)

    def _backward(self, gradient: Tensor, state: Any, gradients: Gradients) -> None:
        out, values, saved = state
        full = self._memory.jet(gradient, *out.data.shape).data.zero_()
        full[positions(self._outputs, gradient.device)] = gradient
        self._jets.adjoint(full, values, saved, self._detached, gradients, self._memory)


def chain_rule(tensors: Sequence[Tensor], derivatives: Sequence[Tensor], parameters: Sequence[Tensor]) -> Tensor:
    """[n, E, P] by parameters from derivatives [n, E, *shape] by tensors, each a parameter or a function of some."""
    n, equations = derivatives[0].shape[:2]
    found: dict[int, Tensor] = {}
    known = {id(p) for p in parameters}

    def add(parameter: Tensor, part: Tensor) -> None:
        part = part.reshape(n, equations, -1)
        found[id(parameter)] = found[id(parameter)] + part if id(parameter) in found else part

    for tensor, derivative in zip(tensors, derivatives, strict=True):
        if id(tensor) in known:
            add(tensor, derivative)
        elif tensor.requires_grad and not tensor.is_leaf:
            rows = derivative.reshape(-1, *tensor.shape)
            parts = torch.autograd.grad(
                tensor, list(parameters), rows, retain_graph=True, allow_unused=True, is_grads_batched=True
            )
            for parameter, part in zip(parameters, parts, strict=True):
                if part is not None:
                    add(parameter, part)
    zero = derivatives[0].new_zeros(1)
    return torch.cat([found.get(id(p), zero.expand(n, equations, p.numel())) for p in parameters], 2)


def _or_zeros(gradient: Tensor | None, points: int, operand: Tensor) -> Tensor:
    return operand.new_zeros(points, *operand.shape) if gradient is None else gradient


@lru_cache(maxsize=256)
def positions(outputs: tuple[Output, ...], device: torch.device) -> tuple[Tensor, slice, Tensor]:
    """Index of the outputs in a jet [K, n, width]; copied to a device once."""
    index = torch.tensor([[o.channel, o.column] for o in outputs], device=device)
    return index[:, 0], slice(None), index[:, 1]


def bytes_per_point(program: Program, space: ChannelSpace, itemsize: int) -> int:
    """Working memory of one point: forward jets, activation derivatives and a gradient, about twice the jets."""
    return 2 * len(space) * sum(program.widths) * itemsize


def chunk_size(program: Program, space: ChannelSpace, like: Tensor) -> int:
    """Points per chunk: what a core's cache can hold on a CPU, a share of a gigabyte on an accelerator."""
    budget = CPU_CHUNK_BYTES if like.device.type == "cpu" else ACCELERATOR_CHUNK_BYTES
    return max(32, min(2**18, budget // bytes_per_point(program, space, like.element_size())))


CPU_CHUNK_BYTES = 48 * 2**20
LANE_BYTES = 24 * 2**20
"""Working memory of the fewest points that are worth a thread of their own."""
ACCELERATOR_CHUNK_BYTES = 2**30
