"""A neural operator as a LightningModule: data and physics in one loss, rollouts, fine-tuning on one instance."""

from __future__ import annotations

import copy
import math
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from torchmetrics import MeanMetric

from pinnfuse import parallel
from pinnfuse.datamodules.grids import GridBatch
from pinnfuse.grid.crossover import inside_graphs
from pinnfuse.models.operators import for_task
from pinnfuse.models.pinn import NonFiniteLoss
from pinnfuse.models.recorded import RecordedModule
from pinnfuse.optimizers import PhasedOptimizer, StepGraph
from pinnfuse.precision import torch_convolutions
from pinnfuse.tasks import Scales, SurrogateSpec, Task, WindowTask, relative_errors


class FineTuned(NamedTuple):
    """The prediction of a network that was trained on for one instance, and its physics term after every step."""

    prediction: Tensor
    physics: list[float]


def _root(squares: Tensor) -> Tensor:
    """With derivative 0 at 0."""
    return squares.clamp_min(torch.finfo(squares.dtype).tiny).sqrt()


class GridSurrogate(RecordedModule):
    """Trains a network on a task: `data_weight` times the relative L2 error plus `physics_weight` times the residual.

    Both are norms relative to that of knowing nothing, not squares of them: the force of neither fades as the network
    gets better, so that one weight holds for the whole training. Convolutions follow
    `torch.get_float32_matmul_precision()`: a residual divides the rounding of TF32 by a spacing squared.

    On CUDA a step of Adam (loss, gradients, clipping, update) is one CUDA graph: the host, which would launch
    hundreds of small kernels, is out of the way. Of optimisers that decide on the host, loss and gradients are one.

    Logs `loss/total`, `loss/data`, `loss/<equation>` (residual over that of the trivial prediction, root mean squares),
    `val/rel_l2/<field>` (mean over held-out samples) and `val/physics`. Values are those after the step they are logged
    at. Inputs are scaled by `calibrate`, which the first batch does if nobody has.

    Args:
        task: what is learned.
        net: `[B, channels, *space]` -> `[B, channels, *space]`; None builds the task's default network.
        training: terms and phases; None takes the task's default.
        backend: of the residual, see `pinnfuse.FusedGridResidualLoss`.
        log_every: steps between two rows of losses.

    Example:
        >>> task = pinnfuse.tasks.get("darcy")
        >>> Trainer(max_epochs=1).fit(GridSurrogate(task), GridDataModule(task))
    """

    mean: Tensor
    spread: Tensor
    output: Tensor
    residual_scale: Tensor
    calibrated: Tensor
    positions: Tensor
    term_weights: Tensor

    def __init__(
        self,
        task: Task,
        net: nn.Module | None = None,
        training: SurrogateSpec | None = None,
        backend: str = "auto",
        log_every: int = 50,
    ):
        super().__init__()
        if log_every < 1:
            raise ValueError(f"GridSurrogate: `log_every` must be at least 1; got {log_every}")
        self.automatic_optimization = False
        self.task, self.log_every = task, log_every
        self.training_spec = task.training if training is None else training
        self.net = for_task(task) if net is None else net
        self.physics = task.physics(backend)
        inside, outside = task.channels
        for name, size, value in (
            ("mean", inside, 0.0),
            ("spread", inside, 1.0),
            ("output", outside, 1.0),
            ("residual_scale", len(task.pde.equations), 1.0),
        ):
            self.register_buffer(name, torch.full((size,), value))
        self.register_buffer("calibrated", torch.tensor(False))
        self.register_buffer("term_weights", torch.ones(2), persistent=False)
        self.register_buffer("positions", task.positions(torch.zeros((), dtype=torch.float64)), persistent=False)
        self.metrics = nn.ModuleDict({field: MeanMetric() for field in task.fields})
        self.physics_metric = MeanMetric()
        self.to(getattr(torch, self.training_spec.precision))
        self.rel_l2, self.last_loss, self.last_physics = {}, math.nan, math.nan
        self.phase_starts, self.row_written = [], False
        self._weighed: tuple[float, float] | None = None
        self._weigh()
        self._batch: GridBatch | None = None
        self._captured: StepGraph | None = None
        self._captured_for: Any = None
        self._explained = "no step was made yet"
        self._recent: list[tuple[int, Tensor]] = []

    # -- prediction ----------------------------------------------------------------------------------------------

    @property
    def subject(self) -> str:
        return self.task.name

    @torch_convolutions()
    def forward(self, inputs: Tensor) -> Tensor:
        """Prediction, laid out as the task's targets."""
        return self._predict(self.net, inputs)

    def _predict(self, net: nn.Module, inputs: Tensor) -> Tensor:
        space = (1,) * len(self.task.shape)
        channels = (self.task.encode(inputs) - self.mean.view(-1, *space)) / self.spread.view(-1, *space)
        if len(self.positions):
            channels = torch.cat([channels, self.positions.expand(len(channels), *self.positions.shape)], dim=1)
        return self.task.decode(inputs, net(channels) * self.output.view(-1, *space))

    def calibrate(self, inputs: Tensor) -> None:
        """Take the scales of numbers from inputs (no solutions); a few dozen are enough."""
        scales: Scales = self.task.scales(inputs.to(self.mean))
        with torch.no_grad():
            for buffer, value in zip((self.mean, self.spread, self.output, self.residual_scale), scales, strict=True):
                buffer.copy_(value)
            self.physics.equation_weights.copy_(1.0 / (self.residual_scale * len(self.residual_scale)))
            self.calibrated.fill_(True)

    @torch.no_grad()
    def rollout(self, inputs: Tensor, windows: int) -> Tensor:
        """Windows one after the other, each from the one before: `[B, windows * ahead, C, *space]`."""
        if not isinstance(self.task, WindowTask):
            raise ValueError(f"GridSurrogate.rollout: needs a task with time; {self.task.name!r} is a map.")
        found = []
        for _ in range(windows):
            found.append(self(inputs))
            inputs = torch.cat([inputs, found[-1]], dim=1)[:, -self.task.history :]
        return torch.cat(found, dim=1)

    # -- losses --------------------------------------------------------------------------------------------------

    def physics_term(self, inputs: Tensor, prediction: Tensor) -> Tensor:
        """Residual over that of the trivial prediction: root of the mean square over the batch and over equations."""
        return _root(self.task.misfit(self.physics, self.task.residual(inputs, prediction)))

    def terms(self, batch: GridBatch) -> dict[str, Tensor]:
        """The terms that the training spec asks for, without their weights: "data", "physics"."""
        spec, prediction = self.training_spec, self(batch.inputs)
        found = {}
        if spec.loss != "physics":
            n = batch.labelled
            found["data"] = relative_errors(self.task, prediction[:n], batch.targets[:n]).mean()
        if spec.loss != "data":
            found["physics"] = self.physics_term(batch.inputs, prediction)
        return found

    def total(self, terms: dict[str, Tensor]) -> Tensor:
        """Their weighted sum."""
        if len(terms) == 1:  # a weight on the only term would change the step of no optimiser but gradient descent
            return next(iter(terms.values()))
        self._weigh()
        return (self.term_weights * torch.stack([terms["data"], terms["physics"]])).sum()

    def _weigh(self) -> None:
        """The numbers of `training_spec` to where a graph reads them: a callback may change them at any step."""
        now = (self.training_spec.data_weight, self.training_spec.physics_weight)
        if now != self._weighed:
            self._weighed = now
            self.term_weights.copy_(torch.tensor(now, dtype=self.term_weights.dtype))

    # -- training ------------------------------------------------------------------------------------------------

    def configure_optimizers(self) -> PhasedOptimizer:
        return PhasedOptimizer(self.parameters(), self.training_spec.phases, announces_changes=True)

    @torch_convolutions()
    def training_step(self, batch: GridBatch, batch_idx: int) -> None:
        """One optimisation step."""
        wrapped: Any = self.optimizers()
        schedule = self.schedule
        if self._captured is None and not self.calibrated:
            self.calibrate(batch.inputs)
            parallel.same_(list(self.buffers()))  # rank 0's scales
        self.row_written = False
        schedule.enter_next_phase()
        schedule.new_objective()
        captured = self._prepared(batch)
        step, first = self.global_step + 1, self.global_step == 0
        with inside_graphs(not captured.obstacle):
            update: dict[str, Any] = {"update": captured} if schedule.capturable else {}
            loss = wrapped.step(self._closure if update else captured, **update)
        self._recent.append((step, loss.detach().clone()))  # a graph writes into one tensor
        if len(self.phase_starts) <= schedule.phase_index:
            self.phase_starts.append((self.global_step - 1, schedule.phase.optimizer))
        if self.global_step % self.log_every == 0 or first:
            self.log_dict(self.report(), logger=False)
            self.row_written = not first or self.log_every == 1
        if schedule.finished:
            self.trainer.should_stop = True

    def _prepared(self, batch: GridBatch) -> StepGraph:
        """What does the step on this batch: a new graph for a new phase, other shapes, other constants of the PDE or
        other terms. Their weights are read from a tensor."""
        schedule, shapes = self.schedule, (batch.inputs.shape, batch.targets.shape, batch.labelled)
        numbers = (self.training_spec.loss, tuple(self.physics.constants.items()))
        key = (schedule.phase_index, id(schedule.active), shapes, numbers, self.net.training)
        self._weigh()
        if key != self._captured_for:
            if self._captured is not None and self._captured.captured:
                self._captured = None
                torch.cuda.empty_cache()  # the memory of a graph goes back only then
            self._captured_for = key
            self._captured = StepGraph(self._update if schedule.capturable else self._closure, self.device)
            if not self.training_spec.graph:
                self._captured.obstacle = "it was switched off (training.graph)"
            elif isinstance(self.trainer.model, DistributedDataParallel):
                self._captured.obstacle = "DDP's hooks are in it (pinnfuse.models.DataParallel has none)"
            self._batch = None
        assert self._captured is not None
        if self._captured.obstacle:
            self._batch = batch
        elif self._batch is None:
            self._batch = GridBatch(batch.inputs.clone(), batch.targets.clone(), batch.labelled)
        else:
            torch._foreach_copy_([self._batch.inputs, self._batch.targets], [batch.inputs, batch.targets])
        return self._captured

    def explain_step(self) -> str:
        """How steps run, after the first one: as a CUDA graph, or why not."""
        if self._captured is None:
            return self._explained
        if self._captured.obstacle:
            return f"kernel by kernel: {self._captured.obstacle}"
        whole = self._captured.function == self._update
        return f"loss{', gradients and update' if whole else ' and gradients'} are one CUDA graph"

    def _update(self) -> Tensor:
        """Loss, gradients, update."""
        return self.schedule.active.step(self._closure)  # type: ignore[arg-type, return-value]  # torch says float

    def _closure(self) -> Tensor:
        """Loss with gradients, clipped where the phase says so."""
        assert self._batch is not None
        params = [p for group in self.schedule.param_groups for p in group["params"]]
        for p in params:
            p.grad = None
        loss = self.total(self.terms(self._batch))
        self.manual_backward(loss)
        loss = loss.detach().clone()
        parallel.mean_([loss, *(p.grad for p in params if p.grad is not None)])
        if self.schedule.phase.clip is not None and self.schedule.first_order:
            nn.utils.clip_grad_norm_(params, self.schedule.phase.clip)
        return loss

    def on_train_end(self) -> None:
        if self._batch is not None:
            self.report()
        self._explained = self.explain_step()
        self._captured = self._captured_for = None  # with its memory

    def report(self) -> dict[str, float]:
        """Check the steps since the last report, then record every term on the last batch; returns the terms."""
        self.check()
        assert self._batch is not None
        with torch.no_grad():
            terms = self.terms(self._batch)
            values = {"loss/total": self.total(terms)}
            if "data" in terms:
                values["loss/data"] = terms["data"]
            if "physics" in terms:
                given = self.task.residual(self._batch.inputs, self(self._batch.inputs))
                shares = _root(self.task.squares(self.physics, given) / self.residual_scale)
                values |= {f"loss/{name}": share for name, share in zip(self.task.pde.equations, shares, strict=True)}
        stacked = torch.stack(list(values.values()))
        if self.trainer.world_size > 1:
            stacked = self.trainer.strategy.reduce(stacked, reduce_op="mean")
        metrics = dict(zip(values, stacked.tolist(), strict=True))
        self.last_loss = metrics["loss/total"]
        self.record(metrics | {"lr": float(self.schedule.param_groups[0]["lr"])})
        return metrics

    def check(self) -> None:
        """Raise `NonFiniteLoss` for the first step since the last check whose loss or gradient was not finite."""
        recent, self._recent = self._recent, []
        sums = [p.detach().abs().sum() for p in self.parameters()] + [loss for _, loss in recent]
        if bool(torch.stack(sums).isfinite().all()):
            return
        wrong = [step for step, loss in recent if not bool(loss.isfinite())]
        raise NonFiniteLoss(*((wrong[0], ["total"]) if wrong else (self.global_step, ["gradient"])))

    # -- validation ----------------------------------------------------------------------------------------------

    @torch_convolutions()
    def validation_step(self, batch: GridBatch, batch_idx: int) -> None:
        prediction = self(batch.inputs)
        errors = relative_errors(self.task, prediction, batch.targets)
        for metric, values in zip(self._metrics().values(), errors.unbind(1), strict=True):
            metric.update(values)
        self.physics_metric.update(self.physics_term(batch.inputs, prediction))

    def _metrics(self) -> dict[str, MeanMetric]:
        return dict(self.metrics.items())  # type: ignore[arg-type]  # a ModuleDict has no item type

    def on_validation_epoch_end(self) -> None:
        self.rel_l2 = {name: float(metric.compute()) for name, metric in self._metrics().items()}
        self.last_physics = float(self.physics_metric.compute())
        for metric in (*self._metrics().values(), self.physics_metric):
            metric.reset()
        values = {f"val/rel_l2/{name}": value for name, value in self.rel_l2.items()}
        self.log_dict(values, logger=False)
        self.record(values | {"val/physics": self.last_physics})

    # -- fine-tuning ---------------------------------------------------------------------------------------------

    @torch_convolutions()
    def fine_tune(self, inputs: Tensor, steps: int, lr: float = 1e-3, anchor: float = 0.0) -> FineTuned:
        """Train a copy of the network on the residual of these instances alone; the network itself stays as it was.

        Args:
            inputs: one instance or a few, `[B, ...]`; their solutions are not used.
            steps: of Adam.
            lr: its learning rate.
            anchor: weight of the squared relative distance from the prediction before.

        Source: Li et al., Physics-informed neural operator for learning partial differential equations, ACM/IMS J. Data
        Science 1 (2024), section 3.2.
        """
        net = copy.deepcopy(self.net)
        optimizer = torch.optim.Adam(net.parameters(), lr=lr)
        history: list[Tensor] = []
        with torch.enable_grad():
            start = self(inputs).detach()
            for _ in range(steps):
                optimizer.zero_grad()
                prediction = self._predict(net, inputs)
                physics = self.physics_term(inputs, prediction)
                loss = physics
                if anchor:
                    loss = loss + anchor * relative_errors(self.task, prediction, start).square().mean()
                loss.backward()
                optimizer.step()
                history.append(physics.detach())
        with torch.no_grad():
            prediction = self._predict(net, inputs)
            history.append(self.physics_term(inputs, prediction))
        return FineTuned(prediction, torch.stack(history).tolist())

    # -- checkpoints ---------------------------------------------------------------------------------------------

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        self.check()
        for logger in self.loggers:  # what a resumed run shows of the steps before
            logger.save()
        checkpoint["pinnfuse"] = {
            "step": self.global_step,
            "subject": self.subject,
            "last_loss": self.last_loss,
            "rel_l2": dict(self.rel_l2),
            "phase_starts": list(self.phase_starts),
        }

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        kept = checkpoint.get("pinnfuse", {})
        self.last_loss, self.rel_l2 = kept.get("last_loss", math.nan), dict(kept.get("rel_l2", {}))
        self.phase_starts = [(step, name) for step, name in kept.get("phase_starts", [])]
