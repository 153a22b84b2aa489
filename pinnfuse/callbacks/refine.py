"""Points where the residual is large, chosen anew during a fit, for any module that knows its points and residuals."""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np
import torch
from lightning.pytorch import Callback, Trainer
from torch import Tensor

from pinnfuse import parallel
from pinnfuse.balancing import rad, rar_d
from pinnfuse.callbacks.asks import require


class Refined(Protocol):
    """What `Refinement` asks of a LightningModule; `PINN` has it."""

    collocation_points: Tensor
    """[N, d] of the last step, or of the next one before the first."""

    def candidate_points(self, count: int, generator: torch.Generator) -> Tensor:
        """[count, d] points of the domain, on the device of the generator."""

    def point_residuals(self, points: Tensor) -> Tensor:
        """[N, E] residuals, as they count in the loss."""

    def set_collocation_points(self, points: Tensor) -> None:
        """Use these from the next step on; again when a resumed fit starts."""


_ASKED = {
    "collocation_points": "collocation_points: those of the last step, [N, d]",
    "candidate_points": "candidate_points(count, generator): points of the domain, [count, d]",
    "point_residuals": "point_residuals(points): [N, E]",
    "set_collocation_points": "set_collocation_points(points): use them from the next step on",
}


class Refinement(Callback):
    """RAD or RAR-D, on the device; see `pinnfuse.balancing.rad` and `Refined`.

    Until the first time, points are those of the module; from then on the chosen ones stay until the next choice.
    They are part of the checkpoint, those of every rank of a data-parallel run; a rank that a resumed run adds begins
    with its own.

    Args:
        method: "rad" replaces all points, "rar_d" adds `added` of them.
        every: steps between two choices.
        candidates: points looked at, as a multiple of the first number of points.
        added: of RAR-D, as a fraction of that number.
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
        self._count = 0  # of the first points
        self._of_ranks: list[Tensor | None] = []  # of the run that is resumed
        self._done = 0

    def on_train_start(self, trainer: Trainer, module: Any) -> None:
        require(module, self, **_ASKED)
        if not self._of_ranks or self._of_ranks[0] is None:
            return
        points = dict(enumerate(self._of_ranks)).get(trainer.global_rank, module.collocation_points)
        assert points is not None
        self.points = points.to(module.device)
        module.set_collocation_points(self.points)

    def on_train_batch_end(self, trainer: Trainer, module: Any, *unused: Any) -> None:
        step = trainer.global_step
        if step // self.every == self._done // self.every:
            return
        self._done = step
        present = module.collocation_points
        self._count = self._count or len(present)
        generator = torch.Generator(module.device)
        seed = np.random.SeedSequence([self.seed, trainer.global_rank, step, 1]).generate_state(1, np.uint64)[0]
        generator.manual_seed(int(seed >> 1))
        candidates = module.candidate_points(self.candidates * self._count, generator)
        with torch.no_grad():
            residuals = module.point_residuals(candidates)
        if self.method == "rad":
            self.points = rad(candidates, residuals, self._count, self.k, self.c, generator)
        else:
            added = max(1, round(self.added * self._count))
            self.points = rar_d(present, candidates, residuals, added, self.k, self.c, generator)
        module.set_collocation_points(self.points)

    def state_dict(self) -> dict[str, Any]:
        own = None if self.points is None else self.points.cpu()
        device = None if self.points is None else self.points.device
        return {"points": parallel.gathered(own, device), "count": self._count, "done": self._done}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self._of_ranks, self._count, self._done = state_dict["points"], state_dict["count"], state_dict["done"]
