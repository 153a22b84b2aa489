"""Neighbouring bands hand each other the rows and agents along their edge, in messages of known size.

A message is one piece of memory: rows of the field, a header of four int32, then records of an agent each. The host
must know its size beforehand, without waiting for the device to count. So each process counts, at every exchange, the
agents that could be in the strip at the next one (`near`: own agents in it or as close as they can move; `far`: own
agents that can cross the edge), both neighbours learn both numbers, and near + the neighbour's far bounds what will be
sent. The host reads the numbers of one exchange when it prepares the next, when they are long there.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor

from pinnfuse.simulation.physarum.colony import Colony
from pinnfuse.simulation.physarum.fixed import CELL
from pinnfuse.simulation.physarum.split.bands import LOWER, UPPER, Band

HEADER = 16  # bytes
RECORD = 16
STEP = 1024
"""Rooms grow by whole multiples, so that buffers are not made anew for every agent."""


@dataclass
class Counts:
    """What the host knows of an exchange: own agents, and per edge (sent, near, far) of both sides."""

    own: int
    ours: tuple[tuple[int, int, int], tuple[int, int, int]]
    theirs: tuple[tuple[int, int, int], tuple[int, int, int]]

    def outgoing(self, edge: int) -> int:
        """Records of the next message to the neighbour at most, rounded up; the neighbour finds the same number."""
        return _rounded(self.ours[edge][1] + self.theirs[edge][2])

    def incoming(self, edge: int) -> int:
        return _rounded(self.theirs[edge][1] + self.ours[edge][2])

    def slots(self) -> int:
        """Agents to hold after the next exchange at most: own, those who may enter, and the neighbours' strips."""
        return self.own + sum(self.theirs[edge][2] + self.incoming(edge) for edge in (UPPER, LOWER))


def _rounded(count: int) -> int:
    return -(-count // STEP) * STEP


class Message:
    """A buffer seen as rows of the field, header and records; it grows and keeps its place otherwise."""

    def __init__(self, field: Tensor, rows: int):
        self.shape, self.dtype = (field.shape[0], rows, field.shape[2]), field.dtype
        used = field.shape[0] * rows * field.shape[2] * field.element_size()
        self.start = -(-used // 16) * 16
        self.used = used
        self.memory = torch.empty(0, dtype=torch.uint8, device=field.device)
        self.make_room(0)

    def make_room(self, records: int) -> None:
        self.room = records
        if len(self) > len(self.memory):
            self.memory = torch.zeros(len(self), dtype=torch.uint8, device=self.memory.device)

    def __len__(self) -> int:
        return self.start + HEADER + RECORD * self.room

    @property
    def bytes(self) -> Tensor:
        """What travels."""
        return self.memory[: len(self)]

    @property
    def field(self) -> Tensor:
        return self.memory[: self.used].view(self.dtype).view(self.shape)

    @property
    def header(self) -> Tensor:
        """int32 [4]: sent, near, far, unused."""
        return self.memory[self.start : self.start + HEADER].view(torch.int32)

    @property
    def records(self) -> Tensor:
        """int32 [room, 4]: x, y from the first row of the strip, kind x 65536 + heading, number."""
        return self.bytes[self.start + HEADER :].view(torch.int32).view(-1, 4)


class Exchange:
    """The messages of one band, and what is done with them. `kernels` has `pack` and `unpack`."""

    def __init__(self, band: Band, colony: Colony, counts: Counts, end: int, group: Any, kernels: Any):
        self.band, self.colony, self.group, self.kernels = band, colony, group, kernels
        self.edges = [edge for edge in (UPPER, LOWER) if band.neighbour(edge) is not None]
        field = colony.fields[0]
        self.outgoing = [Message(field, band.beyond(edge)) for edge in (UPPER, LOWER)]
        self.incoming = [Message(field, band.beyond(edge)) for edge in (UPPER, LOWER)]
        for message in self.incoming:
            message.header.zero_()  # stays so at a wall
        self.counters = torch.zeros(8, dtype=torch.int32, device=field.device)
        self.counters[1] = end
        self._counts = counts
        self._report = torch.zeros(15, dtype=torch.int32, pin_memory=field.is_cuda)
        self._arrived = torch.cuda.Event() if field.is_cuda else None
        self._reported = False

    def counts(self) -> Counts:
        """Of the exchange before; waits for its end, not for the steps since then."""
        if self._reported:
            if self._arrived is not None:
                self._arrived.synchronize()
            own, *rest = self._report.tolist()
            triples = [tuple(rest[k : k + 3]) for k in (0, 3)], [tuple(rest[k : k + 3]) for k in (6, 10)]
            self._counts = Counts(own, tuple(triples[0]), tuple(triples[1]))  # type: ignore[arg-type]
            for edge in self.edges:
                self._check(edge)
            self._reported = False
        return self._counts

    def _check(self, edge: int) -> None:
        sent, room = self._counts.theirs[edge][0], self.incoming[edge].room
        if sent > room or self._counts.ours[edge][0] > self.outgoing[edge].room:
            raise RuntimeError(f"Physarum: a strip held {sent} agents and its message {room}; report this bug.")

    def swap(self, drift: int, slots: int) -> None:
        """Exchange. `drift`: rows that an agent may move until the next one; `slots`: length of the colony's arrays."""
        counts, c, band = self.counts(), self.colony, self.band
        for edge in self.edges:
            self.outgoing[edge].make_room(counts.outgoing(edge))
            self.incoming[edge].make_room(counts.incoming(edge))
        field, above, halo = c.fields[c.now], band.beyond(UPPER), band.halo
        own = {UPPER: (above, above + halo), LOWER: (above + band.size - halo, above + band.size)}
        free = torch.empty(slots, dtype=torch.int32, device=field.device)
        self.counters[:1].zero_()
        self.counters[2:].zero_()
        self.kernels.pack(c, band, drift, self.counters, free, self.outgoing)
        for edge in self.edges:
            self.outgoing[edge].field.copy_(field[:, slice(*own[edge])])
            self.outgoing[edge].header[:3].copy_(self.counters[2 + 3 * edge : 5 + 3 * edge])
        self._travel()
        beyond = {UPPER: (0, above), LOWER: (above + band.size, band.rows)}
        for edge in self.edges:
            field[:, slice(*beyond[edge])].copy_(self.incoming[edge].field)
        headers = [message.header for message in self.incoming]
        none = torch.zeros_like(self.counters[:1])
        for edge, before in ((UPPER, none), (LOWER, headers[UPPER][:1])):
            if edge in self.edges:
                self.kernels.unpack(c, self.incoming[edge], before, self.counters, free, beyond[edge][0])
        leavers, end = self.counters[:1], self.counters[1:2]
        report = torch.cat([end - leavers, self.counters[2:], *headers])
        end += (headers[UPPER][:1] + headers[LOWER][:1] - leavers).clamp(min=0)
        self._report.copy_(report, non_blocking=True)
        if self._arrived is not None:
            self._arrived.record()
        self._reported = True

    def _travel(self) -> None:
        """Send and receive. With two processes on a torus both edges have the same neighbour: what it sends first, its
        upper strip, belongs below this band."""
        work: list[dist.P2POp] = []
        for edge in self.edges:
            work.append(dist.P2POp(dist.isend, self.outgoing[edge].bytes, self._peer(edge), self.group, tag=edge))
        for edge in reversed(self.edges):
            work.append(dist.P2POp(dist.irecv, self.incoming[edge].bytes, self._peer(edge), self.group, tag=1 - edge))
        for request in dist.batch_isend_irecv(work):
            request.wait()

    def _peer(self, edge: int) -> int:
        rank = self.band.neighbour(edge)
        assert rank is not None
        return rank if self.group is None else dist.get_global_rank(self.group, rank)


# -- the same in torch as `kernels/physarum/exchange.py`: the reference, which counts on the host


def pack(c: Colony, band: Band, drift: int, counters: Tensor, free: Tensor, messages: list[Message]) -> None:
    """Free the slots of agents outside of the band; copy those in the strips, and count."""
    end, above = int(counters[1]), band.beyond(UPPER)
    row = (c.y[:end] >> 16) - above
    own = (c.identity[:end] >= 0) & (row >= 0) & (row < band.size)
    leaves = (~own).nonzero()[:, 0]
    free[: len(leaves)] = leaves.int()
    counters[0] = len(leaves)
    c.identity[leaves] = -1
    depth = {UPPER: row, LOWER: band.size - 1 - row}  # rows from the edge
    first = {UPPER: above, LOWER: above + band.size - band.halo}
    for edge in (UPPER, LOWER):
        strip = band.beyond(edge)
        if strip == 0:
            continue
        chosen = (own & (depth[edge] < strip)).nonzero()[:, 0]
        turned = (c.kind[chosen] << 16) | c.heading[chosen]
        records = (c.x[chosen], c.y[chosen] - first[edge] * CELL, turned, c.identity[chosen])
        messages[edge].records[: len(chosen)] = torch.stack(records, dim=1)
        near, far = (int((own & (depth[edge] < rows)).sum()) for rows in (strip + drift, drift))
        counters[2 + 3 * edge : 5 + 3 * edge] = torch.tensor([len(chosen), near, far])


def unpack(c: Colony, message: Message, before: Tensor, counters: Tensor, free: Tensor, base: int) -> None:
    """Put the agents of a message, whose strip begins at row `base`, into slots."""
    sent, leavers, end = int(message.header[0]), int(counters[0]), int(counters[1])
    place = torch.arange(sent, device=free.device) + before.long()
    slot = torch.where(place < leavers, free[place.clamp(max=len(free) - 1)].long(), end + place - leavers)
    x, y, turned, identity = message.records[:sent].unbind(1)
    c.x[slot], c.y[slot], c.identity[slot] = x, y + base * CELL, identity
    c.heading[slot], c.kind[slot] = turned & 65535, turned >> 16
