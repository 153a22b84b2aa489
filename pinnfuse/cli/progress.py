"""How far a long command is: one line that changes on a terminal, a line every ten seconds in a log."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from textwrap import shorten

from rich.console import Console
from rich.markup import escape

PERIOD = 10.0


@contextmanager
def progress(title: str, console: Console) -> Iterator[Callable[[str], None]]:
    """What is given to take texts such as "3 of 40: burgers"."""
    if console.is_terminal:
        with console.status(title) as status:
            yield lambda text: status.update(escape(shorten(f"{title}: {text}", console.width - 4, placeholder="...")))
        return
    last = start = time.monotonic()

    def line(text: str) -> None:
        nonlocal last
        now = time.monotonic()
        if now - last >= PERIOD:
            last = now
            console.print(f"[{now - start:4.0f} s] {title}: {text}", markup=False, highlight=False, soft_wrap=True)

    yield line
