"""`pinnfuse bench ops`: options and what they start."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

from jsonargparse import ArgumentParser, Namespace
from rich.console import Console

from pinnfuse.cli.parsing import names

if TYPE_CHECKING:
    from pinnfuse.bench.operators import Size


def bench_parser() -> ArgumentParser:
    parser = ArgumentParser(
        description="Operators on grids against eager, convolution, compiled, Fourier, coordinate ones."
    )
    operators = "laplacian,gradient,convection central,convection upwind3"
    against = "eager-roll,eager-slice,conv,compile,fourier,coordinates"
    sizes = "512,2048,2048x8,8192,16777216^1,256^3,2048x8:float64,2048x8:float16,2048x8:bfloat16"
    small = "32,64,128,256,512,1024,4096^1,32^3"
    parser.add_argument(
        "--operators", type=str, default=operators, help="comma-separated; also convection van_leer, convection weno5"
    )
    parser.add_argument("--sizes", type=str, default=sizes, help="comma-separated: n[^dimension][xbatch][:dtype]")
    parser.add_argument("--small", type=str, default=small, help="sizes as called, against eager")
    parser.add_argument(
        "--against", type=str, default=against, help="comma-separated; also kernel, torch: ours, each path"
    )
    parser.add_argument("--device", type=str, default="auto", help="auto, cpu, cuda or cuda:1")
    parser.add_argument("--seconds", type=float, default=0.2, help="time to spend on each number")
    parser.add_argument("--out", type=str, required=True, help="folder; results go to OUT/<card or processor>/")
    return parser


def bench(options: Namespace, device: Any, console: Console) -> int:
    from pinnfuse.bench.operators import Settings, run

    settings = Settings(
        operators=names(options.operators),
        sizes=[size(text, "sizes") for text in names(options.sizes)],
        small=[size(text, "small") for text in names(options.small)],
        engines=("pinnfuse", *names(options.against)),
        device=str(device),
        seconds=options.seconds,
    )
    rows = run(settings, options.out, console)
    return 1 if any("failed" in row for row in rows) else 0


def size(text: str, option: str) -> Size:
    """A size as written on the command line."""
    from pinnfuse.bench.operator_engines import DTYPES
    from pinnfuse.bench.operators import Size

    found = re.fullmatch(r"(\d+)(?:\^([123]))?(?: *x *(\d+))?(?::(\w+))?", text)
    if found is None or int(found[1]) < 1 or int(found[3] or 1) < 1 or (found[4] or "float32") not in DTYPES:
        raise ValueError(
            f"--{option}: expected sizes such as 2048, 2048x8, 256^3 or 2048x8:float16 (dtypes: {', '.join(DTYPES)}); "
            f"got {text!r}."
        )
    return Size(int(found[1]), int(found[3] or 1), int(found[2] or 2), found[4] or "float32")
