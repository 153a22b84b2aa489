"""Batches of pairs of fields, gathered on the device where the samples fit, else prefetched by pinned memory."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from lightning.pytorch import LightningDataModule
from torch import Tensor

from pinnfuse.datasets import Samples, generated, load, split
from pinnfuse.optimizers import total_steps
from pinnfuse.tasks import SurrogateSpec, Task, WindowTask
from pinnfuse.tasks.task import Arrays


class GridBatch(NamedTuple):
    """Inputs and targets of a task, `[B, ...]`; the data term may see the targets of the first `labelled` rows."""

    inputs: Tensor
    targets: Tensor
    labelled: int


class GridDataModule(LightningDataModule):
    """Samples of a task, computed (and cached) or from files, as batches for `GridSurrogate`.

    The k-th batch depends on (seed, rank, k) alone: each sample comes once per epoch, from a random start in time (from
    its first level if its solution is not to be seen), and a resumed run draws what it would have drawn.

    Args:
        task: what is learned.
        training: numbers of samples, batch, share with solutions; None takes the task's default.
        seed: of the samples and of their order.
        path: folder or file of the user's, see `pinnfuse.datasets.load`; None computes samples.
        steps: batches; None takes those of all phases.
        resident_bytes: samples up to so many are kept on the device; None is a quarter of a card's free memory, and
            4 GB on a CPU. Larger sets stay in the files and are gathered by a thread, one batch ahead.
        device: where samples are computed; None takes a CUDA card if there is one.
    """

    def __init__(
        self,
        task: Task,
        training: SurrogateSpec | None = None,
        seed: int = 0,
        path: str | Path | None = None,
        steps: int | None = None,
        resident_bytes: int | None = None,
        device: torch.device | str | None = None,
    ):
        super().__init__()
        self.task, self.seed, self.path = task, seed, path
        self.training = task.training if training is None else training
        if self.training.mirrored and not task.symmetric:
            raise ValueError(
                f"GridDataModule: training.mirrored needs a task whose mirror images are solutions; {task.name!r} is "
                "none. Leave it out."
            )
        self.steps = total_steps(self.training.phases) if steps is None else steps
        self.resident_bytes = resident_bytes
        self.device = torch.device(device or ("cuda" if torch.cuda.is_available() else "cpu"))
        self.dtype = getattr(torch, self.training.precision)
        self._train: Samples | None = None
        self._held_out: Samples | None = None

    @property
    def points_per_step(self) -> int:
        """Points of all levels of the targets in one batch of one process."""
        return self.training.batch * int(np.prod(self.task.shape)) * self.task.channels[1]

    @property
    def train(self) -> Samples:
        self.prepare()
        assert self._train is not None
        return self._train

    @property
    def held_out(self) -> Samples:
        self.prepare()
        assert self._held_out is not None
        return self._held_out

    def prepare(self, report: Callable[[int, int], None] | None = None) -> None:
        """Load or compute the samples; nothing if that is done.

        Args:
            report: called with (samples computed, samples in all).
        """
        if self._train is not None:
            return
        spec = self.training
        if self.path is not None:
            self._train, self._held_out = split(load(self.path, self.task), self.task, spec.samples, spec.held_out)
            return
        both = spec.samples + spec.held_out

        def tell(before: int) -> Callable[[int, int], None] | None:
            return None if report is None else lambda done, count: report(before + done, both)

        options: dict[str, Any] = {"seed": self.seed, "device": self.device}
        self._train = generated(self.task, "train", spec.samples, report=tell(0), **options)
        self._held_out = generated(self.task, "held_out", spec.held_out, report=tell(spec.samples), **options)

    def setup(self, stage: str) -> None:
        self.prepare()

    def examples(self, count: int = 32) -> Tensor:
        """Inputs of the first training samples, from starts all over the time, for `GridSurrogate.calibrate`."""
        count = min(count, len(self.train))
        rows = self.train.rows(torch.arange(count))
        starts = torch.arange(count) * self.task.starts(self.train.shapes) // count
        return self.task.pair(rows, starts)[0].to(self.dtype)

    # -- loaders -------------------------------------------------------------------------------------------------

    def train_dataloader(self) -> GridStream:
        trainer = self.trainer
        rank, device = (trainer.global_rank, trainer.strategy.root_device) if trainer else (0, torch.device("cpu"))
        return GridStream(self, self._placed(self.train, device), rank, device)

    def val_dataloader(self) -> HeldOut:
        device = self.trainer.strategy.root_device if self.trainer else torch.device("cpu")
        return HeldOut(self, self._placed(self.held_out, device), device)

    def _placed(self, samples: Samples, device: torch.device) -> Samples:
        limit = self.resident_bytes
        if limit is None:
            limit = torch.cuda.mem_get_info(device)[0] // 4 if device.type == "cuda" else 4_000_000_000
        return samples.joined(device, self.dtype) if samples.bytes <= limit else samples

    def transfer_batch_to_device(self, batch: Any, device: torch.device, dataloader_idx: int) -> Any:
        return batch if isinstance(batch, GridBatch) else super().transfer_batch_to_device(batch, device, 0)

    def state_dict(self) -> dict[str, Any]:
        return {"seed": self.seed}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self.seed = state_dict["seed"]

    # -- which samples -------------------------------------------------------------------------------------------

    def drawn(self, step: int, rank: int = 0) -> tuple[Tensor, Tensor, int]:
        """(samples `[B]`, starts `[B]`, how many of them are labelled) of a step."""
        n, batch = len(self.train), self.training.batch
        known = min(self.training.labelled_samples, n)
        labelled = batch if known == n else max(1, batch // 4, batch * known // n) if known else 0
        seen = self._shuffled(known, step * labelled, labelled, rank, 0)
        unseen = known + self._shuffled(n - known, step * (batch - labelled), batch - labelled, rank, 1)
        rows = torch.cat([seen, unseen])
        generator = torch.Generator().manual_seed(self._seed(rank, 2, step))
        starts = torch.randint(self.task.starts(self.train.shapes), (len(rows),), generator=generator)
        if self.training.unlabelled_starts == "first":
            starts[labelled:] = 0
        return rows, starts, labelled

    def mirrored(self, pair: tuple[Tensor, Tensor], step: int, rank: int = 0) -> tuple[Tensor, Tensor]:
        """Inputs and targets of a step as one of the eight images of the square, all of them alike."""
        image = self._seed(rank, 3, step) % 8
        inputs, targets = (t.transpose(-1, -2) for t in pair) if image & 1 else pair
        dims = [dim for dim, bit in ((-1, 2), (-2, 4)) if image & bit]
        return inputs.flip(dims).contiguous(), targets.flip(dims).contiguous()

    def _shuffled(self, size: int, first: int, count: int, rank: int, pool: int) -> Tensor:
        """Places first .. first + count - 1 in a row of permutations of `size` numbers."""
        found = []
        while count > 0:
            epoch, place = divmod(first, size)
            order = torch.randperm(size, generator=torch.Generator().manual_seed(self._seed(rank, pool, epoch)))
            found.append(order[place : place + count])
            first, count = first + len(found[-1]), count - len(found[-1])
        return torch.cat(found) if found else torch.empty(0, dtype=torch.long)

    def _seed(self, *numbers: int) -> int:
        return int(np.random.SeedSequence([self.seed, *numbers]).generate_state(1, np.uint64)[0] >> 1)


class GridStream:
    """One batch for each step, and the position for Lightning's checkpoint."""

    def __init__(self, data: GridDataModule, samples: Samples, rank: int, device: torch.device):
        self.data, self.samples, self.rank = data, samples, rank
        self.device = torch.empty(0, device=device).device  # "cuda" has no number, the device of a tensor has one
        self.resident = len(samples.parts) == 1 and next(iter(samples.parts[0].values())).device == self.device
        self._side = torch.cuda.Stream(device) if device.type == "cuda" and not self.resident else None
        self._step = 0

    def __len__(self) -> int:
        return self.data.steps

    def __iter__(self) -> Iterator[GridBatch]:
        if self.resident:
            while self._step < self.data.steps:
                self._step += 1
                yield self._batch(self._step - 1, self.samples.rows)
            return
        with ThreadPoolExecutor(1, "pinnfuse-prefetch") as pool:
            ahead = pool.submit(self._fetch, self._step)
            while self._step < self.data.steps:
                batch, event = ahead.result()
                self._step += 1
                if self._step < self.data.steps:
                    ahead = pool.submit(self._fetch, self._step)
                if event is not None:
                    stream = torch.cuda.current_stream(self.device)
                    stream.wait_event(event)
                    batch.inputs.record_stream(stream)
                    batch.targets.record_stream(stream)
                yield batch

    def _batch(self, step: int, rows: Callable[[Tensor], Arrays]) -> GridBatch:
        indices, starts, labelled = self.data.drawn(step, self.rank)
        pair = self.data.task.pair(rows(indices), starts)
        return GridBatch(
            *(self.data.mirrored(pair, step, self.rank) if self.data.training.mirrored else pair), labelled
        )

    def _fetch(self, step: int) -> tuple[GridBatch, Any]:
        """In the thread: gather into page-locked memory, start the copy on a stream of its own."""
        if self._side is None:
            inputs, targets, labelled = self._batch(step, self.samples.rows)
            return GridBatch(inputs.to(self.device, self.data.dtype), targets.to(inputs), labelled), None
        with torch.cuda.stream(self._side):
            inputs, targets, labelled = self._batch(step, self._to_device)
            batch = GridBatch(inputs.to(self.data.dtype), targets.to(self.data.dtype), labelled)
            return batch, self._side.record_event()

    def _to_device(self, indices: Tensor) -> Arrays:
        rows = self.samples.rows(indices, pinned=True)
        return {name: tensor.to(self.device, non_blocking=True) for name, tensor in rows.items()}

    def state_dict(self) -> dict[str, int]:
        return {"step": self._step}

    def load_state_dict(self, state_dict: dict[str, int]) -> None:
        self._step = state_dict["step"]


class HeldOut:
    """Every pair of the held-out samples, windows of time one after the other without overlap."""

    def __init__(self, data: GridDataModule, samples: Samples, device: torch.device):
        self.data, self.samples, self.device = data, samples, device
        task = data.task
        apart = task.ahead if isinstance(task, WindowTask) else 1
        places = range(0, task.starts(samples.shapes), apart)
        size = max(data.training.batch, 1)
        self.chunks = [(i, min(size, len(samples) - i), s) for i in range(0, len(samples), size) for s in places]

    def __len__(self) -> int:
        return len(self.chunks)

    def __iter__(self) -> Iterator[GridBatch]:
        for first, count, start in self.chunks:
            rows = self.samples.rows(torch.arange(first, first + count))
            inputs, targets = self.data.task.pair(rows, torch.full((count,), start))
            yield GridBatch(inputs.to(self.device, self.data.dtype), targets.to(self.device, self.data.dtype), count)
