"""Cases that get ready in processes: in order, whatever dies, hangs or runs out of memory there."""

import multiprocessing
import os
import signal
import time
from dataclasses import dataclass, field
from typing import Any

import pytest

from pinnfuse.bench import side_by_side
from pinnfuse.bench.measurement import OUT_OF_MEMORY
from pinnfuse.bench.side_by_side import measure_side_by_side

ENGINES = ("pinnfuse", "autograd", "jax")


@dataclass
class Pretended:
    """Engines that only act: "crash", "hang" or "memory" when they get ready, "stop" when they are timed."""

    acts: dict[str, str]
    rows: dict[str, dict[str, Any]] = field(default_factory=dict)

    @property
    def steps(self) -> dict[str, None]:
        return {engine: None for engine, row in self.rows.items() if "skipped" not in row}

    def add(self, engine: str) -> dict[str, Any]:
        act = self.acts.get(engine)
        if act == "crash":
            os.kill(os.getpid(), signal.SIGSEGV)
        if act == "hang":
            time.sleep(3600)
        if act == "raise":
            raise RuntimeError("the reference is wrong")
        self.rows[engine] = {"engine": engine} | ({"skipped": OUT_OF_MEMORY} if act == "memory" else {})
        return self.rows[engine]

    def timed(self) -> list[dict[str, Any]]:
        if "stop" in self.acts.values():
            os.kill(os.getpid(), signal.SIGKILL)
        return [row | {"ms": os.getpid()} for row in self.rows.values()]


@dataclass(frozen=True)
class Job:
    label: str
    acts: dict[str, str] = field(default_factory=dict)
    engines: tuple[str, ...] = ENGINES

    def open(self) -> Pretended:
        return Pretended(self.acts)

    def blank(self, engine: str) -> dict[str, Any]:
        return {"engine": engine}


def measured(jobs: list[Job], processes: int, seconds: float, **options: Any) -> tuple[list[int], list[dict]]:
    """The order in which jobs were done, and by job its rows by engine."""
    found: dict[int, dict] = {}

    def done(job: int, rows: list[dict]) -> None:
        assert [row["engine"] for row in rows] == list(jobs[job].engines)
        found[job] = {row["engine"]: row for row in rows}

    measure_side_by_side(jobs, processes, seconds, done, **options)
    assert not multiprocessing.active_children()
    return list(found), [found[k] for k in range(len(jobs))]


def test_an_engine_that_kills_its_process_is_one_failed_row() -> None:
    jobs = [Job("short of memory", {"jax": "memory"}), Job("dies", {"autograd": "crash"}), Job("sound")]
    order, (short, dies, sound) = measured(jobs, 2, 300)
    assert order == [1, 2, 0]  # the card is free for the first one then
    assert all("ms" in row for rows in (short, sound) for row in rows.values())
    assert "signal SIGSEGV" in dies["autograd"]["failed"] and "ms" not in dies["autograd"]
    assert (
        dies["pinnfuse"]["ms"] == dies["jax"]["ms"] != sound["jax"]["ms"]
    )  # in a second process, and one of their own


class Clock:
    """Time is over as soon as this text is reported."""

    def __init__(self, text: str):
        self.text, self.skipped, self.told = text, 0.0, list[str]()

    def monotonic(self) -> float:
        return time.monotonic() + self.skipped

    def report(self, text: str) -> None:
        self.told.append(text)
        if self.text in text:
            self.skipped = 3600.0


def test_what_is_not_ready_in_time_is_skipped_and_the_rest_timed(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock("1 of 3 ready, 1 in work, longest hangs, autograd")
    monkeypatch.setattr(side_by_side, "time", clock)
    jobs = [Job("hangs", {"autograd": "hang"}), Job("wrong", {"autograd": "raise"}), Job("sound")]
    _, (hangs, wrong, sound) = measured(jobs, 3, 900, report=clock.report)
    late = "not compiled and checked within 900 s beside 2 other cases"
    assert hangs["autograd"]["skipped"] == hangs["jax"]["skipped"] == late
    assert "ms" in hangs["pinnfuse"] and "failed" not in hangs["pinnfuse"]
    assert {row["failed"] for row in wrong.values()} == {"RuntimeError: the reference is wrong"}
    assert all("ms" in row for row in sound.values())
    assert clock.told[-3:] == [f"timing {job.label}" for job in jobs]


def test_no_time_at_all_and_a_process_that_dies_when_it_is_timed() -> None:
    _, (none,) = measured([Job("late")], 2, 1e-3)
    assert {row["skipped"] for row in none.values()} == {"not compiled and checked within 0.001 s beside 0 other cases"}
    _, (stops,) = measured([Job("stops", {"autograd": "stop"})], 2, 300)
    assert all("signal SIGKILL" in row["failed"] for row in stops.values())


def test_not_ready_again_is_a_reason_too(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = Clock("hangs, jax")
    monkeypatch.setattr(side_by_side, "time", clock)
    _, (rows,) = measured([Job("hangs", {"jax": "hang"})], 2, 900, report=clock.report, again=1e-3)
    assert all("again within 0.001 s" in rows[engine]["skipped"] for engine in ("pinnfuse", "autograd"))
    assert rows["jax"]["skipped"].startswith("not compiled and checked within 900 s")


def test_an_interrupt_ends_all_processes() -> None:
    def interrupt(text: str) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        measured([Job("a"), Job("b")], 2, 300, report=interrupt)
    assert not multiprocessing.active_children()
