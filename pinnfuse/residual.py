r"""Residual losses of coordinate networks: a network and a PDE in, the loss and all parameter gradients out.

    L = sum_e W_e mean_n( w_ne r_ne^2 ),     r_ne = residual of equation e at point n

The loss is a mean over points, so its gradient is complete when the forward pass ends; `backward()` scales what was
stored. Those stored gradients have no derivative of their own: `create_graph=True` through a fused loss raises.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from pinnfuse import backends, checks
from pinnfuse import precision as precisions
from pinnfuse.jets import HAVE_CLOSED_FORM, ClosedFormEngine, JetEngine, JetPlan, LossTask, Output
from pinnfuse.jets.autograd import FusedJets, FusedLoss
from pinnfuse.jets.engine import bytes_per_point, chain_rule
from pinnfuse.jets.nested import nested_outputs
from pinnfuse.jets.plan import derivative_plan, evaluate_residuals, plan
from pinnfuse.jets.space import ChannelSpace
from pinnfuse.parameters import ResidualModule
from pinnfuse.pde import PDE, parse_jet
from pinnfuse.pde.jet import split_names


@dataclass
class Evaluation:
    """What `FusedResidualLoss.evaluate` returns.

    Attributes:
        loss: scalar, differentiable; sum over equations of equation weight times `per_equation`.
        residuals: [N, E], detached.
        per_equation: name -> mean over points of `point weight * residual^2` (scalar, detached, without the equation
        weight).
    """

    loss: Tensor
    residuals: Tensor
    per_equation: dict[str, Tensor]


@dataclass(frozen=True, repr=False)
class Explanation:
    """Which path a call takes, and what it costs. `str()` is the report."""

    backend: str
    path: str
    reason: str
    channels: tuple[str, ...]
    precision: str
    points: int
    memory_bytes: int | None

    def __str__(self) -> str:
        memory = (
            "grows with points x layers x order"
            if self.memory_bytes is None
            else f"about {max(self.memory_bytes / 2**20, 0.1):.1f} MB"
        )
        closed = [f"known      {HAVE_CLOSED_FORM}"] if self.reason.startswith(backends.NO_CLOSED_FORM) else []
        return "\n".join(
            (
                f"backend    {self.backend} ({self.path})",
                f"why        {self.reason}",
                *closed,
                f"channels   {len(self.channels)}: {', '.join(self.channels)}",
                f"precision  {self.precision}",
                f"memory     {memory} for {self.points:,} points",
            )
        )

    __repr__ = __str__  # a notebook shows the report


class FusedResidualLoss(ResidualModule):
    r"""Weighted mean squared residual of a PDE for a network, $\sum_e W_e \frac1N \sum_n w_{ne} r_{ne}^2$.

    Args:
        pde: the equations. Its trained parameters become `nn.Parameter`s of this module (a positive one is stored as
            its logarithm), so they are in checkpoints, optimisers, DDP and `.to(device)`.
        backend: "auto", "torch", "triton" or "autograd" (see `pinnfuse.backends`). An explicit choice never falls back.
        precision: None follows `torch.get_float32_matmul_precision()`; "float32", "tf32" or "bf16x3" overrides it.
        equation_weights: one number per equation, by name or in order; 1 by default. Kept as a buffer: it may be
            changed in place while training, and another tensor assigned, an `nn.Parameter` for trained ones.
        check_finite: look for NaN and Inf in points and weights, and for negative weights, at every call
            (synchronises a GPU).

    Example:
        >>> loss_fn = FusedResidualLoss(PDE("u", "t x", equations={"heat": "u_t - 0.1*u_xx"}))
        >>> loss = loss_fn(net, points)  # points [N, 2]: columns t, x
        >>> loss.backward()
    """

    def __init__(
        self,
        pde: PDE,
        backend: str = "auto",
        precision: str | None = None,
        equation_weights: Mapping[str, float] | Sequence[float] | Tensor | None = None,
        check_finite: bool = False,
    ):
        super().__init__(pde, equation_weights)
        backends.check_name(backend, "FusedResidualLoss")
        precisions.resolve(precision, torch.float64 if precision == "float64" else torch.float32)
        self.backend = backend
        self.precision = precision
        self.check_finite = check_finite

    # -- the four public ways in ---------------------------------------------------------------------------------

    @torch._disable_dynamo  # torch.compiler.disable, without importing the compiler (and Triton) at import
    def forward(
        self,
        net: nn.Module,
        points: Tensor,
        point_weights: Tensor | None = None,
        data: Mapping[str, Tensor] | None = None,
    ) -> Tensor:
        """The loss, a scalar.

        Args:
            net: any module from [N, coordinates] to [N, fields].
            points: [N, coordinates], float32 or float64. No gradient flows to them (use backend="autograd" for that).
            point_weights: [N] or [N, equations], >= 0; differentiable.
            data: one tensor [N] per data column of the PDE.

        Raises:
            ValueError: shapes, dtypes or devices disagree; the message names expected, got and the remedy.
            BackendUnavailable: an explicit backend cannot run here.
        """
        return self._loss(net, points, point_weights, data, keep_residuals=False)[0]

    @torch._disable_dynamo  # torch.compiler.disable, without importing the compiler (and Triton) at import
    def evaluate(
        self,
        net: nn.Module,
        points: Tensor,
        point_weights: Tensor | None = None,
        data: Mapping[str, Tensor] | None = None,
    ) -> Evaluation:
        """The loss with residuals and per-equation means; arguments as in `forward`."""
        loss, per_equation, residuals = self._loss(net, points, point_weights, data, keep_residuals=True)
        assert residuals is not None
        return Evaluation(loss, residuals, dict(zip(self.pde.equations, per_equation.unbind(0), strict=True)))

    @torch._disable_dynamo  # torch.compiler.disable, without importing the compiler (and Triton) at import
    def residuals(self, net: nn.Module, points: Tensor, data: Mapping[str, Tensor] | None = None) -> Tensor:
        """Residuals [N, equations], differentiable to the network's and the PDE's parameters."""
        net, columns, _ = self._checked(net, points, None, data, "FusedResidualLoss.residuals")
        with precisions.no_autocast(points.device.type):
            plan_, choice = self._choice(net, points)
            outputs = self._outputs(net, points, plan_, choice)
            return evaluate_residuals(plan_, outputs, points, self.constants, self.parameter_values(), columns)

    @torch.no_grad()
    def linearise(
        self,
        net: nn.Module,
        points: Tensor,
        parameters: Sequence[Tensor],
        point_weights: Tensor | None = None,
        data: Mapping[str, Tensor] | None = None,
    ) -> Iterator[tuple[Tensor, Tensor]]:
        r"""Weighted residuals and their Jacobian, chunk by chunk: (r [M], J [M, n]), with $\sum |r|^2$ the loss.

        A row is $\sqrt{W_e w_{ne} / N}\, r_{ne}$; the columns are the `parameters` one after the other (those of the
        network and of this module; others get zeros). For Gauss-Newton methods (`pinnfuse.optimizers.GaussNewton`).

        Raises:
            BackendUnavailable: the network is not recognised (see `explain`): only closed-form jets have this.
        """
        caller = "FusedResidualLoss.linearise"
        net, columns, weights = self._checked(net, points, point_weights, data, caller)
        scale = self._root_weights(points, weights)
        recognised = backends.recognised(net, points, caller)
        plan_ = plan(self.pde)
        choice = backends.Choice("torch", "closed form", "the Jacobian of the residuals", recognised)
        with torch.enable_grad(), precisions.no_autocast(points.device.type):  # weights: functions of the parameters
            engine = self._engine(net, points, plan_, choice)
            trained = self.parameter_values()
        assert isinstance(engine, ClosedFormEngine)
        task = LossTask(plan_, points.detach(), self.constants, trained, columns, self.equation_weights)
        tensors, chunks = [*engine.operands, *trained.values()], engine.linearise(task)
        precision = precisions.resolve(self.precision, points.dtype)
        while True:
            with precisions.no_autocast(points.device.type), precisions.torch_matmul(precision):  # not while it waits
                if (chunk := next(chunks, None)) is None:
                    return
                rows, r, by_operand, by_trained = chunk
                jacobian = chain_rule(tensors, [*by_operand, *by_trained], parameters)
                weight = scale[rows].reshape(-1)
                found = r.reshape(-1) * weight, jacobian.flatten(0, 1).mul_(weight[:, None])
            yield found

    @torch.no_grad()
    def weighted_residuals(
        self,
        net: nn.Module,
        points: Tensor,
        point_weights: Tensor | None = None,
        data: Mapping[str, Tensor] | None = None,
    ) -> tuple[Tensor, dict[str, Tensor]]:
        """The residuals r [M] of `linearise` without their Jacobian, and the per-equation means of `evaluate`."""
        found = self.evaluate(net, points, point_weights, data)
        _, _, weights = self._checked(net, points, point_weights, data, "FusedResidualLoss.weighted_residuals")
        return (found.residuals * self._root_weights(points, weights)).reshape(-1), found.per_equation

    def explain(self, net: nn.Module, points: Tensor) -> Explanation:
        """Which backend and path `net` takes on these points, why, with which channels, precision and memory."""
        net, _, _ = self._checked(
            net, points, None, {n: points[:, 0] for n in self.pde.data}, "FusedResidualLoss.explain"
        )
        plan_, choice = self._choice(net, points)
        memory, reason = None, choice.reason
        if choice.recognised is not None:
            with torch.no_grad(), precisions.no_autocast(points.device.type):
                engine = self._engine(net, points, plan_, choice)
            rows = min(points.shape[0], getattr(engine, "chunk", points.shape[0]))
            per_point = bytes_per_point(choice.recognised.program, plan_.space, points.element_size())
            memory = rows * getattr(engine, "bytes_per_point", per_point)
            if own := getattr(engine, "memory", None):
                memory = own(points)
            if report := getattr(engine, "report", None):
                reason = f"{reason} ({report})"
        precision = precisions.resolve(self.precision, points.dtype)
        return Explanation(
            choice.backend, choice.path, reason, plan_.channel_names(), precision, points.shape[0], memory
        )

    def extra_repr(self) -> str:
        return f"{self.pde!r}, backend={self.backend!r}, precision={self.precision!r}"

    # -- inside --------------------------------------------------------------------------------------------------

    def _root_weights(self, points: Tensor, weights: Tensor | None) -> Tensor:
        """[N, equations], the square root of W_e w_ne / N."""
        scale = (self.equation_weights.to(points) / len(points)).expand(len(points), len(self.pde.equations))
        return (scale if weights is None else scale * weights.detach()).sqrt()

    def _checked(
        self,
        net: nn.Module,
        points: Tensor,
        point_weights: Tensor | None,
        data: Mapping[str, Tensor] | None,
        caller: str,
    ) -> tuple[nn.Module, dict[str, Tensor], Tensor | None]:
        net = checks.unwrap(net, caller)
        checks.check_points(points, self.pde.coordinates, caller)
        columns = checks.check_data(data, self.pde.data, points.shape[0], caller)
        weights = checks.check_point_weights(
            point_weights, points.shape[0], len(self.pde.equations), self.check_finite, caller
        )
        checks.check_network(net, points, caller)
        named: dict[str, Tensor] = {f"the PDE parameter {n}": p for n, p in self.trained.items()}
        named |= {f"data[{n!r}]": c for n, c in columns.items()}
        if weights is not None:
            named["point_weights"] = weights
        checks.check_tensors(named, points, caller)
        if self.check_finite:
            checks.check_finite("points", points, caller)
            if weights is not None:
                checks.check_finite("point_weights", weights, caller)
        return net, columns, weights

    def _choice(self, net: nn.Module, points: Tensor) -> tuple[JetPlan, backends.Choice]:
        plan_ = plan(self.pde)
        choice = backends.choose(self.backend, net, points, plan_.space, plan_)
        if choice.recognised is None:
            return plan(self.pde, collapse=False), choice
        checks.check_width(choice.recognised.program.output_width, self.pde.fields, "FusedResidualLoss")
        return plan_, choice

    def _engine(self, net: nn.Module, points: Tensor, plan_: JetPlan, choice: backends.Choice) -> JetEngine:
        precision = precisions.resolve(self.precision, points.dtype)
        coefficients = plan_.coefficients(self.constants)
        check = _value_check(self.pde.fields, "FusedResidualLoss")
        return backends.engine(
            choice, net, points.dtype, plan_.space, plan_.outputs, coefficients, plan_, precision, check
        )

    def _outputs(self, net: nn.Module, points: Tensor, plan_: JetPlan, choice: backends.Choice) -> Tensor:
        with precisions.torch_matmul(precisions.resolve(self.precision, points.dtype)):
            if choice.backend == "autograd":
                return _nested(
                    net, points, plan_.space, plan_.outputs, _value_check(self.pde.fields, "FusedResidualLoss")
                )
            engine = self._engine(net, points, plan_, choice)
            return FusedJets.apply(engine, points.detach(), *engine.operands)

    def _loss(
        self,
        net: nn.Module,
        points: Tensor,
        point_weights: Tensor | None,
        data: Mapping[str, Tensor] | None,
        keep_residuals: bool,
    ) -> tuple[Tensor, Tensor, Tensor | None]:
        net, columns, weights = self._checked(net, points, point_weights, data, "FusedResidualLoss")
        equation_weights = self.equation_weights.to(points).contiguous()  # whoever assigned a part of another tensor
        with precisions.no_autocast(points.device.type):
            plan_, choice = self._choice(net, points)
            values = self.parameter_values()
            trained = {name: values[name] for name in plan_.trained}  # a ParameterDict sorts its names, engines do not
            if choice.backend == "autograd":
                outputs = self._outputs(net, points, plan_, choice)
                r = evaluate_residuals(plan_, outputs, points, self.constants, trained, columns)
                per_equation = (r.square() if weights is None else weights * r.square()).mean(0)
                return (per_equation * equation_weights).sum(), per_equation.detach(), r.detach()
            moving = [name for name, column in columns.items() if column.requires_grad]
            if moving and torch.is_grad_enabled():
                raise ValueError(
                    f"FusedResidualLoss: `data[{moving[0]!r}]` requires a gradient, which the {choice.backend!r} loss "
                    "does not give. Use .detach(), backend='autograd', or residuals(), which does."
                )
            task = LossTask(
                plan_,
                points.detach(),
                self.constants,
                {name: value.detach() for name, value in trained.items()},
                {name: column.detach() for name, column in columns.items()},
                equation_weights.detach(),
                None if weights is None else weights.detach(),
                keep_residuals or (weights is not None and weights.requires_grad),
            )
            with precisions.torch_matmul(precisions.resolve(self.precision, points.dtype)):
                engine = self._engine(net, points, plan_, choice)
                tensors = (equation_weights, weights, *trained.values(), *engine.operands)
                return FusedLoss.apply(engine, task, torch.is_grad_enabled(), *tensors)


@torch._disable_dynamo  # torch.compiler.disable, without importing the compiler (and Triton) at import
def derivatives(
    net: nn.Module,
    points: Tensor,
    names: Sequence[str],
    *,
    fields: str | Sequence[str],
    coordinates: str | Sequence[str],
    backend: str = "auto",
    precision: str | None = None,
) -> dict[str, Tensor]:
    r"""Partial derivatives of a network's outputs with respect to its inputs.

    Args:
        net: any module from [N, d] to [N, m].
        points: [N, d], columns in the order of `coordinates`.
        names: what to return, e.g. `["u", "u_t", "u_xx", "u_xy"]`.
        fields, coordinates: names of the output and input columns, e.g. "u v" and "t x y".
        backend, precision: as in `FusedResidualLoss`.

    Returns:
        name -> [N], differentiable to the network's parameters.

    Raises:
        ValueError: an unknown name, or shapes, dtypes, devices that disagree.
        BackendUnavailable: an explicit backend cannot run here.
    """
    caller = "derivatives"
    for argument, given in {"fields": fields, "coordinates": coordinates}.items():
        if not isinstance(given, Sequence) or not given:
            raise ValueError(f'{caller}: `{argument}` must be names like "u v" or ["u", "v"]; got {given!r}.')
    field_names, coordinate_names = split_names(fields), split_names(coordinates)
    backends.check_name(backend, caller)
    net = checks.unwrap(net, caller)
    checks.check_points(points, coordinate_names, caller)
    checks.check_network(net, points, caller)
    if isinstance(names, str) or not names:
        raise ValueError(f"{caller}: `names` must be a list such as ['u', 'u_x']; got {names!r}.")
    jets = [parse_jet(name, field_names, coordinate_names, f"{caller}: each of `names`") for name in names]
    space, requests = derivative_plan(field_names, coordinate_names, jets)
    with (
        precisions.no_autocast(points.device.type),
        precisions.torch_matmul(resolved := precisions.resolve(precision, points.dtype, caller)),
    ):
        choice = backends.choose(backend, net, points, space, None)
        if choice.backend == "autograd":
            outputs = _nested(net, points, space, requests, _value_check(field_names, caller))
        else:
            if choice.recognised is not None:
                checks.check_width(choice.recognised.program.output_width, field_names, caller)
            check = _value_check(field_names, caller)
            engine = backends.engine(choice, net, points.dtype, space, requests, (), None, resolved, check)
            outputs = FusedJets.apply(engine, points.detach(), *engine.operands)
    return dict(zip(names, outputs.unbind(0), strict=True))


def _nested(
    net: nn.Module, points: Tensor, space: ChannelSpace, outputs: Sequence[Output], check: Callable[[Tensor, int], None]
) -> Tensor:
    return nested_outputs(net, points, [(space.indices[o.channel], o.column) for o in outputs], check)


def _value_check(fields: Sequence[str], caller: str) -> Callable[[Tensor, int], None]:
    return lambda value, count: checks.check_value(value, count, fields, caller)
