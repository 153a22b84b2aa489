"""Collocation points, drawn on the device that uses them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import torch
from lightning.pytorch import LightningDataModule
from torch import Tensor
from torch.utils.data import DataLoader, TensorDataset

from pinnfuse import parallel
from pinnfuse.models.problem_loss import INTERIOR
from pinnfuse.optimizers import total_steps
from pinnfuse.problems import Problem, TrainingSpec
from pinnfuse.problems.weighting import point_weights


class Points(NamedTuple):
    """Points [N, d] of one loss term, its data columns {name: [N]}, and the weights [N] of its points."""

    points: Tensor
    data: dict[str, Tensor] | None = None
    weights: Tensor | None = None


class Batch(dict[str, Points]):
    """{"interior" or condition: its points}; a batch knows the stream that it comes from, if any."""

    stream: CollocationStream | None = None


class CollocationDataModule(LightningDataModule):
    """Points for every loss term of a problem: its interior, and each of its conditions.

    The k-th draw depends on (seed, rank, k) alone: processes draw different points, and a resumed run draws those it
    would have drawn. There is no worker process and no copy from the host.

    Args:
        problem: whose domain and conditions are sampled, and whose reference is validated against.
        training: numbers of points (per process), sampler, resampling, precision; None takes the problem's default.
        seed: of the points.
        steps: batches, one for each optimisation step; None takes those of all phases.
        validation_batch: reference points in one validation batch.
    """

    def __init__(
        self,
        problem: Problem,
        training: TrainingSpec | None = None,
        seed: int = 0,
        steps: int | None = None,
        validation_batch: int = 16_384,
    ):
        super().__init__()
        self.problem, self.seed, self.validation_batch = problem, seed, validation_batch
        self.training = problem.training if training is None else training
        self.steps = total_steps(self.training.phases) if steps is None else steps
        for name, value, least in (("steps", self.steps, 0), ("validation_batch", validation_batch, 1)):
            if value < least:
                raise ValueError(f"CollocationDataModule: `{name}` must be at least {least}; got {value}")
        self.dtype = getattr(torch, self.training.precision)
        self.conditions = problem.soft_conditions(self.training.hard)

    @property
    def points_per_step(self) -> int:
        """Points of all terms in one batch of one process."""
        return self.training.interior + self.training.boundary * len(self.conditions)

    def draw(self, index: int, rank: int = 0, device: torch.device | str = "cpu") -> Batch:
        """The points of the draw with that index, on `device`."""
        generator = torch.Generator(device)
        generator.manual_seed(self.seed_of(index, rank))
        return self.sample(generator)

    def seed_of(self, index: int, rank: int = 0) -> int:
        """Seed of the generator of a draw."""
        return int(np.random.SeedSequence([self.seed, rank, index]).generate_state(1, np.uint64)[0] >> 1)

    def sample(self, generator: torch.Generator) -> Batch:
        """Points of every term from the generator, on its device."""
        device = generator.device
        how = {"generator": generator, "device": device, "dtype": self.dtype, "method": self.training.sampler}
        names = self.problem.pde.coordinates
        inside = self.problem.domain.sample(self.training.interior, **how)
        batch = Batch({INTERIOR: Points(inside, None, point_weights(self.problem.weighting, names, inside))})
        for condition in self.conditions:
            points, data = condition.sample(self.training.boundary, **how)
            batch[condition.name] = Points(points, data, point_weights(condition.weighting, names, points))
        return batch

    def train_dataloader(self) -> CollocationStream:
        trainer = self.trainer
        rank, device = (trainer.global_rank, trainer.strategy.root_device) if trainer else (0, torch.device("cpu"))
        if parallel.size() > 1 and self.training.sampler == "grid":
            raise ValueError(
                "CollocationDataModule: every process would draw the same grid of points; got training.sampler 'grid' "
                f"and {parallel.size()} processes. Use 'sobol', 'lhs' or 'uniform', or one process with more points."
            )
        return CollocationStream(self, rank, device)

    def val_dataloader(self) -> DataLoader:
        """The reference: batches (points [N, d], fields [N, m]), NaN where masked; a part for each rank."""
        points, fields, mask = self.problem.evaluation_points()
        fields = np.where(mask, fields, np.nan)
        data = TensorDataset(torch.as_tensor(points).to(self.dtype), torch.as_tensor(fields))
        first, end = (len(data) * k // parallel.size() for k in (parallel.rank(), parallel.rank() + 1))
        return DataLoader(data, batch_size=None, sampler=_Chunks(first, end, self.validation_batch))

    def transfer_batch_to_device(self, batch: Any, device: torch.device, dataloader_idx: int) -> Any:
        if isinstance(batch, dict):  # collocation points are born on their device
            return batch
        return super().transfer_batch_to_device(batch, device, dataloader_idx)

    def state_dict(self) -> dict[str, Any]:
        return {"seed": self.seed}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self.seed = state_dict["seed"]


class CollocationStream:
    """One batch for each `inner_steps` steps, and the position in it for Lightning's checkpoint."""

    def __init__(self, data: CollocationDataModule, rank: int, device: torch.device):
        self.data, self.rank, self.device = data, rank, device
        self.generator = torch.Generator(device)
        """For points that are drawn inside a captured step, see `seed`."""
        self._step = 0
        self._drawn: tuple[int, Batch] = (-1, Batch())
        self._replaced: dict[str, Points] = {}

    @property
    def changes_every_step(self) -> bool:
        """Every step has points of its own."""
        return self.data.training.resample_every == 1 and not self._replaced

    @property
    def replaced(self) -> bool:
        """Some points are others than those of the data module."""
        return bool(self._replaced)

    def replace(self, term: str, points: Points) -> None:
        """Use these points for a term from now on."""
        self._replaced[term] = points
        self._drawn = (-1, Batch())

    def __len__(self) -> int:
        return self.data.steps

    def __iter__(self) -> Iterator[Batch]:
        while self._step < self.data.steps:
            self._step += 1
            yield self.at((self._step - 1) * self.data.training.inner_steps)

    def index(self, step: int) -> int:
        """Which draw a step uses."""
        every = self.data.training.resample_every
        return step // every if every else 0

    def at(self, step: int) -> Batch:
        """The batch of a step; the same object as long as it is the same draw."""
        index = self.index(step)
        if index != self._drawn[0]:
            batch = self.data.draw(index, self.rank, self.device)
            batch.update(self._replaced)
            batch.stream = self
            self._drawn = (index, batch)
        return self._drawn[1]

    def seed(self, step: int) -> None:
        """Set `generator` so that `sample` draws the batch of that step."""
        self.generator.manual_seed(self.data.seed_of(self.index(step), self.rank))

    def sample(self) -> Batch:
        """The batch from `generator`; a captured step draws it anew at every replay."""
        return self.data.sample(self.generator)

    def state_dict(self) -> dict[str, int]:
        return {"step": self._step}

    def load_state_dict(self, state_dict: dict[str, int]) -> None:
        self._step = state_dict["step"]


class _Chunks:
    """Slices of consecutive rows: a sampler that spares the loader its row by row collation. At least one."""

    def __init__(self, first: int, end: int, size: int):
        self.slices = [slice(i, min(i + size, end)) for i in range(first, max(end, first + 1), size)]

    def __len__(self) -> int:
        return len(self.slices)

    def __iter__(self) -> Iterator[slice]:
        return iter(self.slices)
