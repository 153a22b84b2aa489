"""Processes of our own, of which any may die: how they start, how they end, and what is left of them."""

from __future__ import annotations

import ctypes
import multiprocessing
import os
import signal
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from types import ModuleType
from typing import Any


class Worker:
    """A process with a pipe to it. It dies with this one, and what it started itself (compilers) with it.

    Args:
        serve: is called there with its end of the pipe, and `arguments`; the end of the pipe is its sign to go.
        arguments: they are pickled.
    """

    def __init__(self, serve: Callable[..., None], *arguments: Any):
        context = multiprocessing.get_context("spawn")
        self.connection, theirs = context.Pipe()
        self.process = context.Process(target=_begin, args=(os.getpid(), serve, theirs, *arguments), daemon=True)
        with _deaf_to_interrupts(), _without_main():
            self.process.start()
        theirs.close()  # so that the end of the process is the end of the pipe

    def send(self, message: Any) -> None:
        """Where it has died, the end of its pipe will say so."""
        with suppress(OSError):
            self.connection.send(message)

    def died(self) -> str:
        """After the end of the pipe: how the process ended."""
        self.process.join()
        status = self.process.exitcode
        self.end()
        if status is not None and status < 0:
            return f"its process was ended by signal {signal.Signals(-status).name}: report this line"
        return f"its process ended with status {status}: report this line"

    def end(self) -> None:
        """At once, whatever it does."""
        self.kill()
        self.process.join()
        self.connection.close()

    def kill(self) -> None:
        """As `end`, which still has to be called, but without waiting for it."""
        if hasattr(os, "killpg") and self.process.pid:
            with suppress(ProcessLookupError, PermissionError):  # it has not begun yet, or nothing is left of it
                os.killpg(self.process.pid, signal.SIGKILL)
        self.process.kill()


def _begin(parent: int, serve: Callable[..., None], connection: Any, *arguments: Any) -> None:
    if hasattr(os, "setpgid"):
        os.setpgid(0, 0)
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG: whoever kills the parent alone ends this one
        if os.getppid() != parent:
            return
    serve(connection, *arguments)


@contextmanager
def _without_main() -> Iterator[None]:
    """A process that is started in here does not run the program of this one again, which may be no file (stdin)."""
    main = sys.modules["__main__"]
    sys.modules["__main__"] = ModuleType("__main__")
    try:
        yield
    finally:
        sys.modules["__main__"] = main


@contextmanager
def _deaf_to_interrupts() -> Iterator[None]:
    """A process that is started in here leaves Ctrl-C to this one, which ends it."""
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)
