"""`pinnfuse physarum` and `pinnfuse bench physarum`: options, and what they start."""

from __future__ import annotations

from typing import Any

from jsonargparse import ArgumentParser, Namespace
from rich.console import Console


def bench_parser() -> ArgumentParser:
    parser = ArgumentParser(description="Steps per second of Physarum; every case is checked against torch first.")
    parser.add_argument("--device", type=str, default="auto", help="auto, cpu, cuda or cuda:1")
    parser.add_argument("--seconds", type=float, default=1.0, help="time to spend on each number")
    parser.add_argument("--quick", action="store_true", help="one small case")
    parser.add_argument("--out", type=str, required=True, help="folder; results go to OUT/<card or processor>/")
    return parser


def bench(options: Namespace, device: Any, console: Console) -> int:
    from pinnfuse.bench.physarum import run

    if not options.seconds > 0:
        raise ValueError(f"--seconds: expected a positive number; got {options.seconds}.")
    report = run(device, options.out, console, seconds=options.seconds, quick=options.quick)
    return 1 if any("failed" in row for row in report["rows"]) else 0
