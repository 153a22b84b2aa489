"""Physarum over several processes, each with a band of rows; the same bits as in one process."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from pinnfuse.simulation.physarum import checks
from pinnfuse.simulation.physarum.fixed import CELL
from pinnfuse.simulation.physarum.parameters import Parameters, changed, tables
from pinnfuse.simulation.physarum.simulation import Physarum
from pinnfuse.simulation.physarum.split import exchange
from pinnfuse.simulation.physarum.split.bands import LOWER, UPPER, Band, halo_for, reach
from pinnfuse.simulation.physarum.split.exchange import Counts, Exchange

AGENTS = ("x", "y", "heading", "identity", "kind")


class SplitPhysarum:
    """A colony handed over to the processes of a group; every method is called by all of them, with the same arguments.

        dist.init_process_group("nccl")  # or "gloo"
        sim = SplitPhysarum(Physarum((4096, 4096), 16_000_000, device=f"cuda:{local_rank}"))
        sim.run(1000)
        sim.save("state.pt")  # a file as Physarum.save writes it: any number of processes goes on from it

    A process simulates its band and a halo on either side as a domain of its own, whose outermost rows become wrong
    from step to step, by sensor distance + speed + diffusion. Before the wrong ones reach the band, after `window`
    steps, neighbours exchange the rows and the agents along their edges, once. An agent that has left a band is in the
    neighbour's halo already, and changes its owner. Random numbers belong to the agent's number and the step, and
    deposits are whole numbers, so 1, 2 or 4 processes give the same bits (with `deposits="float"` nearly the same).

    With kernels nothing waits for the device between exchanges, and an exchange waits for the one before only.

    Args:
        whole: the colony, the same in every process (each makes or loads it, on its own device); it can be dropped
            afterwards.
        window: steps between exchanges at most, >= 1; fewer where bands are thin. More steps mean fewer messages and
            more rows computed twice.
        group: the processes; all of them by default.

    Raises:
        ValueError: a window below 1, bands thinner than what a step reaches.
        RuntimeError: no process group.
    """

    def __init__(self, whole: Physarum, *, window: int = 6, group: dist.ProcessGroup | None = None):
        if not dist.is_initialized():
            raise RuntimeError("SplitPhysarum: no process group. Call torch.distributed.init_process_group first.")
        window = checks.whole_number("window", window, 1, 2**31)
        state = whole.state_dict()
        self.settings, self.group, self.device = dict(whole.settings), group, whole.device
        ranks, shape = dist.get_world_size(group), tuple(self.settings["shape"])
        torus, bilinear = self.settings["boundary"] == "torus", self.settings["sensing"] == "bilinear"
        self._reach, self._moved = reach(whole.colony.integers, bilinear)
        halo = halo_for(self._reach, self._moved, window, shape[0], ranks)
        self.band = band = Band(dist.get_rank(group), ranks, shape[0], torus, halo)
        agents, counts = _start(state, band, self._drift)
        held = len(agents["x"])
        slots = max(1, held if ranks == 1 else max(held, counts.slots()))
        given: dict[str, Any] = {k: self.settings[k] for k in ("species", "seed", "boundary", "sensing", "deposits")}
        self.local = Physarum(
            (band.rows, shape[1]),
            slots,
            device=whole.device,
            backend=whole.stages,
            dtype=getattr(torch, self.settings["dtype"]),
            attraction=whole.attraction,
            parameters=whole.parameters,
            **given,
        )
        c = self.local.colony
        c.slots = ranks > 1
        self._grow(0, slots)
        for name in AGENTS:
            getattr(c, name)[:held].copy_(agents[name])
        rows = torch.arange(band.first, band.first + band.rows, device=whole.device) % shape[0]
        c.fields[c.now].copy_(state["field"][:, rows])
        for name in ("food", "obstacles"):
            if name in state:
                setattr(c, name, state[name][rows].contiguous())
        c.clock.copy_(state["clock"])
        self.local.steps_done = whole.steps_done
        self._left = halo
        kernels: Any = exchange
        if "triton" in self.local.stages.values():
            from pinnfuse.kernels import physarum as kernels
        self._exchange = Exchange(band, c, counts, held, group, kernels)

    # -- what it does

    @property
    def window(self) -> int:
        """Steps between exchanges; 0 for a process alone, which has none."""
        return self.band.halo // self._reach

    @property
    def _drift(self) -> int:
        """Rows that an agent may move between exchanges."""
        return self.band.halo // self._reach * self._moved

    def step(self) -> None:
        """One step, and before it an exchange where the halo is used up."""
        if self.band.ranks > 1:
            if self._left < self._reach:
                self.exchange()
            self._left -= self._reach
        self.local.step()

    def run(self, steps: int, sort_every: int = 0) -> SplitPhysarum:
        """`steps` steps, agents ordered in memory every `sort_every` (0 never); see `Physarum.run`. Returns itself."""
        if self.band.ranks == 1:
            self.local.run(steps, sort_every)
            return self
        steps, sort_every = checks.steps(steps, sort_every)
        for _ in range(steps):
            self.step()
            if sort_every and self.steps_done % sort_every == 0:
                self.sort()
        return self

    def sort(self) -> None:
        """Order each process's agents in memory."""
        self.local.sort()
        if self.band.ranks > 1:
            self._exchange.counters[1] = (self.local.colony.identity >= 0).sum()

    def set(self, **values: Any) -> None:
        """Change parameters from the next step on, as `Physarum.set`.

        Raises:
            ValueError: a name or value that does not fit, or a sensor distance or speed that reaches beyond the halo.
        """
        attraction = values.get("attraction")
        matrix = (
            self.local.attraction if attraction is None else checks.attraction(attraction, self.local.colony.species)
        )
        parameters = changed(self.parameters, {k: v for k, v in values.items() if k != "attraction"})
        integers, _ = tables(parameters, matrix, self.settings["shape"])
        new = reach(integers, self.local.colony.bilinear)
        if self.band.ranks > 1 and new != (self._reach, self._moved):
            smallest = self.band.height // self.band.ranks
            fits = self.band.halo + self.band.halo // new[0] * new[1] <= smallest
            if new[0] > self.band.halo or not fits:
                raise ValueError(
                    f"SplitPhysarum.set: a step would reach {new[0]} rows far, and the halo has {self.band.halo} of "
                    f"bands of {smallest}. Save, and load with these values and another window."
                )
            self._reach, self._moved = new
            self.exchange()  # counts who may move how far until the next one
        self.local.set(**values)

    def exchange(self) -> None:
        """Rows and agents along the edges; `step` does this when it must, and more often changes nothing."""
        slots = self._exchange.counts().slots()
        if slots > len(self.local.colony.x):
            self._grow(len(self.local.colony.x), slots + slots // 64)
        self._exchange.swap(self._drift, len(self.local.colony.x))
        self._left = self.band.halo

    def _grow(self, used: int, slots: int) -> None:
        """Arrays of `slots` agents, those after the first `used` empty."""
        c = self.local.colony
        for name in AGENTS:
            old = getattr(c, name)
            new = torch.full((slots,), -1 if name == "identity" else 0, dtype=old.dtype, device=old.device)
            new[:used].copy_(old[:used])
            setattr(c, name, new)

    @property
    def message_bytes(self) -> int:
        """Size of the largest message of the last exchange."""
        return max(len(message) for message in self._exchange.outgoing)

    # -- what it holds, gathered

    @property
    def steps_done(self) -> int:
        return self.local.steps_done

    @property
    def parameters(self) -> Parameters:
        return self.local.parameters

    @property
    def field(self) -> Tensor:
        """[species, H, W], the whole field on every process."""
        return self._rows(self.local.field)

    def state_dict(self) -> dict[str, Any]:
        """The state of the whole colony on every process, agents in the order of their numbers, as `Physarum`'s."""
        c, band = self.local.colony, self.band
        row = (c.y >> 16) - band.beyond(UPPER)
        own = ((c.identity >= 0) & (row >= 0) & (row < band.size)).nonzero()[:, 0]
        y = torch.remainder(c.y[own].long() + band.first * CELL, band.height * CELL).int()
        columns = torch.stack([c.x[own], y, *(getattr(c, name)[own] for name in AGENTS[2:])], dim=1)
        everyone = torch.cat(self._gather(columns))
        everyone = everyone[everyone[:, 3].argsort()]
        state: dict[str, Any] = {name: everyone[:, k].contiguous() for k, name in enumerate(AGENTS)}
        for name in ("food", "obstacles"):
            if getattr(c, name) is not None:
                state[name] = self._rows(getattr(c, name)[None])[0]
        ours = self.local.state_dict()
        state |= {"clock": ours["clock"], "field": self.field, "settings": self.settings | {"steps": self.steps_done}}
        return state | {"parameters": ours["parameters"], "attraction": ours["attraction"]}

    def save(self, path: str | Path) -> None:
        """Write the state from the first process, or leave the old file; the others wait."""
        from pinnfuse.files import whole_file

        state = self.state_dict()
        if self.band.rank == 0:
            with whole_file(path) as temporary, temporary.open("wb") as file:
                torch.save(state, file)
        self._gather(self.local.colony.clock)  # a barrier

    def _rows(self, held: Tensor) -> Tensor:
        """The whole of something of which each process holds [n, rows, W]."""
        own = held[:, self.band.beyond(UPPER) :][:, : self.band.size]
        return torch.cat([rows.movedim(0, 1) for rows in self._gather(own.movedim(1, 0).contiguous())], dim=1)

    def _gather(self, ours: Tensor) -> list[Tensor]:
        """Everyone's tensor; they differ in their first dimension only."""
        length = torch.tensor([len(ours)], device=self.device)
        lengths = [torch.empty_like(length) for _ in range(self.band.ranks)]
        dist.all_gather(lengths, length, self.group)
        sizes = [int(n) for n in lengths]
        padded = ours.new_zeros((max(sizes), *ours.shape[1:]))
        padded[: len(ours)] = ours
        found = [torch.empty_like(padded) for _ in sizes]
        dist.all_gather([t.view(torch.uint8) for t in found], padded.view(torch.uint8), self.group)
        return [t[:n] for t, n in zip(found, sizes, strict=True)]


def _start(state: Mapping[str, Any], band: Band, drift: int) -> tuple[dict[str, Tensor], Counts]:
    """The agents of a band and its halo, in its rows; and the counts that an exchange would have left."""

    def within(base: int, rows: int) -> tuple[Tensor, Tensor]:
        """Which agents of the colony stand in rows from `base` on, and how far from there."""
        away = torch.remainder(state["y"].long() - base * CELL, band.height * CELL)
        chosen = (away < rows * CELL).nonzero()[:, 0]
        return chosen, away[chosen]

    def count(base: int, rows: int) -> int:
        return len(within(base, rows)[0])

    halo, above = band.halo, band.beyond(UPPER)
    parts = [(above, band.start, band.size)]
    ours, theirs = [(0, 0, 0)] * 2, [(0, 0, 0)] * 2
    for edge in (UPPER, LOWER):
        if band.neighbour(edge) is None:
            continue
        upper = edge == UPPER
        parts.append((0, band.start - halo, halo) if upper else (above + band.size, band.stop, halo))
        inside = [count(band.start if upper else band.stop - n, n) for n in (halo + drift, drift)]
        outside = [count(band.start - n if upper else band.stop, n) for n in (halo + drift, drift)]
        ours[edge], theirs[edge] = (0, inside[0], inside[1]), (0, outside[0], outside[1])
    chosen, rows = [], []
    for offset, base, length in parts:
        those, away = within(base, length)
        chosen.append(those)
        rows.append((away + offset * CELL).int())
    index = torch.cat(chosen)
    agents = {name: state[name][index] for name in AGENTS} | {"y": torch.cat(rows)}
    return agents, Counts(len(chosen[0]), (ours[0], ours[1]), (theirs[0], theirs[1]))
