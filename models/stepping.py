"""Optimisation steps of a problem's loss, as CUDA graphs where that is possible.

What is captured depends on the optimiser. Adam: drawing the points (if they are new at every step), loss, gradients,
clipping and update are one graph. Methods that decide on the host have graphs of what they ask for: quasi-Newton ones
of loss and gradients, Gauss-Newton of the residuals with their Jacobian, and of the residuals alone. Without CUDA, or
where something cannot be captured, the same function is called; it gives the same numbers.

In a data-parallel run the closure averages loss, terms and gradients over the ranks by one all-reduce, inside the
graph. A fused loss has all its gradients when it has its value: there is no backward pass to hide the reduction under.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor, nn

from pinnfuse import parallel
from pinnfuse.datamodules.collocation import Batch, CollocationStream
from pinnfuse.datamodules.collocation import Points as Drawn
from pinnfuse.models.problem_loss import Points, ProblemLoss
from pinnfuse.optimizers import GaussNewton, PhasedOptimizer, StepGraph


class Stepper:
    """Steps of one optimiser on one loss.

    Args:
        net, loss: what is trained; their parameters are those of the optimiser.
        optimizer: says which phase it is in.
        backward: loss -> None, Lightning's `manual_backward`.
        graph: capture where possible.
    """

    def __init__(
        self,
        net: nn.Module,
        loss: ProblemLoss,
        optimizer: PhasedOptimizer,
        backward: Callable[[Tensor], None],
        graph: bool = True,
    ):
        self.net, self.loss, self.optimizer, self.backward, self.graph = net, loss, optimizer, backward, graph
        self._losses = loss.losses()
        self.batch: Mapping[str, Points] = {}
        """The points of the last step."""
        self.names: list[str] = []
        self._given: Mapping[str, Points] | None = None
        self._stream: CollocationStream | None = None
        self._captured: StepGraph | None = None
        self._jacobian: StepGraph | None = None
        self._key: Any = None

    def points(self) -> Mapping[str, Points]:
        """The points of the last step. Copies where a graph draws them: it rewrites them without telling torch."""
        return _copies(self.batch) if self._stream is not None else self.batch

    @property
    def obstacle(self) -> str:
        """Why the step is no CUDA graph; "" if it is one, or will be after its first calls."""
        if not self.graph:
            return (
                "it was switched off (training.graph), or DDP's hooks are in it (pinnfuse.models.DataParallel has none)"
            )
        return "nothing has run yet" if self._captured is None else self._captured.obstacle

    def explain(self) -> str:
        """One line on how steps run."""
        shared = ""
        if parallel.size() > 1:
            size = sum(p.numel() * p.element_size() for group in self.optimizer.param_groups for p in group["params"])
            shared = f"; one all-reduce of {size / 1e6:.2f} MB over {parallel.size()} processes"
        if self.obstacle:
            return f"kernel by kernel: {self.obstacle}{shared}"
        what = "loss and gradients are one CUDA graph"
        if self._jacobian is not None:
            rest = self._jacobian.obstacle
            what = "residuals are one CUDA graph, " + (f"the Jacobian not: {rest}" if rest else "the Jacobian another")
        if self.optimizer.capturable:
            what = "loss, gradients and update are one CUDA graph"
            what += ", points are drawn inside" if self._stream else ""
        return what + shared

    def step(self, wrapped: Any, batch: Batch, step: int) -> Tensor:
        """One step through `wrapped`, the optimiser or what Lightning made of it; returns [loss, *terms] before it.

        Args:
            batch: the points of the step.
            step: number of the step, for points that are drawn inside the graph.
        """
        optimizer = self.optimizer
        optimizer.enter_next_phase()
        stream = getattr(batch, "stream", None)  # a user's own batches may be plain dictionaries
        self._prepare(batch, stream if stream is not None and stream.changes_every_step else None)
        captured = self._captured
        assert captured is not None
        if self._stream is not None:
            self._stream.seed(step)
        else:
            self._place(batch if stream is None else stream.at(step))
        if optimizer.capturable:
            loss = wrapped.step(self._closure, update=captured)
        else:
            rows: dict[str, Any] = (
                {} if self._jacobian is None else {"linearise": self._jacobian, "residuals": captured}
            )
            loss = wrapped.step(captured, **rows)
        if self._stream is not None and captured.obstacle:  # perhaps drawing the points is what cannot be captured
            self._key, self._refused = None, True
        # the loss before the step; the last evaluation of a line search may be one that was not kept
        return torch.cat([loss.reshape(1).to(self._values), self._values[1:]])

    _refused = False  # points inside the graph

    def _prepare(self, batch: Batch, inside: CollocationStream | None) -> None:
        """A new graph for a new phase, other constants of the PDE, or other shapes."""
        if not (self.graph and self.optimizer.capturable) or self._refused:
            inside = None
        constants = tuple(tuple(term.constants.items()) for term in self._losses)
        shapes = tuple((name, tuple(drawn.points.shape)) for name, drawn in batch.items())
        key = (self.optimizer.phase_index, id(self.optimizer.active), constants, shapes, id(inside), self.net.training)
        if key == self._key:
            return
        self._key, self._stream, self._given = key, inside, None
        replaced = any(graph is not None and graph.captured for graph in (self._captured, self._jacobian))
        self._captured = self._jacobian = None
        if replaced:
            torch.cuda.empty_cache()  # a graph's memory goes back only then; a curriculum makes many
        device = next(self.net.parameters()).device
        function = self._update if self.optimizer.capturable else self._closure
        if isinstance(self.optimizer.active, GaussNewton):
            function, self._jacobian = self._residuals, StepGraph(self._linearise, device)
        generators = () if inside is None else (inside.generator,)
        self._captured = StepGraph(function, device, generators)
        for graph in (self._captured, self._jacobian):
            if graph is not None and not self.graph:
                graph.obstacle = self.obstacle

    def _place(self, batch: Batch) -> None:
        """Make it the batch of the step: its tensors, or their values in those that the graph reads."""
        if batch is self._given:
            return
        assert self._captured is not None
        self.optimizer.new_objective()
        first = self._given is None
        self._given, weighed = batch, _weighed(batch)
        if self._captured.obstacle:
            self.batch = weighed
        elif first:
            self.batch = _copies(weighed)
        else:
            torch._foreach_copy_(_tensors(self.batch), _tensors(weighed))

    def _closure(self) -> Tensor:
        """Loss with gradients, clipped where the phase says so."""
        params = [p for group in self.optimizer.param_groups for p in group["params"]]
        for p in params:
            p.grad = None
        loss, terms = self.loss(self.net, self.batch)
        self.backward(loss)
        self.names = list(terms)
        self._values = torch.stack([loss.detach(), *terms.values()])
        parallel.mean_([self._values, *(p.grad for p in params if p.grad is not None)])
        if self.optimizer.phase.clip is not None and self.optimizer.first_order:
            nn.utils.clip_grad_norm_(params, self.optimizer.phase.clip)
        if self.optimizer.first_order:  # a line search compares losses of the same weights
            self.loss.update_point_weights()
        return self._values[0]

    @torch.no_grad()
    def _residuals(self) -> Tensor:
        """Weighted residuals of all terms."""
        r, terms = self.loss.residuals(self.net, self.batch)
        self.names = list(terms)
        self._values = torch.stack([r.square().sum(), *terms.values()])
        parallel.mean_([self._values])
        return r

    def _update(self) -> Tensor:
        """Draw, loss, gradients, update."""
        if self._stream is not None:
            self.batch = self._stream.sample()
        self.optimizer.active.step(self._closure)  # type: ignore[arg-type]  # torch says float, and takes tensors
        return self._values[0]

    def _linearise(self) -> list[tuple[Tensor, Tensor]]:
        """All chunks: a graph gives them at once."""
        params = [p for group in self.optimizer.param_groups for p in group["params"]]
        return list(self.loss.linearise(self.net, self.batch, params))


def _weighed(batch: Mapping[str, Points]) -> Mapping[str, Points]:
    """The batch with point weights that make the mean of the ranks' losses the loss of all their points.

    Ranks of a `CollocationDataModule` hold as many points each, until some are added: then nothing is changed.
    """
    stream = getattr(batch, "stream", None)
    if parallel.size() == 1 or (stream is not None and not stream.replaced):
        return batch
    names = sorted(batch)
    shares = parallel.shares([len(batch[name].points) for name in names], batch[names[0]].points.device)
    found = {}
    for name, share in zip(names, shares, strict=True):
        points, data, weights = batch[name].points, batch[name].data, batch[name].weights
        weights = torch.ones_like(points[:, 0]) if weights is None else weights
        found[name] = Drawn(points, data, weights * share.to(points))
    return found


def _copies(batch: Mapping[str, Points]) -> dict[str, Points]:
    return {name: Drawn(*(_copy(p) for p in (d.points, d.data, d.weights))) for name, d in batch.items()}


def _copy(part: Any) -> Any:
    if isinstance(part, dict):
        return {name: column.clone() for name, column in part.items()}
    return None if part is None else part.clone()


def _tensors(batch: Mapping[str, Points]) -> list[Tensor]:
    found = []
    for drawn in batch.values():
        parts = (drawn.points, *(drawn.data or {}).values(), drawn.weights)
        found += [part for part in parts if part is not None]
    return found
