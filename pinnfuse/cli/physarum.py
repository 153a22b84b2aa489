"""`pinnfuse physarum` and `pinnfuse bench physarum`: options, and what they start."""

from __future__ import annotations

from typing import Any

from jsonargparse import ArgumentParser, Namespace
from rich.console import Console

from pinnfuse.cli.parsing import PlainParser, height_and_width, names


def bench_parser() -> ArgumentParser:
    usage = "pinnfuse bench physarum --out FOLDER [options]"
    parser = PlainParser(
        usage=usage, description="Steps per second of Physarum; every case is checked against torch first."
    )
    parser.add_argument("--device", type=str, default="auto", help="auto, cpu, cuda or cuda:1")
    parser.add_argument("--seconds", type=float, default=1.0, help="time to spend on each number")
    parser.add_argument(
        "--devices", type=int, default=1, help="more than 1: only 16 M agents over so many, and over 1; 1"
    )
    parser.add_argument("--quick", action="store_true", help="one small case")
    parser.add_argument("--out", type=str, required=True, help="folder; results go to OUT/<card or processor>/")
    return parser


def bench(options: Namespace, device: Any, console: Console) -> int:
    from pinnfuse.bench.physarum import run, run_split

    if not options.seconds > 0:
        raise ValueError(f"--seconds: expected a positive number; got {options.seconds}.")
    if options.devices > 1:
        run_split(options.devices, device, options.out, console, seconds=options.seconds, quick=options.quick)
        return 0
    report = run(device, options.out, console, seconds=options.seconds, quick=options.quick)
    return 1 if any("failed" in row for row in report["rows"]) else 0


FRESH = {"agents": 24_000, "species": 1, "seed": 0, "boundary": "torus", "sensing": "nearest", "deposits": "count"}
FRESH |= {"spawn": "uniform", "spawn_jitter": 0.0}
"""Defaults of a new colony; options are None where they are not given, since a resumed colony has its own."""


def parser() -> ArgumentParser:
    from pinnfuse.simulation.physarum.palettes import PALETTES, QUALITATIVE
    from pinnfuse.simulation.physarum.spawn import MODES

    usage = "pinnfuse physarum --out FILES [options]"
    parser = PlainParser(
        usage=usage, description="Agents that follow and feed a field: run it, and write pictures of it."
    )
    files = parser.add_argument_group("files")
    files.add_argument("--out", type=str, required=True, metavar="FILES", help="comma-separated: .gif .apng .mp4 .png")
    files.add_argument("--image", type=str, metavar="FILE", help="start of the field; agents too with --spawn image")
    files.add_argument("--strength", type=float, metavar="X", help="field where the image is white (default: 1)")
    files.add_argument("--save", type=str, metavar="FILE", help="for the last state")
    files.add_argument("--save_every", type=int, default=0, metavar="N", help="steps between states saved on the way")
    files.add_argument("--resume", type=str, metavar="FILE", help="state to go on from, instead of a new colony")
    files.add_argument("--live", action="store_true", help="frames into Weights & Biases while it runs")

    pictures = parser.add_argument_group("pictures")
    pictures.add_argument("--every", type=int, default=10, metavar="N", help="steps between frames")
    pictures.add_argument("--fps", type=float, default=20.0, metavar="X", help="frames per second")
    pictures.add_argument("--size", type=int, default=800, metavar="N", help="longest side, in pixels")
    palettes = f"in turn: {', '.join(PALETTES)}; the last {len(QUALITATIVE)} in steps"
    pictures.add_argument("--palette", type=str, default="slime", metavar="NAMES", help=palettes)
    pictures.add_argument("--cycle", type=int, default=0, metavar="N", help="places of 256 a palette turns each frame")

    run = parser.add_argument_group("run")
    run.add_argument("--steps", type=int, default=1000, metavar="N", help="how many")
    run.add_argument("--device", type=str, default="auto", help="auto, cpu, cuda or cuda:1")
    run.add_argument("--backend", type=str, default="auto", help="auto, torch or triton")
    run.add_argument("--devices", type=int, default=1, metavar="N", help="cards (processes of a CPU) to split it over")
    run.add_argument("--window", type=int, default=6, metavar="N", help="steps between exchanges of a split run")

    colony = parser.add_argument_group("a new colony")

    def fresh(name: str, kind: type, text: str, metavar: str = "N") -> None:
        text += f" (default: {FRESH[name]})"
        colony.add_argument(f"--{name}", type=kind, metavar=metavar, help=text)

    colony.add_argument(
        "--shape", type=str, metavar="HxW", help="height and width in cells (default: 400x400, or the image's)"
    )
    fresh("agents", int, "how many")
    fresh("species", int, "how many; each follows itself and avoids the others")
    fresh("seed", int, "of all random numbers")
    fresh("boundary", str, "torus or walls", "NAME")
    fresh("sensing", str, "nearest or bilinear", "NAME")
    fresh("deposits", str, "count, two-stage or float", "NAME")
    fresh("spawn", str, f"one of {', '.join(MODES)}", "NAME")
    fresh("spawn_jitter", float, "cells", "X")

    numbers = parser.add_argument_group("parameters, of a new colony or changed in a resumed one")
    for name, text in _parameters().items():
        numbers.add_argument(f"--{name}", type=float, metavar="X", help=text)
    return parser


def _parameters() -> dict[str, str]:
    """The numbers among `Parameters`: what they are, with their defaults."""
    from dataclasses import fields

    from pinnfuse.simulation.physarum import Parameters

    meanings = {
        "sensor_distance": "cells from an agent to its sensors",
        "sensor_angle": "degrees between the outer sensors and the heading",
        "turn_angle": "degrees turned at once",
        "speed": "cells per step",
        "jitter": "degrees by which a heading changes at random at most, every step",
        "deposit": "left by each agent, every step",
        "decay": "share of the field lost in a step, 0..1",
        "diffusion": "share of the 3 x 3 mean in the field after a step, 0..1",
        "food": "times the food map of a resumed colony, added every step",
    }
    defaults = {f.name: f.default for f in fields(Parameters)}
    return {name: f"{text} (default: {defaults[name]:g})" for name, text in meanings.items()}


def run(options: Namespace, device: Any, console: Console) -> int:
    from pinnfuse.files import check_writable
    from pinnfuse.simulation.physarum import split

    if options.save_every < 0:
        raise ValueError(f"--save_every: expected 0 or more steps; got {options.save_every}.")
    if options.save_every and not options.save:
        raise ValueError("--save_every: needs a file; add --save.")
    if options.devices < 1:
        raise ValueError(f"--devices: expected at least 1; got {options.devices}.")
    if not names(options.out):
        raise ValueError("--out: expected files, e.g. slime.gif or a.gif,a.png; got none.")
    if options.save:
        check_writable(options.save)
    if split.under_torchrun():
        _part(split.join(device.type), options)
    elif options.devices > 1:
        _check_bands(options)
        split.spawn(_part, options.devices, options, device=device.type)
    else:
        _film(options, _colony(options, device), console)
    return 0


def _check_bands(options: Namespace) -> None:
    """Bands that are too thin are known before processes start, where the shape is."""
    import torch

    from pinnfuse.simulation.physarum.parameters import Parameters, changed, tables
    from pinnfuse.simulation.physarum.split.bands import halo_for, reach

    if options.resume or (options.image and not options.shape):
        return
    shape = height_and_width(options.shape or "400x400")
    integers, _ = tables(changed(Parameters(), _numbers(options)), torch.eye(1), shape)
    halo_for(*reach(integers, options.sensing == "bilinear"), options.window, shape[0], options.devices)


def _numbers(options: Namespace) -> dict[str, float]:
    """Parameters that were given."""
    return {name: getattr(options, name) for name in _parameters() if getattr(options, name) is not None}


def _part(device: Any, options: Namespace) -> None:
    """One process of several; the first one writes."""
    import torch.distributed as dist

    from pinnfuse.simulation.physarum.split import SplitPhysarum

    first = dist.get_rank() == 0
    if not first:
        options.out, options.live = "", False
    sim = SplitPhysarum(_colony(options, device), window=options.window)
    _film(options, sim, Console(quiet=not first))


def _film(options: Namespace, sim: Any, console: Console) -> None:
    from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

    from pinnfuse.simulation.physarum.movie import film

    live = _Live(options) if options.live else None
    saved = 0

    def watch(done: int, frame: Any) -> None:
        nonlocal saved
        progress.update(task, completed=done)
        if live:
            live.show(sim.steps_done, frame)
        if options.save_every and done - saved >= options.save_every:
            sim.save(options.save)
            saved = done

    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeRemainingColumn())
    try:
        with Progress(*columns, console=console, transient=True, disable=not console.is_terminal) as progress:
            task = progress.add_task("steps", total=options.steps)
            written = film(
                sim,
                options.steps,
                names(options.out),
                every=options.every,
                palettes=names(options.palette),
                cycle=options.cycle,
                fps=options.fps,
                size=options.size,
                watch=watch,
            )
    except KeyboardInterrupt:
        kept = f"; {options.save} is the state after {saved} steps" if saved else ""
        console.print(f"interrupted: no picture was written{kept}", soft_wrap=True, highlight=False)
        raise
    finally:
        if live:
            live.finish()
    if options.save:
        sim.save(options.save)
        written = [*written, options.save]
    console.print(f"wrote {', '.join(map(str, written))}", soft_wrap=True, highlight=False)


def _colony(options: Namespace, device: Any) -> Any:
    import torch

    from pinnfuse.simulation import Physarum

    numbers = _numbers(options)
    if options.resume:
        sim = Physarum.load(options.resume, device, options.backend)
        _same_colony(options, sim.settings)
        if options.food is not None and sim.colony.food is None:
            raise ValueError("--food: the resumed colony has no food map. Leave it out.")
        sim.set(**numbers)
        return sim
    if options.food is not None:
        raise ValueError("--food: a new colony has no food map here. Use pinnfuse.simulation.Physarum(food=...).")
    if options.strength is not None and not options.image:
        raise ValueError("--strength: is that of an image; add --image.")
    shape = None if options.shape is None else height_and_width(options.shape)
    given = FRESH | {name: getattr(options, name) for name in FRESH if getattr(options, name) is not None}
    made: dict[str, Any] = given | numbers | {"device": device, "backend": options.backend}
    species = given["species"]
    if isinstance(species, int) and 1 < species <= 64:
        made["attraction"] = 2 * torch.eye(species) - 1
    if options.image:
        return Physarum.from_image(options.image, 1.0 if options.strength is None else options.strength, shape, **made)
    return Physarum(shape or (400, 400), **made)


def _same_colony(options: Namespace, settings: dict[str, Any]) -> None:
    """A resumed colony has its settings: refuse options that would change them, rather than ignore them."""
    given: dict[str, Any] = {name: getattr(options, name) for name in (*FRESH, "image", "strength")}
    given["shape"] = None if options.shape is None else height_and_width(options.shape)
    for name, value in given.items():
        if value is not None and (name not in settings or settings[name] != value):
            has = f"has {settings[name]}" if name in settings else "has its start behind it"
            raise ValueError(f"--{name}: a resumed colony {has}; got {value}. Leave out --{name} or --resume.")


class _Live:
    """Frames of a running simulation in Weights & Biases, from the first one on; offline without an account."""

    def __init__(self, options: Namespace):
        self.options = options
        self.run: Any = None

    def show(self, step: int, frame: Any) -> None:
        import wandb

        self.run = self.run or self._start()
        self.run.log({"frame": wandb.Image(frame.convert("RGB"))}, step=step)

    def finish(self) -> None:
        if self.run:
            self.run.finish()

    def _start(self) -> Any:
        from pathlib import Path

        from pinnfuse.tracking import start_run

        folder = Path(names(self.options.out)[0]).resolve().parent
        folder.mkdir(parents=True, exist_ok=True)
        return start_run("pinnfuse-physarum", folder, self.options.as_dict())
