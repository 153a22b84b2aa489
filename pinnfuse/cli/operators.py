"""`pinnfuse bench ops`: options and what they start."""

from __future__ import annotations

from typing import Any

from jsonargparse import ArgumentParser, Namespace
from rich.console import Console


def bench_parser() -> ArgumentParser:
    parser = ArgumentParser(description="Operators on grids against eager, conv2d, torch.compile and Fourier ones.")
    names = "laplacian,gradient,convection central,convection upwind3"
    against = "eager-roll,eager-slice,conv2d,compile,fourier"
    parser.add_argument("--operators", type=str, default=names, help="comma-separated")
    parser.add_argument("--sizes", type=str, default="512,2048,2048x8,8192", help="comma-separated: n, or n x batch")
    parser.add_argument("--small", type=str, default="32,64,128,256,512,1024", help="sizes as called, against eager")
    parser.add_argument("--against", type=str, default=against, help="comma-separated")
    parser.add_argument("--device", type=str, default="auto", help="auto, cpu, cuda or cuda:1")
    parser.add_argument("--seconds", type=float, default=0.2, help="time to spend on each number")
    parser.add_argument("--out", type=str, required=True, help="folder; results go to OUT/<card or processor>/")
    return parser


def bench(options: Namespace, device: Any, console: Console) -> int:
    from pinnfuse.bench.operators import Settings, run

    settings = Settings(
        operators=_names(options.operators),
        sizes=[_size(text) for text in _names(options.sizes)],
        small=[_size(text)[0] for text in _names(options.small)],
        engines=("pinnfuse", *_names(options.against)),
        device=str(device),
        seconds=options.seconds,
    )
    rows = run(settings, options.out, console)
    return 1 if any("failed" in row for row in rows) else 0


def _names(text: str) -> list[str]:
    return [name.strip() for name in text.split(",") if name.strip()]


def _size(text: str) -> tuple[int, int]:
    n, _, batch = text.partition("x")
    if not (n.strip().isdecimal() and (batch.strip() or "1").isdecimal() and int(n) > 0 and int(batch or 1) > 0):
        raise ValueError(f"--sizes: expected positive integers such as 2048 or 2048x8; got {text!r}.")
    return int(n), int(batch or 1)
