"""`pinnfuse bench grid`: its options."""

from __future__ import annotations

from typing import TYPE_CHECKING

from jsonargparse import ArgumentParser, Namespace
from rich.console import Console

if TYPE_CHECKING:
    import torch


def bench_parser() -> ArgumentParser:
    parser = ArgumentParser(description="Navier-Stokes residuals on grids: loss and gradient, checked, then timed.")
    parser.add_argument("--sizes", type=str, default="512,2048,8192", help="points per axis, comma-separated")
    parser.add_argument("--boundaries", type=str, default="periodic,walls", help="comma-separated")
    parser.add_argument("--batch", type=int, default=0, help="samples; 0: as many as make 2^25 points, at least one")
    parser.add_argument("--against", type=str, default="eager,roll,fourier", help="engines; may be empty")
    parser.add_argument("--device", type=str, default="auto", help="auto, cpu, cuda or cuda:1")
    parser.add_argument("--seconds", type=float, default=1.0, help="time to spend on each engine of each case")
    parser.add_argument("--out", type=str, required=True, help="folder; results go to OUT/<card or processor>/")
    return parser


def bench(options: Namespace, device: torch.device, console: Console) -> int:
    from pinnfuse.bench import grid_residual as bench
    from pinnfuse.errors import nearest

    def names(option: str, text: str, known: tuple[str, ...]) -> list[str]:
        found = [name.strip() for name in text.split(",") if name.strip()]
        for name in found:
            if name not in known:
                raise ValueError(f"bench grid: `{option}` holds the unknown {name!r}. {nearest(name, known)}")
        return found

    boundaries = names("boundaries", options.boundaries, ("periodic", "walls"))
    against = names("against", options.against, bench.ENGINES)
    sizes = [int(size) for size in options.sizes.split(",") if size.strip().isdecimal()]
    if not sizes or min(sizes) < 8 or not options.seconds > 0 or options.batch < 0:
        raise ValueError(
            f"bench grid: `sizes` must be numbers of 8 or more and `seconds` positive; got {options.sizes!r}."
        )
    batch = lambda n: options.batch or max(1, min(64, 2**25 // n**2))  # noqa: E731
    cases = [bench.GridCase(boundary, n, batch(n)) for n in sizes for boundary in boundaries]
    rows = bench.run(cases, against, device, options.seconds, options.out, console)
    return 1 if any("failed" in row for row in rows) else 0
