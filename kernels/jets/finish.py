"""The end of a schedule in one kernel: output layer, output transform, residuals, loss, and the adjoint below them.

It is `source.output_kernel` with another sweep: what lies below the output layer is any value, so its adjoint is stored
as plain numbers, and the activation has a kernel of its own.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from types import ModuleType

import torch
from torch import Tensor

from pinnfuse.jets.engine import LossTask
from pinnfuse.jets.plan import JetPlan
from pinnfuse.jets.program import Affine
from pinnfuse.kernels.jets import cache
from pinnfuse.kernels.jets.network import Tail, needed_by, tail_of
from pinnfuse.kernels.jets.output import output_kernel
from pinnfuse.kernels.jets.pieces import column_sums, load_channel
from pinnfuse.kernels.jets.pointwise import NotGenerated, pointwise
from pinnfuse.kernels.jets.schedule import ByTorch, Node, Pointwise, Product, Schedule
from pinnfuse.kernels.jets.source import head
from pinnfuse.kernels.jets.spec import Spec

LossInputs = tuple[Tensor, Tensor, Tensor, Tensor, Tensor]
"""Trained parameters, data columns, equation weights, point weights, residuals (out); the points stand for none."""


def loss_inputs(task: LossTask, points: Tensor) -> LossInputs:
    """What the last kernel reads beside jets."""
    plan, count, equations = task.plan, points.shape[0], len(task.plan.residuals)
    trained = torch.stack([task.trained[name] for name in plan.trained]) if plan.trained else points
    data = torch.stack([task.data[name] for name in plan.pde.data]) if plan.pde.data else points
    weights = points if task.point_weights is None else task.point_weights.expand(count, equations).contiguous()
    residuals = points.new_empty(count, equations) if task.keep_residuals else points
    return trained, data, task.equation_weights, weights, residuals


@dataclass(frozen=True)
class Finish:
    """Attributes:
    last: the output layer.
    nodes: those of the schedule that run before.
    spec: of the kernel.
    equations, trained: numbers of them.
    """

    last: Product
    nodes: tuple[Node, ...]
    spec: Spec
    equations: int
    trained: int

    @property
    def fields(self) -> int:
        return self.spec.fields

    @property
    def tail(self) -> Tail | None:
        return self.spec.tail

    def columns(self, width: int) -> int:
        """Length of a row of sums: output weights [fields, width], losses, trained parameters, output biases."""
        return self.fields * width + self.equations + self.trained + self.fields


@lru_cache(maxsize=128)
def finish(schedule: Schedule, plan: JetPlan) -> Finish | None:
    """None where the end of the network or the equations are more than the kernel can do."""
    program = schedule.program
    raw = 1 + max(i for i, op in enumerate(program.operations) if isinstance(op, Affine))
    last = next((n for n in schedule.nodes if isinstance(n, Product) and n.value == raw), None)
    if last is None:
        return None
    try:
        spec = Spec(plan.space, (), plan.outputs, program.widths[raw], plan, tail_of(program, raw))
        made = pointwise(plan)
        module(spec)
    except NotGenerated:
        return None
    below = {i + 1 for i in needed_by(program, last.source)}
    nodes = tuple(node for node in schedule.nodes if below & set(_made(node)))
    return Finish(last, nodes, spec, made.equations, made.trained)


def _made(node: Node) -> tuple[int, ...]:
    match node:
        case ByTorch():
            return (node.position + 1,)
        case Product():
            return (node.value,)
        case Pointwise():
            return node.writes


@lru_cache(maxsize=128)
def module(spec: Spec) -> ModuleType:
    """The generated module, with its `output_kernel`."""
    return cache.load(generate(spec), "finish")


def generate(spec: Spec) -> str:
    """The module's text; raises NotGenerated for equations or an output transform without Triton code."""
    assert spec.plan is not None
    code = pointwise(spec.plan, "v" if spec.tail is None else "up")
    parts = [head(spec), column_sums({spec.fields}), output_kernel(spec, code, _sweep)]
    return "\n\n".join(part.strip("\n") + "\n" for part in parts)


def _sweep(spec: Spec, by_channel: dict[int, list[tuple[int, int]]]) -> tuple[list[str], list[str]]:
    lines: list[str] = []
    for k, read in by_channel.items():
        code = " + ".join(f"v{i}[:, None] * u{f}" for i, f in read) or "tl.zeros([ROWS, BLOCK], dtype)"
        lines += [load_channel(k)] * bool(read)
        lines += [f"gu{f} += v{i}[:, None] * a{k}" for i, f in read]
        lines.append(f"tl.store(y_ptr + {k} * channel + offset, {code})")
    return lines, []
