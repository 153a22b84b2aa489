"""`pinnfuse doctor | verify | compile | bench | profile | physarum`: options, exit status, and errors in one line.

Each command loads what it needs when it runs, so `doctor` works where Triton, a card or other dependencies are missing.
"""

from __future__ import annotations

import signal
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from jsonargparse import ArgumentParser, Namespace
from rich.console import Console
from rich.markup import escape

from pinnfuse.cli import compiling, fluid, grid, operators, physarum, profiling
from pinnfuse.cli.parsing import PlainParser, names
from pinnfuse.cli.progress import progress
from pinnfuse.errors import BackendUnavailable, ProcessDied

if TYPE_CHECKING:
    from pinnfuse.bench import Settings


_JETS = {
    "cases": ("navier_stokes,burgers,poisson_10,kdv,plate", "comma-separated"),
    "widths": ("64,128", "comma-separated"),
    "depths": ("6", "comma-separated"),
    "points": ("65536", "comma-separated"),
    "dtype": ("float32", "float32 or float64"),
    "precision": ("float32", "comma-separated: float32, tf32, bf16x3"),
    "against": ("autograd,torch", "of autograd, torch, torch-compile, jax; may be empty"),
}
"""What to measure, without `--suite`: default and help of each option."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; returns its exit status: 0, 1 where something failed or is wrong, 2 for a wrong option."""
    parser, given = _parser(), sys.argv[1:] if arguments is None else arguments
    if not given:
        parser.print_help(sys.stderr)
        return 2
    options = parser.parse_args(given)
    with _tidy_end():
        return _run(options)


@contextmanager
def _tidy_end() -> Iterator[None]:
    """SIGTERM ends this process as an exception does: the cursor comes back, workers and parts of files go."""
    ours = threading.current_thread() is threading.main_thread() and signal.getsignal(signal.SIGTERM) == signal.SIG_DFL
    if ours:
        signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))
    try:
        yield
    finally:
        if ours:
            signal.signal(signal.SIGTERM, signal.SIG_DFL)


def _run(options: Namespace) -> int:
    command = options.subcommand
    try:
        if command == "doctor":
            return _doctor(options.doctor)
        if command == "verify":
            return _verify(options.verify)
        if command == "compile":
            return compiling.run(options.compile, _console())
        if command == "physarum":
            return physarum.run(options.physarum, _device(options.physarum.device), _console())
        if command == "profile":
            target = options.profile.subcommand
            run = {"physarum": profiling.physarum, "ops": profiling.ops, "train": profiling.train}[target]
            return run(options.profile[target], _device(options.profile[target].device), _console())
        if options.bench.subcommand == "physarum":
            return physarum.bench(options.bench.physarum, _device(options.bench.physarum.device), _console())
        if options.bench.subcommand == "ops":
            return operators.bench(options.bench.ops, _device(options.bench.ops.device), _console())
        if options.bench.subcommand == "fluid":
            return fluid.bench(options.bench.fluid, _device(options.bench.fluid.device), _console())
        if options.bench.subcommand == "grid":
            return grid.bench(options.bench.grid, _device(options.bench.grid.device), _console())
        return _bench_jets(options.bench.jets)
    except (ValueError, BackendUnavailable, ProcessDied) as error:
        Console(stderr=True, soft_wrap=True, highlight=False).print("[bold red]error:[/]", escape(str(error)))
        return 1
    except KeyboardInterrupt:
        return 130


def _parser() -> ArgumentParser:
    parser = ArgumentParser(prog="pinnfuse", description="Look at this machine, check every backend, measure speed.")
    commands = parser.add_subcommands()

    doctor = ArgumentParser(description="Versions, card, memory, and what will run where and why.")
    doctor.add_argument("--json", action="store_true", help="the same for programs")
    commands.add_subcommand("doctor", doctor, help="versions, card, memory; which backend runs where, and why")

    verify = ArgumentParser(
        description="Every PDE, network, operator on grids and backend against float64; exit status 1 on a failure."
    )
    verify.add_argument("--quick", action="store_true", help="fewer points, one case of each mechanism")
    verify.add_argument("--jobs", type=int, default=None, help="processes; 1: this one. Half of the cores, up to 8")
    verify.add_argument("--device", type=str, default="auto", help="auto, cpu, cuda or cuda:1")
    verify.add_argument(
        "--part", choices=["all", "networks", "grid", "physarum"], default="all", help="what to compare"
    )
    verify.add_argument("--full", action="store_true", help="a line for every comparison")
    verify.add_argument("--json", action="store_true", help="the rows for programs")
    commands.add_subcommand("verify", verify, help="every PDE, network, operator and backend against float64")

    commands.add_subcommand("compile", compiling.parser(), help="kernels of a problem for a card that is not here")

    bench = ArgumentParser(description="Measure speed and memory on this machine.")
    commands.add_subcommand("bench", bench, help="time and memory against other engines")
    kinds = bench.add_subcommands()
    jets = PlainParser(description="Loss and parameter gradients of residuals, checked before they are timed.")
    jets.add_argument("--suite", type=str, default=None, help="cases with their sizes and engines: goals, quick")
    for name, (default, text) in _JETS.items():
        jets.add_argument(f"--{name}", type=str, default=None, help=f"{text} (default: {default})")
    jets.add_argument("--backend", type=str, default="auto", help="the backend of ours")
    jets.add_argument("--device", type=str, default="auto", help="auto, cpu, cuda or cuda:1")
    jets.add_argument("--seconds", type=float, default=2.0, help="time to spend on each engine of each case")
    jets.add_argument("--ready", type=int, default=1, help="processes that make cases ready; 1: this one, case by case")
    jets.add_argument(
        "--ready-seconds", type=float, default=None, help="with --ready 2 or more, most before the first is timed: 600"
    )
    jets.add_argument("--out", type=str, required=True, help="folder; results go to OUT/<card or processor>/")
    jets.add_argument("--logger", type=str, default=None, help="wandb, or nothing")
    kinds.add_subcommand("jets", jets, help="loss and parameter gradients of residuals")
    kinds.add_subcommand("ops", operators.bench_parser(), help="operators on grids")
    kinds.add_subcommand("grid", grid.bench_parser(), help="loss and gradient of residuals on grids")
    kinds.add_subcommand("fluid", fluid.bench_parser(), help="accuracy and step times of FluidSimulator")
    kinds.add_subcommand("physarum", physarum.bench_parser(), help="steps per second of the simulation")

    profile = ArgumentParser(description="Operations, CUDA calls and kernels of a step; traces and stacks.")
    commands.add_subcommand("profile", profile, help="where the time of a step goes")
    targets = profile.add_subcommands()
    targets.add_subcommand("ops", profiling.ops_parser(), help="an operator on a grid against its native form")
    targets.add_subcommand("train", profiling.train_parser(), help="a training step of a problem")
    targets.add_subcommand("physarum", profiling.physarum_parser(), help="a step of the simulation")

    commands.add_subcommand("physarum", physarum.parser(), help="run the simulation and write pictures")
    return parser


def _doctor(options: Namespace) -> int:
    from pinnfuse.cli import doctor

    report = doctor.collect()
    if options.json:
        Console(soft_wrap=True).print_json(data=report)
    else:
        doctor.show(report, _console())
    return 1 if report["problems"] else 0


def _verify(options: Namespace) -> int:
    from pinnfuse import verification

    device = _device(options.device)
    console = _console(stderr=options.json)
    if options.jobs is not None and options.jobs < 1:
        raise ValueError(f"--jobs: expected at least 1 process; got {options.jobs}.")
    tasks: list[Any] = []
    if options.part in ("all", "networks"):
        tasks += verification.network_tasks(device, options.quick)
    if options.part in ("all", "grid"):
        tasks += verification.operator_tasks(device, options.quick)
    if options.part in ("all", "physarum"):
        tasks += verification.physarum_tasks(options.quick)
    with progress("comparing with float64", console) as report:
        rows = verification.run_tasks(tasks, device, options.jobs or verification.default_jobs(device), report)
    if options.json:
        Console(soft_wrap=True).print_json(data=[row.as_dict() for row in rows])
        console.print(verification.summary(rows), highlight=False)
    else:
        verification.show(rows, console, options.full)
    return 1 if any(row.status == "failed" for row in rows) else 0


def _bench_jets(options: Namespace) -> int:
    from pinnfuse.bench import run

    device = _device(options.device)
    if options.ready_seconds is not None and options.ready == 1:
        raise ValueError("--ready-seconds: only counts with --ready 2 or more; got --ready 1. Leave it out.")
    seconds = 600.0 if options.ready_seconds is None else options.ready_seconds
    settings = _jets_settings(options, str(device))
    rows = run(settings, options.out, options.logger, _console(), options.suite, options.ready, seconds)
    return 1 if any("failed" in row for row in rows) else 0


def _jets_settings(options: Namespace, device: str) -> list[Settings]:
    from pinnfuse.bench import Settings, suite

    if options.suite is not None:
        given = [f"--{name}" for name in _JETS if options[name] is not None]
        if given:
            raise ValueError(
                f"--suite: {options.suite!r} has cases, sizes and engines of its own; got {', '.join(given)} "
                f"beside it. Leave out one or the other."
            )
        entries = suite.get(options.suite)
        return [entry.settings(device, options.seconds, options.backend) for entry in entries]
    chosen = {name: default if options[name] is None else options[name] for name, (default, _) in _JETS.items()}
    settings = Settings(
        cases=names(chosen["cases"]),
        widths=_integers("--widths", chosen["widths"]),
        depths=_integers("--depths", chosen["depths"]),
        points=_integers("--points", chosen["points"]),
        dtype=chosen["dtype"],
        precisions=names(chosen["precision"]),
        backend=options.backend,
        against=names(chosen["against"]),
        device=device,
        seconds=options.seconds,
    )
    return [settings]


def _console(**options: bool) -> Console:
    console = Console(**options)  # type: ignore[arg-type]
    return console if console.is_terminal else Console(**options, width=130)  # type: ignore[arg-type]


def _integers(option: str, text: str) -> list[int]:
    found = names(text)
    if not found or not all(name.isdecimal() and int(name) > 0 for name in found):
        raise ValueError(f"{option}: expected positive integers separated by commas; got {text!r}.")
    return [int(name) for name in found]


def _device(name: str):
    import torch

    if name == "auto":
        return torch.device("cuda" if torch.cuda.is_available() else "cpu")
    try:
        device = torch.device(name)
    except RuntimeError as error:
        raise ValueError(f"--device: expected auto, cpu, cuda or cuda:N; got {name!r}.") from error
    if device.type == "cuda" and not torch.cuda.is_available():
        raise ValueError(f"--device: {name!r} was asked for, but torch finds no CUDA card. Run `pinnfuse doctor`.")
    if device.type not in ("cpu", "cuda"):
        raise ValueError(f"--device: expected auto, cpu, cuda or cuda:N; got {name!r}.")
    return device


if __name__ == "__main__":
    sys.exit(main())
