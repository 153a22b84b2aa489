"""`pinnfuse bench fluid`: its options."""

from __future__ import annotations

from typing import TYPE_CHECKING

from jsonargparse import ArgumentParser, Namespace
from rich.console import Console

from pinnfuse.cli.parsing import names

if TYPE_CHECKING:
    import torch


def bench_parser() -> ArgumentParser:
    parser = ArgumentParser(description="FluidSimulator: Taylor-Green decay, cavities against a reference, step times.")
    parser.add_argument("--taylor_green", type=str, default="64,256", help="cells per axis, comma-separated; may be ''")
    parser.add_argument("--re100", type=str, default="32,64,128", help="of the cavity at Re 100")
    parser.add_argument("--re1000", type=str, default="64,128,256", help="of the cavity at Re 1000")
    parser.add_argument("--device", type=str, default="auto", help="auto, cpu, cuda or cuda:1")
    parser.add_argument("--out", type=str, required=True, help="folder; results go to OUT/<card or processor>/")
    return parser


def bench(options: Namespace, device: torch.device, console: Console) -> int:
    from pinnfuse.bench import fluid

    found = {name: _sizes(name, getattr(options, name)) for name in ("taylor_green", "re100", "re1000")}
    cavities = {100: found["re100"], 1000: found["re1000"]}
    rows = fluid.run(found["taylor_green"], cavities, device, options.out, console)
    return 1 if any(row.get("met") is False for row in rows) else 0


def _sizes(option: str, text: str) -> list[int]:
    parts = names(text)
    if not all(part.isdecimal() and int(part) >= 8 and int(part) % 2 == 0 for part in parts):
        raise ValueError(f"--{option}: expected even numbers of cells from 8 on, separated by commas; got {text!r}.")
    return sorted(map(int, parts))
