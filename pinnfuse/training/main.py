"""The command behind `train.py`."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence

from rich.console import Console
from rich.markup import escape

from pinnfuse import parallel
from pinnfuse.errors import BackendUnavailable
from pinnfuse.training.cli import changed, parse
from pinnfuse.training.listing import listing
from pinnfuse.training.quiet import first_process, silence


def _lines(console: Console) -> Callable[[str], None]:
    """For a file: a line when something else is being done, none for how far it is (after the colon)."""
    last = ""

    def say(text: str) -> None:
        nonlocal last
        if last != (last := text.partition(":")[0]):
            console.print(last, highlight=False, soft_wrap=True)

    return say


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; returns its exit status: 0, 1 for an error, 130 after Ctrl-C (everything is saved then)."""
    arguments = sys.argv[1:] if arguments is None else list(arguments)
    console = Console(quiet=not first_process())
    if "--list" in arguments:
        console.print(listing())
        return 0
    with console.status("loading PyTorch and Lightning"):
        silence()
        from lightning.pytorch.utilities.exceptions import MisconfigurationException

        from pinnfuse.callbacks.watch import say_lost
        from pinnfuse.models.pinn import NonFiniteLoss
        from pinnfuse.tracking.wandb import errors as wandb_errors
        from pinnfuse.training.folder import resume_with
        from pinnfuse.training.marching import make_run  # Lightning and W&B, which --list does without

    mistakes: tuple[type[Exception], ...] = (
        ValueError,
        BackendUnavailable,
        MisconfigurationException,
        NonFiniteLoss,
        *wandb_errors(),
    )
    run = None
    try:
        with console.status("reading the settings") as status:
            config = parse(arguments)
            others = changed(config)
            run = make_run(config, console)
            say = status.update if console.is_terminal else _lines(console)
            run.prepare(say)
            say("training")
        if others:
            text = f"going on with other settings than before: {'; '.join(others)}"
            console.print(text, soft_wrap=True, markup=False, highlight=False)
        run.fit()
        with console.status("comparing with the reference, drawing figures"):
            summary = run.finish()
    except mistakes as error:
        Console(stderr=True, soft_wrap=True, highlight=False).print("[bold red]error:[/]", escape(str(error)))
        return 1
    except OSError as error:  # a full disk, say
        Console(stderr=True, soft_wrap=True, highlight=False).print(
            "[bold red]error:[/]",
            escape(f"{error}. What was written is whole: make room, then --resume."),
        )
        return 1
    except RuntimeError as error:
        if run is None or not parallel.lost(error):
            raise
        say_lost(str(error).strip().partition("\n")[0], resume_with(run.folder))
        os._exit(1)  # what ends in good order would wait for the others
    except KeyboardInterrupt:  # before the fit, or a second time
        kept = f"; {resume_with(run.folder)}" if run is not None and any(run.folder.rglob("*.ckpt")) else ""
        console.print(f"interrupted{kept}", soft_wrap=True)
        return 130
    console.print(summary.line(run.folder), highlight=False, soft_wrap=True)
    if run.stop.received is None:
        if why := run.ended():
            console.print(f"ended early: {why}", highlight=False)
        return 0
    console.print(f"stopped by {run.stop.received.name}; {resume_with(run.folder)}", soft_wrap=True)
    return 130
