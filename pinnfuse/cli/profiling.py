"""`pinnfuse profile ops | train | physarum`: options, and what they start."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from jsonargparse import ArgumentParser, Namespace
from rich.console import Console

from pinnfuse.cli.parsing import PlainParser, height_and_width


def _common(parser: ArgumentParser, files: str) -> ArgumentParser:
    parser.add_argument("--steps", type=int, default=20, help="traced")
    parser.add_argument("--warm_up", type=int, default=5, help="steps before")
    parser.add_argument("--device", type=str, default="auto", help="auto, cpu, cuda or cuda:1")
    parser.add_argument("--out", type=str, required=True, help=f"folder for {files}")
    parser.add_argument("--logger", type=str, default=None, help="wandb uploads the files; or nothing")
    return parser


def ops_parser() -> ArgumentParser:
    parser = ArgumentParser(description="An operator against its native form, forward and backward: kernels, memory.")
    parser.add_argument(
        "--operator", type=str, default="laplacian", help="laplacian, gradient, convection central or upwind3"
    )
    parser.add_argument("--size", type=int, default=1024, help="points per axis")
    parser.add_argument("--batch", type=int, default=1, help="fields")
    parser.add_argument("--against", type=str, default="eager-roll", help="eager-roll, eager-slice, conv, ...")
    return _common(parser, "ops.pt.trace.json and ops.folded")


def ops(options: Namespace, device: Any, console: Console) -> int:
    import torch

    from pinnfuse.bench.operator_engines import ENGINES, OPERATORS, Case, build
    from pinnfuse.errors import nearest
    from pinnfuse.profiling import comparison, memory

    for option, given, known in (("operator", options.operator, OPERATORS), ("against", options.against, ENGINES)):
        if given not in known:
            raise ValueError(f"--{option}: unknown {given!r}. {nearest(given, known)}")
    if options.size < 8 or options.batch < 1:
        raise ValueError(f"--size, --batch: expected 8 or more and 1 or more; got {options.size} and {options.batch}.")
    _check_logger(options)
    case = Case(options.operator, options.size, options.batch)
    given = [x.requires_grad_() for x in case.inputs(device)]
    upstream = torch.rand_like(build("pinnfuse", case)(*given))

    def both(engine: str) -> Callable[[], Any]:
        function = build(engine, case)
        return lambda: torch.autograd.grad(function(*given), given, upstream)

    names = (options.against, "pinnfuse")
    found = comparison.compare(
        {name: both(name) for name in names},
        options.out,
        device=device,
        steps=options.steps,
        warm_up=options.warm_up,
        name="ops",
    )
    comparison.show(found, console)
    for name in names:
        console.print(f"memory of {name}", highlight=False)
        inputs = lambda _: given  # noqa: E731
        memory_of = memory(build(name, case), [f"{case.n}^2 x {case.batch}"], device=device, inputs=inputs)
        _show_memory(memory_of, console)
    return _upload(options, found.files)


def train_parser() -> ArgumentParser:
    parser = ArgumentParser(description="A training step of a problem: points, loss, gradient, update.")
    parser.add_argument("--pde", type=str, default="navier_stokes", help="as for train.py")
    parser.add_argument("--problem", type=str, default=None, help="as for train.py")
    parser.add_argument("--backend", type=str, default="auto", help="auto, triton, torch or autograd")
    return _common(parser, "train.pt.trace.json and train.folded")


def train(options: Namespace, device: Any, console: Console) -> int:
    from pinnfuse.profiling import profile
    from pinnfuse.profiling.table import show

    _check_logger(options)
    step = _training_step(options.pde, options.problem, options.backend, device)
    found = profile(step, options.out, "train", device=device, steps=options.steps, warm_up=options.warm_up)
    show(found, console)
    return _upload(options, found.files)


def _training_step(pde: str, name: str | None, backend: str, device: Any) -> Callable[[], None]:
    """Adam on new points at every step, each part in a range of its own; no CUDA graph, which would hide them."""
    import torch
    from torch.profiler import record_function

    from pinnfuse import problems
    from pinnfuse.datamodules import CollocationDataModule
    from pinnfuse.models import PINN

    torch.manual_seed(0)
    problem = problems.get(pde, name)
    module = PINN(problem, backend=backend)
    data = CollocationDataModule(problem)
    module.to(device, data.dtype)
    optimizer = torch.optim.Adam(module.parameters(), lr=1e-3)
    count = 0

    def step() -> None:
        nonlocal count
        count += 1
        with record_function("train/points"):
            batch = data.draw(count, device=device)
        with record_function("train/loss"):
            loss, _ = module.loss(module.net, batch)
        with record_function("train/gradient"):
            loss.backward()
        with record_function("train/update"):
            optimizer.step()
            optimizer.zero_grad()

    return step


def physarum_parser() -> ArgumentParser:
    parser = PlainParser(
        usage="pinnfuse profile physarum --out FOLDER [options]",
        description="Where the time of a step of Physarum goes; a trace for Perfetto, stacks.",
    )
    parser.add_argument("--shape", type=str, default="400x400", help="HEIGHTxWIDTH in cells")
    parser.add_argument("--agents", type=int, default=5000, help="how many")
    parser.add_argument("--backend", type=str, default="auto", help="auto, torch or triton")
    return _common(parser, "physarum.pt.trace.json and physarum.folded")


def physarum(options: Namespace, device: Any, console: Console) -> int:
    from pinnfuse.profiling import profile
    from pinnfuse.profiling.table import show
    from pinnfuse.simulation import Physarum

    _check_logger(options)
    sim = Physarum(height_and_width(options.shape), options.agents, device=device, backend=options.backend)
    counts = {"steps": options.steps, "warm_up": options.warm_up}
    found = profile(sim.step, options.out, "physarum", device=device, named=sim.named_ranges, **counts)
    show(found, console)
    return _upload(options, found.files)


def _check_logger(options: Namespace) -> None:
    if options.logger not in (None, "wandb"):
        raise ValueError(f"--logger: expected 'wandb' or nothing; got {options.logger!r}.")


def _upload(options: Namespace, files: Any) -> int:
    if options.logger:
        from pinnfuse.tracking.files import upload

        upload(files, "pinnfuse-profile", "trace", options.out)
    return 0


def _show_memory(rows: Any, console: Console) -> None:
    from pinnfuse.profiling.usage import show

    show(rows, console)
