"""Points where the residual is large, chosen anew during a fit."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from lightning.pytorch import Callback, LightningModule, Trainer
from torch import Tensor

from pinnfuse import parallel
from pinnfuse.balancing import rad, rar_d
from pinnfuse.datamodules.collocation import CollocationStream, Points
from pinnfuse.models.pinn import PINN
from pinnfuse.models.problem_loss import INTERIOR
from pinnfuse.problems.weighting import point_weights


class Refinement(Callback):
    """RAD or RAR-D in the interior of a `PINN`'s problem, on the device; see `pinnfuse.balancing.rad`.

    Until the first time, points are those of the data module; from then on the chosen ones stay until the next choice.
    They are part of the checkpoint, those of every rank of a data-parallel run; a rank that a resumed run adds begins
    with its own of the data module. In a module of your own call `pinnfuse.balancing.rad` with your residuals.

    Args:
        method: "rad" replaces all points, "rar_d" adds `added` of them.
        every: steps between two choices.
        candidates: points looked at, as a multiple of those kept.
        added: of RAR-D, as a fraction of the first number of points.
        k, c: of the probability; None takes the authors' values (1 and 1, or 2 and 0).
        seed: of candidates and choice.
    """

    def __init__(
        self,
        method: str = "rad",
        every: int = 1000,
        candidates: int = 10,
        added: float = 0.1,
        k: float | None = None,
        c: float | None = None,
        seed: int = 0,
    ):
        if method not in ("rad", "rar_d"):
            raise ValueError(f"Refinement: `method` must be 'rad' or 'rar_d'; got {method!r}.")
        if every < 1 or candidates < 1 or not 0 < added <= candidates:
            raise ValueError(
                "Refinement: expected `every` >= 1, `candidates` >= 1 and `added` in (0, candidates]; "
                f"got {every!r}, {candidates!r}, {added!r}."
            )
        self.method, self.every, self.candidates, self.added, self.seed = method, every, candidates, added, seed
        first = method == "rad"
        self.k, self.c = (1.0 if first else 2.0) if k is None else k, (1.0 if first else 0.0) if c is None else c
        self.points: Tensor | None = None
        self._of_ranks: list[Tensor | None] = []  # of the run that is resumed
        self._done = 0

    def on_train_start(self, trainer: Trainer, module: LightningModule) -> None:
        if not self._of_ranks or self._of_ranks[0] is None:
            return
        drawn = _stream(trainer).at(trainer.global_step)[INTERIOR].points
        points = dict(enumerate(self._of_ranks)).get(trainer.global_rank, drawn)
        assert points is not None
        self.points = points.to(module.device)
        self._give(trainer, module, self.points)

    def on_train_batch_end(self, trainer: Trainer, module: LightningModule, *unused: Any) -> None:
        step = trainer.global_step
        if step // self.every == self._done // self.every:
            return
        self._done = step
        assert isinstance(module, PINN)
        spec = module.training_spec
        generator = torch.Generator(module.device)
        seed = np.random.SeedSequence([self.seed, trainer.global_rank, step, 1]).generate_state(1, np.uint64)[0]
        generator.manual_seed(int(seed >> 1))
        count = self.candidates * spec.interior
        dtype = getattr(torch, spec.precision)
        candidates = module.problem.domain.sample(count, generator, module.device, dtype, "uniform")
        weights = point_weights(module.problem.weighting, module.problem.pde.coordinates, candidates)
        with torch.no_grad():  # as they count in the loss: where a problem has no weight, no points are needed
            residuals = module.loss.interior.weighted_residuals(module.net, candidates, weights)[0].view(count, -1)
        present = module.last_batch[INTERIOR].points
        if self.method == "rad":
            chosen = rad(candidates, residuals, spec.interior, self.k, self.c, generator)
        else:
            added = max(1, round(self.added * spec.interior))
            chosen = rar_d(present, candidates, residuals, added, self.k, self.c, generator)
        self.points = chosen
        self._give(trainer, module, chosen)

    def _give(self, trainer: Trainer, module: LightningModule, points: Tensor) -> None:
        assert isinstance(module, PINN)
        problem = module.problem
        weights = point_weights(problem.weighting, problem.pde.coordinates, points)
        _stream(trainer).replace(INTERIOR, Points(points, None, weights))

    def state_dict(self) -> dict[str, Any]:
        own = None if self.points is None else self.points.cpu()
        device = None if self.points is None else self.points.device
        return {"points": parallel.gathered(own, device), "done": self._done}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self._of_ranks, self._done = state_dict["points"], state_dict["done"]


def _stream(trainer: Trainer) -> CollocationStream:
    stream = trainer.train_dataloader
    if not isinstance(stream, CollocationStream):
        raise ValueError(
            "Refinement: needs the points of a CollocationDataModule. With points of your own, call "
            "pinnfuse.balancing.rad where you draw them."
        )
    return stream
