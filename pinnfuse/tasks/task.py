"""What a surrogate learns: an equation on a grid, a sampler of its inputs, a solver, and what is input and target."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch
from torch import Tensor

from pinnfuse.grid import FusedGridResidualLoss, Grid
from pinnfuse.pde import PDE
from pinnfuse.problems import ModelSpec
from pinnfuse.tasks.random_fields import generator_of
from pinnfuse.tasks.spec import SurrogateSpec

Arrays = dict[str, Tensor]
"""Samples as named tensors, the first dimension counts them."""


class Residual(NamedTuple):
    """Arguments of `FusedGridResidualLoss`."""

    fields: Tensor
    data: dict[str, Tensor] | None = None


class Scales(NamedTuple):
    """What brings numbers to size one; from inputs alone, so that training without solutions can use it, too.

    Attributes:
        mean, spread: of the input channels, `[Cin]`.
        output: of the target around the trivial prediction, one per output channel, `[Cout]`.
        residual: mean squared residual of the trivial prediction, one per equation, `[E]`.
    """

    mean: Tensor
    spread: Tensor
    output: Tensor
    residual: Tensor


@dataclass(frozen=True, eq=False, kw_only=True)
class Task(ABC):
    """A family of instances of one equation.

    The sample with index i depends on (options, seed, i) alone: solutions are computed in blocks of `block` samples
    that start at multiples of it, whatever the shards are.

    Attributes:
        name: of the task, and of its PDE on the command line.
        fields: what is predicted.
        grid, shape: points of the fields.
        options: everything the samples depend on, beside the seed.
        version: raised when the numbers of sampler or solver change.
        position: the answer depends on where things are, so the network is told.
        symmetric: mirror images and transposes of a solution on the square are solutions.
    """

    name: str
    title: str
    pde: PDE
    fields: tuple[str, ...]
    grid: Grid
    shape: tuple[int, ...]
    options: Mapping[str, Any]
    model: ModelSpec
    training: SurrogateSpec = field(default_factory=SurrogateSpec)
    version: int = 1
    block: int = 16
    position: bool = False
    symmetric: bool = False

    # -- samples -------------------------------------------------------------------------------------------------

    @property
    @abstractmethod
    def arrays(self) -> dict[str, tuple[int, ...]]:
        """{name: shape of one sample} of what is stored."""

    @abstractmethod
    def solve_block(self, generators: list[torch.Generator], device: torch.device) -> Arrays:
        """Samples of these generators, computed together in float64."""

    @torch.no_grad()
    def generate(
        self, first: int, count: int, seed: int, device: torch.device | str = "cpu", dtype: torch.dtype = torch.float32
    ) -> Arrays:
        """Samples first .. first + count - 1, on the CPU; `first` must be a multiple of `block`."""
        if first % self.block:
            raise ValueError(f"{self.name}: `first` must be a multiple of {self.block}; got {first}.")
        blocks = []
        for start in range(first, first + count, self.block):
            generators = [generator_of(seed, start + i) for i in range(self.block)]
            blocks.append(self.solve_block(generators, torch.device(device)))
        return {name: torch.cat([b[name].to("cpu", dtype) for b in blocks])[:count] for name in self.arrays}

    # -- what the network sees -----------------------------------------------------------------------------------

    @property
    @abstractmethod
    def channels(self) -> tuple[int, int]:
        """(channels in, channels out) of the network, positions not counted."""

    @abstractmethod
    def starts(self, arrays: Mapping[str, tuple[int, ...] | torch.Size]) -> int:
        """How many pairs of input and target one sample holds, from the shapes of the arrays."""

    @abstractmethod
    def pair(self, arrays: Arrays, starts: Tensor) -> tuple[Tensor, Tensor]:
        """(inputs `[B, ...]`, targets `[B, ...]`) of samples, each from one of its starts `[B]`."""

    @abstractmethod
    def encode(self, inputs: Tensor) -> Tensor:
        """Inputs as channels `[B, Cin, *space]`."""

    @abstractmethod
    def decode(self, inputs: Tensor, channels: Tensor) -> Tensor:
        """The prediction, laid out as targets, from channels `[B, Cout, *space]` around the trivial one."""

    @abstractmethod
    def trivial(self, inputs: Tensor) -> Tensor:
        """What one predicts without knowing anything: zero, or no change."""

    @abstractmethod
    def by_field(self, values: Tensor) -> Tensor:
        """Targets or predictions as `[B, fields, anything]`."""

    def positions(self, like: Tensor) -> Tensor:
        """Coordinates `[P, *space]`: x along walls, sine and cosine of it along periodic axes; none if not needed."""
        found: list[Tensor] = []
        if self.position:
            at = self.grid.coordinates(self.shape, like.device, like.dtype)
            for k, axis in enumerate(self.grid.axes):
                x = at[axis].reshape([-1 if j == k else 1 for j in range(len(self.shape))])
                phase = 2 * torch.pi * x / (self.shape[k] * self.grid.spacing[k])
                found += [phase.sin(), phase.cos()] if self.grid.periodic[axis] else [x]
        return torch.stack([x.expand(self.shape) for x in found]) if found else like.new_zeros(0, *self.shape)

    # -- physics -------------------------------------------------------------------------------------------------

    @abstractmethod
    def physics(self, backend: str = "auto") -> FusedGridResidualLoss:
        """The residual loss of the equation, without weights."""

    @abstractmethod
    def residual(self, inputs: Tensor, prediction: Tensor) -> Residual:
        """What `physics` is called with; differentiable."""

    def squares(self, physics: FusedGridResidualLoss, given: Residual) -> Tensor:
        """Mean squared residual of every equation, `[E]`; need not be differentiable."""
        return torch.stack(list(physics.evaluate(given.fields, data=given.data).per_equation.values()))

    def misfit(self, physics: FusedGridResidualLoss, given: Residual) -> Tensor:
        """Sum of `squares` with the equation weights of `physics`, a scalar; differentiable."""
        return physics(given.fields, data=given.data)

    @abstractmethod
    def output_scale(self, inputs: Tensor, residual: Tensor) -> Tensor:
        """`Scales.output` from inputs and the mean squared residuals of the trivial prediction."""

    @torch.no_grad()
    def scales(self, inputs: Tensor) -> Scales:
        """From inputs, a few dozen of which are enough."""
        channels = self.encode(inputs).double().transpose(0, 1).flatten(1)
        given = self.residual(inputs, self.trivial(inputs))
        residual = self.squares(self.physics("torch").to(inputs.device), given).double().clamp_min(1e-30)
        found = Scales(
            channels.mean(1), channels.std(1).clamp_min(1e-12), self.output_scale(inputs, residual), residual
        )
        return Scales(*(x.to(inputs.dtype) for x in found))


def relative_errors(task: Task, prediction: Tensor, target: Tensor) -> Tensor:
    """Relative L2 error of every sample and field, `[B, fields]`."""
    p, t = task.by_field(prediction), task.by_field(target)
    tiny = torch.finfo(t.dtype).tiny
    return (p - t).norm(dim=2) / t.norm(dim=2).clamp_min(tiny)


@dataclass(frozen=True, eq=False, kw_only=True)
class MapTask(Task):
    r"""One field in, the solution out: `inputs` `[B, 1, *space]`, targets `[B, fields, *space]`.

    The residual r of an elliptic equation of order two weighs an error by the square of its wavenumber. So not r is
    squared and averaged but its `potential` $\Delta^{-1} r$, which has the size of the error at every wavenumber.

    Attributes:
        given: name of the input field, a field of the PDE, too.
        sample: generator -> one input `[*space]`, float64.
        solve: inputs `[B, *space]` -> solutions `[B, *space]`.
        potential: residuals `[..., *space]` -> fields whose Laplacian they are, zero on the walls; differentiable.
        surround: field `[B, 1, *space]`, whether it is the given one -> the field on a wider grid, walls included.
        wide: that grid.
        size: typical size of the solution times typical size of the input.
    """

    given: str
    sample: Callable[[torch.Generator], Tensor]
    solve: Callable[[Tensor], Tensor]
    potential: Callable[[Tensor], Tensor]
    surround: Callable[[Tensor, bool], Tensor]
    wide: Grid
    size: float

    @property
    def arrays(self) -> dict[str, tuple[int, ...]]:
        return {self.given: self.shape, self.fields[0]: self.shape}

    def solve_block(self, generators: list[torch.Generator], device: torch.device) -> Arrays:
        given = torch.stack([self.sample(g) for g in generators]).to(device)
        return {self.given: given, self.fields[0]: self.solve(given)}

    @property
    def channels(self) -> tuple[int, int]:
        return 1, 1

    def starts(self, arrays: Mapping[str, tuple[int, ...] | torch.Size]) -> int:
        return 1

    def pair(self, arrays: Arrays, starts: Tensor) -> tuple[Tensor, Tensor]:
        return arrays[self.given].unsqueeze(1), arrays[self.fields[0]].unsqueeze(1)

    def encode(self, inputs: Tensor) -> Tensor:
        return inputs

    def decode(self, inputs: Tensor, channels: Tensor) -> Tensor:
        return channels

    def trivial(self, inputs: Tensor) -> Tensor:
        return torch.zeros_like(inputs)

    def by_field(self, values: Tensor) -> Tensor:
        return values.flatten(2)

    def physics(self, backend: str = "auto") -> FusedGridResidualLoss:
        return FusedGridResidualLoss(self.pde, self.wide, backend=backend)

    def residual(self, inputs: Tensor, prediction: Tensor) -> Residual:
        fields = torch.cat([self.surround(prediction, False), self.surround(inputs, True)], dim=1)
        return Residual(fields)

    def squares(self, physics: FusedGridResidualLoss, given: Residual) -> Tensor:
        inside: Any = (..., *(slice(1, -1),) * len(self.shape))
        r = self.potential(physics.residuals(given.fields, given.data)[inside])
        return r.square().transpose(0, 1).flatten(1).mean(1)

    def misfit(self, physics: FusedGridResidualLoss, given: Residual) -> Tensor:
        return (self.squares(physics, given) * physics.equation_weights).sum()

    def output_scale(self, inputs: Tensor, residual: Tensor) -> Tensor:
        return (self.size / inputs.double().mean()).reshape(1)


@dataclass(frozen=True, eq=False, kw_only=True)
class WindowTask(Task):
    """Levels of time in, the next ones out: `inputs` `[B, history, C, *space]`, targets `[B, ahead, C, *space]`.

    Attributes:
        step: time between levels.
        history, ahead: levels of a window.
        levels: levels of a sample after its first one.
        scheme: of the residual in time, see `pinnfuse.grid.schemes`.
        sample: generator -> one start `[C, *space]`, float64.
        solve: starts `[B, C, *space]`, times -> `[B, len(times), C, *space]`.
        columns: levels `[..., C, *space]` -> data columns `{name: [..., *space]}` of the PDE.
    """

    step: float
    history: int
    ahead: int
    levels: int
    scheme: str
    sample: Callable[[torch.Generator], Tensor]
    solve: Callable[[Tensor, list[float]], Tensor]
    columns: Callable[[Tensor], dict[str, Tensor]] | None = None

    def __post_init__(self) -> None:
        for name in ("history", "ahead"):
            if getattr(self, name) < 1:
                raise ValueError(f"{self.name}: option `{name}` must be at least 1; got {getattr(self, name)}.")
        if self.levels < self.history + self.ahead - 1:
            raise ValueError(
                f"{self.name}: option `levels` must be at least history + ahead - 1 = {self.history + self.ahead - 1}; "
                f"got {self.levels}."
            )
        if not self.step > 0:
            raise ValueError(f"{self.name}: option `step` must be > 0; got {self.step:g}.")

    @property
    def arrays(self) -> dict[str, tuple[int, ...]]:
        return {"fields": (self.levels + 1, len(self.fields), *self.shape)}

    def solve_block(self, generators: list[torch.Generator], device: torch.device) -> Arrays:
        start = torch.stack([self.sample(g) for g in generators]).to(device)
        return {"fields": self.solve(start, [k * self.step for k in range(self.levels + 1)])}

    @property
    def channels(self) -> tuple[int, int]:
        return self.history * len(self.fields), self.ahead * len(self.fields)

    def starts(self, arrays: Mapping[str, tuple[int, ...] | torch.Size]) -> int:
        return arrays["fields"][-len(self.shape) - 2] - self.history - self.ahead + 1

    def pair(self, arrays: Arrays, starts: Tensor) -> tuple[Tensor, Tensor]:
        fields = arrays["fields"]
        rows = torch.arange(len(fields), device=fields.device)[:, None]
        offsets = torch.arange(self.history + self.ahead, device=fields.device)
        window = fields[rows, starts.to(fields.device)[:, None] + offsets]
        return window[:, : self.history], window[:, self.history :]

    def encode(self, inputs: Tensor) -> Tensor:
        return inputs.flatten(1, 2)

    def decode(self, inputs: Tensor, channels: Tensor) -> Tensor:
        return inputs[:, -1:] + channels.unflatten(1, (self.ahead, len(self.fields)))

    def trivial(self, inputs: Tensor) -> Tensor:
        return inputs[:, -1:].expand(-1, self.ahead, *inputs.shape[2:])

    def by_field(self, values: Tensor) -> Tensor:
        return values.transpose(1, 2).flatten(2)

    def physics(self, backend: str = "auto") -> FusedGridResidualLoss:
        return FusedGridResidualLoss(self.pde, self.grid, self.step, self.scheme, backend=backend)

    def residual(self, inputs: Tensor, prediction: Tensor) -> Residual:
        levels = torch.cat([inputs[:, -1:], prediction], dim=1)
        columns = None if self.columns is None else self.columns(0.5 * (levels[:, 1:] + levels[:, :-1]))
        return Residual(levels, columns)

    def output_scale(self, inputs: Tensor, residual: Tensor) -> Tensor:
        steps = self.step * torch.arange(1, self.ahead + 1, dtype=residual.dtype, device=residual.device)
        return (steps[:, None] * residual.sqrt()).flatten()
