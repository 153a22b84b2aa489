"""A physics-informed network as a LightningModule: problem, network, losses, and a schedule of optimisers."""

from __future__ import annotations

import inspect
import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from pinnfuse import parallel
from pinnfuse.balancing import CausalWeights, PerPointWeights, PointWeights, ResidualAttention, SelfAdaptive, value_at
from pinnfuse.datamodules.collocation import Batch, CollocationStream
from pinnfuse.datamodules.collocation import Points as Drawn
from pinnfuse.errors import nearest
from pinnfuse.metrics import RelativeL2
from pinnfuse.models.initialise import fit_output_layer
from pinnfuse.models.problem_loss import INTERIOR, Points, ProblemLoss
from pinnfuse.models.recorded import RecordedModule
from pinnfuse.models.registry import for_problem
from pinnfuse.models.stepping import Stepper
from pinnfuse.models.transform import set_constants
from pinnfuse.optimizers import PhasedOptimizer, for_size
from pinnfuse.problems import Problem, TrainingSpec
from pinnfuse.problems.weighting import point_weights


def point_weights_of(problem: Problem, spec: TrainingSpec) -> PointWeights:
    """The weights of the interior points that a training spec asks for.

    Raises:
        ValueError: causal weights of a problem without time, or an option that the class does not have.
    """
    make = {"attention": ResidualAttention, "self_adaptive": SelfAdaptive, "causal": CausalWeights}[spec.point_weights]
    options: dict[str, Any] = dict(spec.point_options)
    if make is CausalWeights:
        if "t" not in problem.domain.bounds:
            raise ValueError(f"training.point_weights: causal weights need a coordinate t; {problem.name!r} has none.")
        start, end = problem.domain.bounds["t"]
        options = {"column": problem.domain.axis("t"), "start": start, "end": end} | options
    else:
        options = {"points": spec.interior} | options
    known = inspect.signature(make).parameters
    for name in options:
        if name not in known:
            raise ValueError(f"training.point_options: {make.__name__} has no {name!r}. {nearest(name, known)}")
    try:
        return make(**options)
    except TypeError as error:  # a text for a number, say
        raise ValueError(f"training.point_options: a wrong type in {spec.point_options!r}: {error}.") from error


def check_curriculum(problem: Problem, curriculum: Mapping[str, list[list[float]]]) -> None:
    """ValueError where it names no constant of the PDE, or ends on another problem than the reference solves."""
    constants = {name: p.value for name, p in problem.pde.parameters.items() if not p.trainable}
    for name, knots in curriculum.items():
        if name not in constants:
            raise ValueError(f"training.curriculum: the PDE has no constant {name!r}. {nearest(name, constants)}")
        if not math.isclose(knots[-1][1], constants[name], rel_tol=1e-6):
            raise ValueError(
                f"training.curriculum: {name!r} ends at {knots[-1][1]!r}, but the reference of {problem.name!r} has "
                f"{constants[name]!r}. End with that value, or change the problem's option."
            )


@torch.no_grad()
def predict_numpy(net: nn.Module, points: np.ndarray, batch: int = 65_536) -> np.ndarray:
    """Fields [N, m] of a network at points [N, d] in numpy, float64 in and out."""
    inputs = torch.as_tensor(points).to(next(net.parameters()))
    return torch.cat([net(part) for part in inputs.split(batch)]).double().cpu().numpy()


class NonFiniteLoss(RuntimeError):
    """The loss became NaN or infinite. `step` and `terms` say when, and in which terms of the loss."""

    def __init__(self, step: int, terms: list[str], checkpoint: str | None = None):
        super().__init__(step, terms)
        self.step, self.terms, self.checkpoint = step, terms, checkpoint

    def __str__(self) -> str:
        kept = f"The last good checkpoint is {self.checkpoint}." if self.checkpoint else "There is no checkpoint yet."
        return (
            f"the loss is not finite at step {self.step}, in {', '.join(map(repr, self.terms))}. {kept} "
            "Lower the learning rate, or train in float64."
        )


class Diverged(NonFiniteLoss):
    """The loss is finite, but has grown far beyond that of the first step."""

    def __init__(self, step: int, loss: float, first: float):
        super().__init__(step, ["total"])
        self.loss, self.first = loss, first

    def __str__(self) -> str:
        kept = f"The last good checkpoint is {self.checkpoint}." if self.checkpoint else "There is no checkpoint yet."
        return (
            f"training diverged: at step {self.step} the loss is {self.loss:.1e}, and it was {self.first:.1e} at the "
            f"first step. {kept} Lower the learning rate, or clip the gradient (`clip` of the phase)."
        )


DIVERGED = 1e4
"""Times the first loss; resampling, curricula and the start of a phase stay far below it."""


class PINN(RecordedModule):
    """Trains a network on a problem, through all phases of its schedule inside one `fit`.

    Logs `loss/total` (weighted), `loss/<equation>`, `loss/<condition>` (mean squared residuals without their weights),
    `val/rel_l2/<field>` and, for trained parameters, `parameter/<name>`. Values are those after the step they are
    logged at. Optimisation is manual: a quasi-Newton step evaluates the loss several times.

    Args:
        problem: what to solve.
        net: [N, coordinates] -> [N, fields]; None builds the problem's default network.
        training: phases, precision, loss weights; None takes the problem's default, with L-BFGS in place of
            dense methods that do not take as many parameters as the network has.
        backend: of the losses, see `pinnfuse.FusedResidualLoss`.
        log_every: steps between two rows of losses. Between them nothing waits for the device.

    Example:
        >>> problem = pinnfuse.problems.get("burgers")
        >>> module = PINN(problem)
        >>> Trainer(max_epochs=1).fit(module, CollocationDataModule(problem))
    """

    def __init__(
        self,
        problem: Problem,
        net: nn.Module | None = None,
        training: TrainingSpec | None = None,
        backend: str = "auto",
        log_every: int = 50,
    ):
        super().__init__()
        if log_every < 1:
            raise ValueError(f"PINN: `log_every` must be at least 1; got {log_every}")
        self.automatic_optimization = False
        self.problem = problem
        self.log_every = log_every
        spec = problem.training if training is None else training
        check_curriculum(problem, spec.curriculum)
        net = for_problem(problem, hard=spec.hard) if net is None else net
        if training is None:
            spec = replace(spec, phases=for_size(spec.phases, sum(p.numel() for p in net.parameters())))
        self.training_spec = spec
        conditions = problem.soft_conditions(self.training_spec.hard)
        self.net = net
        self.loss = ProblemLoss(problem, conditions, self.training_spec.loss_weights, backend)
        if self.training_spec.point_weights != "none":
            self.loss.weigh_points(INTERIOR, point_weights_of(problem, self.training_spec))
        self.metrics = nn.ModuleDict(
            {
                name: RelativeL2(
                    problem.free(names), len(problem.times) if problem.free(names) else 1, sync_on_compute=False
                )
                for name, names in problem.metrics.items()
            }
        )
        self.to(getattr(torch, self.training_spec.precision))
        self.rel_l2: dict[str, float] = {}
        self.last_loss = self.first_loss = self.first_terms = math.nan  # `first_terms`: their sum without weights
        self.phase_starts: list[tuple[int, str]] = []  # (steps done before it, optimiser)
        self.row_written = False
        """The last training step wrote a row of losses: a moment to look, save or stop."""
        self._stepper: Stepper | None = None
        self._explained = ""
        self._recent: list[tuple[int, Tensor]] = []  # (step, [loss, *terms])

    def forward(self, points: Tensor) -> Tensor:
        """Fields [N, m] at points [N, d]."""
        return self.net(points)

    def predict_numpy(self, points: np.ndarray, batch: int = 65_536) -> np.ndarray:
        """Fields [N, m] at points [N, d] in numpy, float64 in and out."""
        return predict_numpy(self.net, points, batch)

    # -- training ------------------------------------------------------------------------------------------------

    def configure_optimizers(self) -> PhasedOptimizer:
        return PhasedOptimizer(self.parameters(), self.training_spec.phases, announces_changes=True)

    @property
    def subject(self) -> str:
        return f"{self.problem.pde_name}, {self.problem.name}"

    @property
    def headline(self) -> tuple[str, ...]:
        return tuple(self.problem.headline[:2])

    def training_step(self, batch: Batch, batch_idx: int) -> None:
        """`inner_steps` optimisation steps, each counted by Lightning."""
        wrapped: Any = self.optimizers()  # PhasedOptimizer in the wrapper that counts steps
        optimizer = self.schedule
        if self._stepper is None or self._stepper.optimizer is not optimizer:
            wrapped_by_ddp = isinstance(self.trainer.model, DistributedDataParallel)
            if wrapped_by_ddp and self._of_own_points():
                raise ValueError(
                    "PINN: DistributedDataParallel would give all ranks the point weights of rank 0, whose points they "
                    "do not have. Use Trainer(strategy=pinnfuse.models.DataParallel()), as train.py does."
                )
            graph = self.training_spec.graph and not wrapped_by_ddp
            self._stepper = Stepper(self.net, self.loss, optimizer, self.manual_backward, graph)
        self.row_written = False
        for _ in range(self.training_spec.inner_steps):
            self._follow_curriculum()
            first = not self._recent and self.global_step == 0
            if first:
                if self.training_spec.initialise:
                    with torch.no_grad():  # the fitted loss may be tiny, and is no measure of divergence
                        loss, terms = self.loss(self.net, batch)
                    self._begin(parallel.mean(torch.stack([loss, *terms.values()])))
                    fit_output_layer(self.net, self.loss, batch)
                self.loss.check_finite(True)
            self._recent.append((self.global_step + 1, self._stepper.step(wrapped, batch, self.global_step)))
            if first:
                self.loss.check_finite(False)
            if len(self.phase_starts) <= optimizer.phase_index:
                self.phase_starts.append((self.global_step - 1, optimizer.phase.optimizer))
            if self.global_step % self.log_every == 0 or first:
                self.log_dict(self.report(), logger=False)
                self.row_written = not first or self.log_every == 1
            if optimizer.finished:
                self.trainer.should_stop = True
                return
            if self.global_step == self.trainer.max_steps:
                return

    def _follow_curriculum(self) -> None:
        """Give the PDE's constants the values of this step; a function of the step alone, so a resumed run agrees."""
        for name, knots in self.training_spec.curriculum.items():
            value = value_at(knots, self.global_step)
            if self.loss.interior.constants[name] != value:
                self.loss.set_parameter(name, value)
                set_constants(self.net, {name: value})
                self.schedule.new_objective()

    def load_state_dict(self, *arguments: Any, **options: Any) -> Any:
        """As torch's; what the output transform says of the PDE's constants follows those of the loss."""
        found = super().load_state_dict(*arguments, **options)
        set_constants(self.net, self.loss.interior.constants)
        return found

    def on_train_end(self) -> None:
        if self._stepper is not None:
            self.report()
            self._explained = self.explain()  # Lightning moves the network to the CPU when the fit is over

    def on_train_start(self) -> None:
        self._explained = ""

    @property
    def last_batch(self) -> Mapping[str, Points]:
        """Points of the last step; empty before the first."""
        return {} if self._stepper is None else self._stepper.points()

    def explain(self) -> str:
        """How the loss is computed and how steps run; after the first step of a fit."""
        if self._explained:
            return self._explained
        if self._stepper is None:
            return "no step was made yet"
        inside = self.loss.interior.explain(self.net, self.last_batch[INTERIOR].points)
        return f"{inside}\nstep       {self._stepper.explain()}"

    # -- what `LossBalancing` asks ---------------------------------------------------------------------------------

    def loss_terms(self, batch: Mapping[str, Points]) -> dict[str, Tensor]:
        """Every term of the loss without its weight, differentiable."""
        return self.loss.separate(self.net, batch)

    def term_kernels(self, batch: Mapping[str, Points]) -> dict[str, Tensor]:
        """Mean over points of |d r / d parameters|^2 of every term, on 256 of its points."""
        params = [p for p in self.parameters() if p.requires_grad]
        return self.loss.kernels(self.net, batch, params)

    def set_term_weights(self, weights: Mapping[str, Tensor]) -> None:
        """Multiply the weights of the training spec by these from the next step on."""
        with torch.no_grad():
            self.loss.set_weights(weights)
        self.schedule.new_objective()

    # -- what `Refinement` asks ------------------------------------------------------------------------------------

    @property
    def collocation_points(self) -> Tensor:
        """Those in the interior: of the last step, or of the next one before the first."""
        return (self.last_batch or self._points().at(self.global_step))[INTERIOR].points

    def candidate_points(self, count: int, generator: torch.Generator) -> Tensor:
        """[count, d] uniform points of the domain."""
        precision = getattr(torch, self.training_spec.precision)
        return self.problem.domain.sample(count, generator, self.device, precision, "uniform")

    def point_residuals(self, points: Tensor) -> Tensor:
        """[N, E] as they count in the loss: where a problem has no weight, no points are needed."""
        weights = point_weights(self.problem.weighting, self.problem.pde.coordinates, points)
        return self.loss.interior.weighted_residuals(self.net, points, weights)[0].view(len(points), -1)

    def set_collocation_points(self, points: Tensor) -> None:
        """In the interior, from the next step on."""
        weights = point_weights(self.problem.weighting, self.problem.pde.coordinates, points)
        self._points().replace(INTERIOR, Drawn(points, None, weights))

    def _points(self) -> CollocationStream:
        stream = self.trainer.train_dataloader
        if not isinstance(stream, CollocationStream):
            raise ValueError(
                "PINN: Refinement needs the points of a CollocationDataModule. With points of your own, call "
                "pinnfuse.balancing.rad where you draw them."
            )
        return stream

    def report(self) -> dict[str, float]:
        """Check the steps since the last report, then record every term on the last batch; returns the terms."""
        self.check()
        with torch.no_grad():
            total, terms = self.loss(self.net, self.last_batch)
        names = [f"loss/{name}" for name in ("total", *terms)]
        values = torch.stack([total.detach(), *terms.values()])
        parameters = {name: value.detach().to(values) for name, value in self.loss.interior.parameter_values().items()}
        if parameters:
            names += [f"parameter/{name}" for name in parameters]
            values = torch.cat([values, torch.stack(list(parameters.values()))])
        metrics = dict(zip(names, parallel.mean(values).tolist(), strict=True))
        self.last_loss = metrics["loss/total"]
        self.record(metrics | {"lr": float(self.schedule.param_groups[0]["lr"])})
        return metrics

    def check(self) -> None:
        """Raise `NonFiniteLoss` for the first step since the last check whose loss or gradient was not finite."""
        recent, self._recent = self._recent, []
        finite = [torch.stack([p.detach().sum() for p in self.parameters()]).isfinite().all()]
        finite += [torch.stack([values for _, values in recent])[:, 0].isfinite().all()] if recent else []
        if bool(torch.stack(finite).all()):
            self._check_growth(recent)
            return
        for step, (loss, *terms) in recent:
            if not loss.isfinite():
                names = self._stepper.names if self._stepper else []
                wrong = [name for name, term in zip(names, terms, strict=True) if not term.isfinite()]
                raise NonFiniteLoss(step, wrong or ["total"])
        raise NonFiniteLoss(self.global_step, ["gradient"])

    def _check_growth(self, recent: list[tuple[int, Tensor]]) -> None:
        """Raise `Diverged` where every loss since the last check is far above the first one."""
        if not recent:
            return
        if math.isnan(self.first_loss):
            self._begin(recent[0][1])
        values = torch.stack([values for _, values in recent])
        loss, terms = torch.stack([values[:, 0].min(), values[:, 1:].sum(1).min()]).tolist()
        # both: balancing raises weights, and terms of a small weight may grow
        if loss > DIVERGED * self.first_loss > 0 and terms > DIVERGED * self.first_terms:
            raise Diverged(recent[-1][0], loss, self.first_loss)

    def _begin(self, values: Tensor) -> None:
        """Losses before the first step, by which divergence is measured, from [loss, *terms]."""
        self.first_loss, self.first_terms = torch.stack([values[0], values[1:].sum()]).tolist()

    # -- validation ----------------------------------------------------------------------------------------------

    def validation_step(self, batch: tuple[Tensor, Tensor], batch_idx: int) -> None:
        points, reference = batch
        prediction = self.net(points)
        for fields, metric in zip(self.problem.metrics.values(), self._metrics(), strict=True):
            columns = [self.problem.pde.fields.index(field) for field in fields]
            group = self.problem.time_of(points) if metric.groups > 1 else None
            metric.update(prediction[:, columns].to(reference), reference[:, columns], group)

    def _metrics(self) -> list[RelativeL2]:
        return list(self.metrics.values())  # type: ignore[arg-type]  # a ModuleDict has no item type

    def on_validation_epoch_end(self) -> None:
        # every rank has seen a part; all sums of all metrics in one all-reduce (ratios: means serve as well)
        parallel.mean_([getattr(metric, name) for metric in self._metrics() for name in metric.metric_state])
        self.rel_l2 = {
            name: float(metric.compute()) for name, metric in zip(self.metrics, self._metrics(), strict=True)
        }
        for metric in self._metrics():
            metric.reset()
        values = {f"val/rel_l2/{name}": value for name, value in self.rel_l2.items()}
        self.log_dict(values, logger=False)
        self.record(values)

    # -- checkpoints ---------------------------------------------------------------------------------------------

    def on_save_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        self.check()
        for logger in self.loggers:  # what a resumed run shows of the steps before
            logger.save()
        checkpoint["pinnfuse"] = {"step": self.global_step, "last_loss": self.last_loss, "rel_l2": dict(self.rel_l2)}
        checkpoint["pinnfuse"]["phase_starts"] = list(self.phase_starts)
        checkpoint["pinnfuse"]["subject"] = self.subject
        checkpoint["pinnfuse"] |= {"first_loss": self.first_loss, "first_terms": self.first_terms}
        values = {f"loss.{name}": b.cpu() for name, b in self.loss.named_buffers() if name in self._of_own_points()}
        checkpoint["pinnfuse"]["of_ranks"] = parallel.gathered(values, self.device)

    def on_load_checkpoint(self, checkpoint: dict[str, Any]) -> None:
        kept = checkpoint.get("pinnfuse", {})
        self.first_loss, self.first_terms = kept.get("first_loss", math.nan), kept.get("first_terms", math.nan)
        self.last_loss, self.rel_l2 = kept.get("last_loss", math.nan), dict(kept.get("rel_l2", {}))
        self.phase_starts = [(step, name) for step, name in kept.get("phase_starts", [])]
        of_ranks, rank = kept.get("of_ranks", []), parallel.rank()
        for name in of_ranks[0] if of_ranks else ():  # a new rank starts from the mean
            values = [of_rank[name] for of_rank in of_ranks]
            own = values[rank] if rank < len(values) else torch.full_like(values[0], torch.cat(values).mean().item())
            checkpoint["state_dict"][name] = own

    def _of_own_points(self) -> list[str]:
        """Buffers of the loss that hold a number for each point of this rank."""
        modules = self.loss.point_weights.items()
        return [f"point_weights.{term}.value" for term, weights in modules if isinstance(weights, PerPointWeights)]
