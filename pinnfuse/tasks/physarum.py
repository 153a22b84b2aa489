"""Physarum's density of agents and field, from rollouts of the simulator."""

from __future__ import annotations

from dataclasses import dataclass

import torch
from torch import Tensor

from pinnfuse.grid import Grid
from pinnfuse.problems import ModelSpec
from pinnfuse.simulation import Physarum
from pinnfuse.simulation.physarum.continuum import expected, keller_segel_pde, rollout
from pinnfuse.tasks.spec import SurrogateSpec, one_adam
from pinnfuse.tasks.task import Arrays, WindowTask


@dataclass(frozen=True, eq=False, kw_only=True)
class RolloutTask(WindowTask):
    """A window task whose samples are runs of a simulator: its start says less than the agents know. No agent is lost,
    so a prediction keeps the mean of the first field."""

    def decode(self, inputs: Tensor, channels: Tensor) -> Tensor:
        prediction = super().decode(inputs, channels)
        now = self.trivial(inputs)[:, :, :1]
        kept = prediction[:, :, :1] - (prediction[:, :, :1] - now).mean((-2, -1), keepdim=True)
        return torch.cat([kept, prediction[:, :, 1:]], dim=2)

    def solve_block(self, generators: list[torch.Generator], device: torch.device) -> Arrays:
        return {"fields": torch.stack([self.sample(g).to(device) for g in generators])}


def physarum(
    points: int = 32,
    coarse: int = 4,
    agents_per_cell: float = 0.5,
    every: int = 4,
    warm_up: int = 20,
    history: int = 2,
    ahead: int = 2,
    levels: int = 24,
    sensor_distance: float = 9.0,
    jitter: float = 0.0,
) -> WindowTask:
    r"""Physarum: `history` levels of density and field, means over blocks of cells -> the next `ahead`.

    The physics term is the residual of Keller and Segel's chemotaxis equation, whose coefficients are trained with the
    network (`pinnfuse.simulation.physarum.continuum`; `pinnfuse.analysis.fit_chemotaxis` fits them alone). It describes
    the field well and the agents badly, so its weight is small. A level of history before the present tells the network
    where agents are heading.

    Args:
        points: per axis, >= 8; the simulation has points x coarse cells.
        coarse: cells of a block along each axis.
        agents_per_cell: density, > 0.
        every: steps of the simulation between levels.
        warm_up: steps before the first level, from a uniform start.
        history, ahead: levels of a window.
        levels: levels of a sample after its first.
        sensor_distance, jitter: of the agents; the other parameters are the simulator's defaults.
    """
    if points < 8 or coarse < 1 or every < 1 or warm_up < 0 or not agents_per_cell > 0:
        raise ValueError(
            "physarum: needs `points` >= 8, `coarse` and `every` >= 1, `warm_up` >= 0, `agents_per_cell` > 0; got "
            f"{points}, {coarse}, {every}, {warm_up}, {agents_per_cell:g}."
        )
    side = points * coarse

    def colony(seed: int) -> Physarum:
        count = max(1, round(agents_per_cell * side * side))
        return Physarum((side, side), count, seed=seed, sensor_distance=sensor_distance, jitter=jitter)

    def sample(generator: torch.Generator) -> Tensor:
        seed = int(torch.randint(2**62, (), generator=generator))
        return rollout(colony(seed).run(warm_up), levels + 1, every, coarse)

    pde = keller_segel_pde(expected(colony(0)), trainable=True)
    return RolloutTask(
        name="physarum",
        title="Physarum, density and field to later ones",
        pde=pde,
        fields=("rho", "c"),
        grid=Grid("y x", float(coarse), boundary="periodic", length=float(side)),
        shape=(points, points),
        options={
            "points": points,
            "coarse": coarse,
            "agents_per_cell": agents_per_cell,
            "every": every,
            "warm_up": warm_up,
            "levels": levels,
            "sensor_distance": sensor_distance,
            "jitter": jitter,
        },
        model=ModelSpec("unet", {"width": 24, "depth": 3}),
        training=SurrogateSpec(samples=48, held_out=8, batch=8, physics_weight=0.02, phases=one_adam(600)),
        block=8,
        step=float(every),
        history=history,
        ahead=ahead,
        levels=levels,
        scheme="midpoint",
        sample=sample,
        solve=_none,
    )


def _none(start: Tensor, times: list[float]) -> Tensor:
    raise NotImplementedError("physarum: density and field do not determine what follows; samples are whole runs.")
