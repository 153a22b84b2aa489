"""The loop of `pinnfuse bench jets`: check, then time, then report."""

from __future__ import annotations

import contextlib
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
from rich.console import Console

from pinnfuse.bench import machine, results, suite
from pinnfuse.bench.cases import Case
from pinnfuse.bench.measurement import Measurement, Row
from pinnfuse.bench.settings import Settings
from pinnfuse.bench.table import show


def run(
    settings: Settings | Sequence[Settings],
    out: str | Path,
    logger: str | None = None,
    console: Console | None = None,
    goals: str | None = None,
) -> list[Row]:
    """Measure, print a table, and write `jets.json` and `jets.png` into `out/<card or processor>/`.

    Args:
        settings: one or several, all of the same device.
        logger: "wandb" logs rows and picture too, offline without an account.
        goals: the suite (`pinnfuse.bench.suite`) by whose goals rows of ours are judged.

    Returns:
        one row per case and engine: `ms` where it was timed, else "failed" or "skipped" with the reason.
    """
    if logger not in (None, "wandb"):
        raise ValueError(f"bench jets: `logger` must be 'wandb' or nothing; got {logger!r}.")
    settings = [settings] if isinstance(settings, Settings) else list(settings)
    judges = suite.get(goals) if goals else ()
    console = console or Console(quiet=True)
    device = torch.device(settings[0].device)
    path = results.place(out, device, "jets.json")
    report: dict[str, Any] = {
        **machine.head(device),
        **({"suite": goals} if goals else {}),
        "settings": [asdict(one) for one in settings],
        "rows": [],
    }
    rows: list[Row] = report["rows"]
    for one in settings:
        for case in one.expand():
            card = torch.cuda.device(device) if device.type == "cuda" else contextlib.nullcontext()
            with console.status(f"{case.name}, width {case.width}, {case.points:,} points, {case.precision}"), card:
                found = measure(case, one)
            suite.judge(found, judges)
            rows += found
            results.save(path, report)
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
