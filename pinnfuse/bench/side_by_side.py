"""Cases made ready side by side, a process each, then timed one after the other with nothing else on the card.

A process builds, compiles and checks the engines of its case in order, ours first, and keeps them until its turn. When
time is over, processes that still compile are killed, since nothing else stops a compiler, and their cases are made
ready again with what was ready before, which lies in the compilers' caches by then. A process that dies takes only the
engine with it that it was at.
"""

from __future__ import annotations

import contextlib
import logging
import os
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from multiprocessing.connection import Connection, wait
from typing import Any, Protocol

import torch

from pinnfuse.bench.cases import Case
from pinnfuse.bench.measurement import OUT_OF_MEMORY, Measurement, Row, blank
from pinnfuse.bench.settings import Settings
from pinnfuse.workers import Worker

AGAIN = 120.0
"""Seconds to get ready again after a process was killed."""
LIMIT = 1800.0
"""Seconds for the times of a case: kernels that never end, for example."""


class Job(Protocol):
    """A case; it travels to a worker."""

    @property
    def label(self) -> str: ...

    @property
    def engines(self) -> Sequence[str]:
        """In the order in which they get ready."""

    def open(self) -> Any:
        """What has `add`, `steps` and `timed` of a `Measurement`."""

    def blank(self, engine: str) -> Row:
        """A row that says which measurement it is."""


@dataclass(frozen=True)
class CaseJob:
    """A case of `pinnfuse bench jets`."""

    case: Case
    settings: Settings

    @property
    def label(self) -> str:
        return f"{self.case.name}, width {self.case.width}, {self.case.points:,} points, {self.case.precision}"

    @property
    def engines(self) -> Sequence[str]:
        return self.settings.engines

    def open(self) -> Measurement:
        if self.case.device.index is not None:
            torch.cuda.set_device(self.case.device)
        return Measurement(self.case, self.settings)

    def blank(self, engine: str) -> Row:
        return blank(self.case, engine)


def measure_side_by_side(
    jobs: Sequence[Job],
    processes: int,
    seconds: float,
    done: Callable[[int, list[Row]], None],
    report: Callable[[str], None] = lambda text: None,
    again: float = AGAIN,
    limit: float = LIMIT,
) -> None:
    """Get ready, then time.

    Args:
        jobs: what to measure.
        processes: number of them that get ready at the same time.
        seconds: until the first case is timed, at most; less where all are ready before.
        done: is given the number of a job and its rows as soon as they are there. Cases that ran out of memory beside
            the others come last, when the card is theirs.
        report: is told how far this is.
        again: seconds to get ready again, where a process had to be killed.
        limit: seconds for the times of one case.
    """
    stations = [_Station(job) for job in jobs]
    try:
        _get_ready(stations, processes, seconds, report)
        late = f"not compiled and checked within {seconds:g} s beside {len(jobs) - 1} other cases"
        for station in stations:
            station.give_up(late, keep=True)
        killed = [station for station in stations if station.wanted and not station.ready]
        _get_ready(killed, processes, again, report)
        for station in killed:
            station.give_up(f"not compiled and checked again within {again:g} s, after its process was ended")
        for station in sorted(stations, key=lambda station: station.out_of_memory):
            report(f"timing {station.job.label}")
            done(stations.index(station), station.timed(limit))
    finally:
        workers = [station.worker for station in stations if station.worker]
        for worker in workers:
            worker.kill()
        for worker in workers:
            worker.end()


@dataclass(eq=False)
class _Station:
    """A job, its process, and what is known of its engines."""

    job: Job
    worker: Worker | None = None
    since: float = 0.0
    ready: bool = False
    rows: dict[str, Row | None] = field(default_factory=dict)
    sound: set[str] = field(default_factory=set)  # engines that were ready once
    left: list[str] = field(default_factory=list)  # that the process has still to get ready

    @property
    def wanted(self) -> list[str]:
        """Engines that a process should get ready."""
        return [engine for engine in self.job.engines if engine in self.sound or engine not in self.rows]

    @property
    def out_of_memory(self) -> bool:
        return any(row is not None and row.get("skipped") == OUT_OF_MEMORY for row in self.rows.values())

    def start(self, processes: int) -> None:
        self.left, self.since = self.wanted, time.monotonic()
        self.worker = Worker(_serve, self.job, self.left, torch.get_num_threads(), processes)

    def hear(self) -> None:
        """What its process has said meanwhile; none is left where that has ended."""
        while self.worker and not self.ready and self.worker.connection.poll():
            try:
                message = self.worker.connection.recv()
            except (EOFError, OSError):  # OSError: it died within a message
                how, self.worker = self.worker.died(), None
                self._failed(self.left[:1] or self.sound, how)
                return
            if message is None:
                self.ready = True
            elif isinstance(message, str):
                self.end()
                self._failed(self.wanted, message)
            else:
                engine, self.rows[engine], sound = message
                self.left.remove(engine)
                if sound:
                    self.sound.add(engine)

    def give_up(self, why: str, keep: bool = False) -> None:
        """Time is over: engines of a process that is not ready are skipped; `keep`: but for those that were ready."""
        self.hear()
        if self.ready:
            return
        self.end()
        wanted = self.wanted
        if not keep:
            self.sound.clear()
        for engine in wanted:
            if engine not in self.sound:
                self.rows[engine] = self.job.blank(engine) | {"skipped": why}

    def timed(self, limit: float) -> list[Row]:
        """All rows; the process goes, and with it its memory on the card."""
        if self.worker is not None:
            self.worker.send("your turn")
            try:
                answer = self.worker.connection.recv() if self.worker.connection.poll(limit) else None
            except (EOFError, OSError):
                answer = self.worker.died()
            if isinstance(answer, list):
                self.rows |= {row["engine"]: row for row in answer}
            else:
                self._failed(self.sound, answer or f"no answer after {limit:.0f} s, stopped")
            self.end()
        return [row for engine in self.job.engines if (row := self.rows.get(engine)) is not None]

    def end(self) -> None:
        if self.worker is not None:
            self.worker.end()
            self.worker = None

    def _failed(self, names: Sequence[str] | set[str], why: str) -> None:
        for engine in list(names):
            self.rows[engine] = self.job.blank(engine) | {"failed": why}
            self.sound.discard(engine)


def _get_ready(stations: Sequence[_Station], processes: int, seconds: float, report: Callable[[str], None]) -> None:
    """As many as get ready in time, `processes` of them at once; of the others some still have a process."""
    queue, busy = deque(stations), list[_Station]()
    deadline = time.monotonic() + seconds
    while (queue or busy) and (left := deadline - time.monotonic()) > 0:
        while queue and len(busy) < processes:
            busy.append(queue.popleft())
            busy[-1].start(processes)
        wait([station.worker.connection for station in busy if station.worker], timeout=min(0.5, left))
        for station in list(busy):
            station.hear()
            if station.ready or station.worker is None:
                busy.remove(station)
                if station.worker is None and station.wanted:
                    queue.appendleft(station)
        report(_progress(stations, busy))


def _progress(stations: Sequence[_Station], busy: Sequence[_Station]) -> str:
    text = f"{sum(station.ready for station in stations)} of {len(stations)} ready"
    if busy:
        oldest = min(busy, key=lambda station: station.since)
        text += f", {len(busy)} in work, longest {oldest.job.label}, {', '.join(oldest.left[:1])}"
        text += f" ({time.monotonic() - oldest.since:.0f} s)"
    return text


def _serve(connection: Connection, job: Job, engines: Sequence[str], threads: int, processes: int) -> None:
    """A worker: a message for each engine, None when all are ready, and when asked, the rows; or a text: it is over."""
    torch.set_num_threads(threads)  # as compiled code counts on them later
    compilers = max(1, 2 * (os.cpu_count() or 1) // processes)
    os.environ.setdefault("TORCHINDUCTOR_COMPILE_THREADS", str(compilers))  # one process alone would take all cores
    logging.getLogger("pinnfuse").setLevel(logging.ERROR)  # that kernels are being compiled is no news here
    try:
        measurement = job.open()
        for engine in engines:
            row = measurement.add(engine)
            connection.send((engine, row, engine in measurement.steps))
        connection.send(None)
        connection.recv()
        connection.send(measurement.timed())
    except EOFError:  # nobody asks any more
        return
    except Exception as fault:
        text = (str(fault).strip() or "no message").splitlines()[0][:300]
        with contextlib.suppress(OSError):
            connection.send(f"{type(fault).__name__}: {text}")
