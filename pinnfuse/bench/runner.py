"""The loop of `pinnfuse bench jets`: check, then time, then report."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from rich.console import Console
from rich.markup import escape

from pinnfuse.bench import machine, results, suite
from pinnfuse.bench.cases import Case
from pinnfuse.bench.measurement import Measurement, Row
from pinnfuse.bench.settings import Settings
from pinnfuse.bench.side_by_side import CaseJob, measure_side_by_side
from pinnfuse.bench.table import show


def run(
    settings: Settings | Sequence[Settings],
    out: str | Path,
    logger: str | None = None,
    console: Console | None = None,
    goals: str | None = None,
    ready: int = 1,
    ready_seconds: float = 600.0,
) -> list[Row]:
    """Measure, print a table, and write `jets.json` and `jets.png` into `out/<card or processor>/`.

    Args:
        settings: one or several, all of the same device.
        logger: "wandb" logs rows and picture too, offline without an account.
        goals: the suite (`pinnfuse.bench.suite`) by whose goals rows of ours are judged.
        ready: so many processes make cases ready side by side, each keeps its own; then they are timed one after the
            other. 1: each case gets ready and is timed in this process before the next.
        ready_seconds: with several, until the first case is timed, at most.

    Returns:
        one row per case and engine: `ms` where it was timed, else "failed" or "skipped" with the reason.
    """
    if logger not in (None, "wandb"):
        raise ValueError(f"bench jets: `logger` must be 'wandb' or nothing; got {logger!r}.")
    if ready < 1 or not 0 < ready_seconds < float("inf"):
        raise ValueError(
            f"bench jets: `ready` must be 1 or more, `ready_seconds` positive; got {ready}, {ready_seconds:g}."
        )
    settings = [settings] if isinstance(settings, Settings) else list(settings)
    judges = suite.get(goals) if goals else ()
    console = console or Console(quiet=True)
    device = torch.device(settings[0].device)
    path = results.place(out, device, "jets.json")
    report: dict[str, Any] = {
        **machine.head(device),
        **({"suite": goals} if goals else {}),
        **({"ready": {"processes": ready, "seconds": ready_seconds}} if ready > 1 else {}),
        "settings": [asdict(one) for one in settings],
        "rows": [],
    }
    jobs = [CaseJob(case, one) for one in settings for case in one.expand()]
    found: dict[int, list[Row]] = {}

    def done(job: int, rows: list[Row]) -> None:
        suite.judge(rows, judges)
        found[job] = rows
        report["rows"] = [row for k in sorted(found) for row in found[k]]
        results.save(path, report)

    card = torch.cuda.device(device) if device.type == "cuda" and ready == 1 else contextlib.nullcontext()
    with console.status("") as status, card:
        if ready > 1:
            measure_side_by_side(jobs, ready, ready_seconds, done, lambda text: status.update(escape(text)))
        else:
            for k, job in enumerate(jobs):
                status.update(escape(job.label))
                done(k, measure(job.case, job.settings))
    rows: list[Row] = report["rows"]
    show(rows, console)
    from pinnfuse.bench.picture import draw  # matplotlib takes a second to load

    draw(report, path.with_name("jets.png"))
    console.print(f"wrote {path} and jets.png", soft_wrap=True, highlight=False)
    if logger:
        from pinnfuse.bench.log import log

        log(report, path.parent)
    return rows


def measure(case: Case, settings: Settings) -> list[Row]:
    """The rows of one case: ours first, then the others, each checked on the points that it is timed on."""
    measurement = Measurement(case, settings)
    for engine in settings.engines:
        measurement.add(engine)
    return measurement.timed()
