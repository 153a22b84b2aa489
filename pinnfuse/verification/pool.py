"""Comparisons in worker processes, of which any may die: the rest goes on, and the rows come back in order."""

from __future__ import annotations

import logging
import os
import platform
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from importlib.metadata import PackageNotFoundError, version
from multiprocessing.connection import Connection, wait
from typing import Any, Protocol

import torch

from pinnfuse.workers import Worker

LIMIT = 1800.0
"""Seconds after which a comparison is stopped: a kernel that never ends, for example."""


class Task(Protocol):
    """Some comparisons of one case; it travels to a worker, so it names its case instead of holding it."""

    @property
    def label(self) -> str: ...

    @property
    def seconds(self) -> float:
        """A guess, so that long ones start first."""

    def rows(self, device: torch.device) -> list[Any]: ...

    def lost(self, why: str) -> Any:
        """The row that says that this task has no result."""


def default_jobs(device: torch.device) -> int:
    """Half of the cores, up to 8; beside a card at least one worker, so that a kernel that crashes ends only that."""
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    return max(2 if device.type == "cuda" else 1, min(8, cores // 2))


def run_tasks(
    tasks: Sequence[Task],
    device: torch.device,
    jobs: int,
    report: Callable[[str], None] = lambda text: None,
    limit: float = LIMIT,
) -> list[Any]:
    """The rows of all tasks, in their order. With one job they run in this process, where a crash ends everything.

    Args:
        tasks: what to do; those with most `seconds` are started first.
        device: of the comparisons.
        jobs: number of processes.
        report: is told how far this is.
        limit: seconds for one task.
    """
    if jobs == 1:
        found = []
        for k, task in enumerate(tasks):
            report(f"{k} of {len(tasks)}: {task.label}")
            found += _attempt(task, device)[0]
        return found
    return _Pool(tasks, device, min(jobs, len(tasks)), report, limit).run()


def _attempt(task: Task, device: torch.device) -> tuple[list[Any], bool]:
    """Rows, and whether this process can go on: after an error on a card all that follows there may fail."""
    try:
        return task.rows(device), True
    except Exception as fault:
        return [task.lost(failure(fault, device))], False


def failure(error: Exception, device: torch.device) -> str:
    """What a report of a fault must hold."""
    text = next((line.strip() for line in reversed(str(error).splitlines()) if line.strip()), "no message")
    card = "CPU"
    if device.type == "cuda":
        major, minor = torch.cuda.get_device_capability(device)
        card = f"{torch.cuda.get_device_name(device)} (sm_{major}{minor})"
    try:
        triton = version("triton")
    except PackageNotFoundError:
        triton = "not installed"
    return (
        f"{type(error).__name__}: {text[:300]} [triton {triton}, torch {torch.__version__}, "
        f"python {platform.python_version()}, {card}]. Use backend='torch' meanwhile, and report this line."
    )


@dataclass
class _Busy:
    worker: Worker
    task: int
    since: float


@dataclass
class _Pool:
    tasks: Sequence[Task]
    device: torch.device
    jobs: int
    report: Callable[[str], None]
    limit: float
    found: dict[int, list[Any]] = field(default_factory=dict)
    busy: list[_Busy] = field(default_factory=list)

    def run(self) -> list[Any]:
        order = sorted(range(len(self.tasks)), key=lambda k: -self.tasks[k].seconds)
        queue = deque(order)
        try:
            while len(self.found) < len(self.tasks):
                while queue and len(self.busy) < self.jobs:
                    self._start(queue.popleft())
                ready = wait([one.worker.connection for one in self.busy], timeout=0.5)
                for one in list(self.busy):
                    if one.worker.connection in ready:
                        self._hear(one, queue)
                    elif time.monotonic() - one.since > self.limit:
                        self._end(one, f"no answer after {self.limit:.0f} s, stopped")
                self._tell()
        finally:
            for one in self.busy:
                one.worker.kill()
            for one in self.busy:
                one.worker.end()
        return [row for k in range(len(self.tasks)) for row in self.found[k]]

    def _start(self, task: int) -> None:
        worker = Worker(_serve, str(self.device), max(1, torch.get_num_threads() // self.jobs))
        self.busy.append(_Busy(worker, task, time.monotonic()))
        worker.send(self.tasks[task])

    def _hear(self, one: _Busy, queue: deque[int]) -> None:
        """An answer, or the end of the pipe."""
        try:
            rows, sound = one.worker.connection.recv()
        except (EOFError, OSError):  # OSError: it died within an answer
            self._end(one, one.worker.died())
            return
        self.found[one.task] = rows
        if not sound or not queue:
            self._end(one)
            return
        one.task, one.since = queue.popleft(), time.monotonic()
        one.worker.send(self.tasks[one.task])

    def _end(self, one: _Busy, why: str = "") -> None:
        one.worker.end()
        self.busy.remove(one)
        if why:
            self.found[one.task] = [self.tasks[one.task].lost(why)]

    def _tell(self) -> None:
        text = f"{len(self.found)} of {len(self.tasks)}"
        if self.busy:
            oldest = min(self.busy, key=lambda one: one.since)
            others = f", {len(self.busy) - 1} others" if len(self.busy) > 1 else ""
            text += f": {self.tasks[oldest.task].label} ({time.monotonic() - oldest.since:.0f} s){others}"
        self.report(text)


def _serve(connection: Connection, device: str, threads: int) -> None:
    """A worker: tasks in, rows out, until the pipe ends."""
    torch.set_num_threads(threads)
    logging.getLogger("pinnfuse").setLevel(logging.ERROR)  # that kernels are being compiled is no news here
    while True:
        try:
            task = connection.recv()
        except EOFError:
            return
        connection.send(_attempt(task, torch.device(device)))
