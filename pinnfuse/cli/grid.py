"""`pinnfuse bench grid`: its options."""

from __future__ import annotations

from typing import TYPE_CHECKING

from jsonargparse import ArgumentParser, Namespace
from rich.console import Console

if TYPE_CHECKING:
    import torch


def bench_parser() -> ArgumentParser:
    parser = ArgumentParser(description="Navier-Stokes residuals on grids: loss and gradient, checked, then timed.")
    sizes = "512,2048,8192,256^3,16777216^1,2048:float64,2048:float16"
    parser.add_argument("--sizes", type=str, default=sizes, help="comma-separated: n[^dimension][xbatch][:dtype]")
    parser.add_argument("--boundaries", type=str, default="periodic,walls", help="comma-separated")
    parser.add_argument("--batch", type=int, default=0, help="samples; 0: as many as make 2^25 points, at least one")
    parser.add_argument("--six", type=str, default="1024", help="sizes for six PDEs, periodic; may be ''")
    parser.add_argument("--training", type=str, default="256x4", help="sizes for training steps of six PDEs; may be ''")
    parser.add_argument("--against", type=str, default="eager,roll,fourier,coordinates", help="engines; may be ''")
    parser.add_argument("--device", type=str, default="auto", help="auto, cpu, cuda or cuda:1")
    parser.add_argument("--seconds", type=float, default=1.0, help="time to spend on each engine of each case")
    parser.add_argument("--out", type=str, required=True, help="folder; results go to OUT/<card or processor>/")
    return parser


def bench(options: Namespace, device: torch.device, console: Console) -> int:
    from pinnfuse.bench import grid_residual
    from pinnfuse.bench.grid_engines import ENGINES, GridCase
    from pinnfuse.bench.grid_equations import SIX
    from pinnfuse.cli.operators import size
    from pinnfuse.cli.parsing import names
    from pinnfuse.errors import nearest

    def known(option: str, found: list[str], allowed: tuple[str, ...]) -> list[str]:
        for name in found:
            if name not in allowed:
                raise ValueError(f"bench grid: `{option}` holds the unknown {name!r}. {nearest(name, allowed)}")
        return found

    def cases(option: str, pdes: tuple[str, ...], boundaries: list[str]) -> list[GridCase]:
        """The flow is Burgers' on one axis."""
        found = []
        for one in [size(text, option) for text in names(getattr(options, option))]:
            if one.n < 8:
                raise ValueError(f"bench grid: `{option}` must be sizes of 8 or more; got {one.n}.")
            full = max(1, min(64, 2**25 // one.n**one.dimension)) if option == "sizes" else one.batch
            batch = options.batch or (one.batch if one.batch > 1 else full)
            for pde in pdes:
                name = "burgers" if pde == "navier_stokes" and one.dimension == 1 else pde
                found += [GridCase(b, one.n, batch, name, one.dimension, one.dtype) for b in boundaries]
        return found

    if not options.seconds > 0 or options.batch < 0:
        raise ValueError(f"bench grid: `seconds` must be positive; got {options.seconds}.")
    boundaries = known("boundaries", names(options.boundaries), ("periodic", "walls"))
    settings = grid_residual.Settings(
        cases=cases("sizes", ("navier_stokes",), boundaries),
        six=cases("six", SIX, ["periodic"]),
        training=cases("training", SIX, ["periodic"]),
        against=known("against", names(options.against), ENGINES),
        seconds=options.seconds,
    )
    report = grid_residual.run(settings, device, options.out, console)
    return 1 if any("failed" in row for row in report["rows"] + report["training"]) else 0
