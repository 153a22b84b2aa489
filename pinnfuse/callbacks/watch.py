"""A process that dies ends the run with a message, instead of leaving the others in a collective for ever.

Under gloo the others notice at once: the connection closes. Under NCCL they would wait for its timeout, 10 minutes,
which cannot be short, since a process may do things of its own (rank 0 times the baseline, writes, draws). So every
process says that it lives every few seconds, on a thread of its own and through a store of its own: rank 0 looks after
all others, the others after rank 0. A process that lives but hangs is left to the timeout.
"""

from __future__ import annotations

import logging
import os
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta
from typing import Any

from lightning.pytorch import Callback, LightningModule, Trainer
from torch.distributed import Store, TCPStore

_LAUNCHER = "lightning.fabric.strategies.launchers.subprocess_script"
_DONE = "done"


class Heartbeat(threading.Thread):
    """Says that this process lives, and calls `lost` with a sentence when another no longer does.

    Args:
        store: shared by all.
        rank, size: of this process and of all.
        lost: called at most once, on this thread.
        every: seconds between two signs of life.
        patience: seconds without one that mean death.
    """

    def __init__(
        self,
        store: Store,
        rank: int,
        size: int,
        lost: Callable[[str], None],
        every: float = 4.0,
        patience: float = 40.0,
    ):
        super().__init__(daemon=True, name="heartbeat")
        self.store, self.rank, self.size, self.lost, self.every, self.patience = (
            store,
            rank,
            size,
            lost,
            every,
            patience,
        )
        self._stop_now = threading.Event()
        self._seen: dict[int, tuple[str, float]] = {}
        store.set(f"beat/{rank}", "0")

    def run(self) -> None:
        beats = 0
        while not self._stop_now.wait(self.every):
            beats += 1
            try:
                self.store.set(f"beat/{self.rank}", str(beats))
                message = self._missing()
            except RuntimeError:  # the store is gone, and with it the process that holds it
                message = self._words(0)
            if message and not self._stop_now.is_set():
                self.lost(message)
                return

    def stop(self) -> None:
        """This process is done in good order; the others do not miss it."""
        if not self._stop_now.is_set():
            self._stop_now.set()
            with suppress(RuntimeError):  # rank 0 may have gone
                self.store.set(f"beat/{self.rank}", _DONE)

    def _missing(self) -> str:
        if self.rank and self.store.check(["lost"]):
            return self.store.get("lost").decode()
        for other in range(1, self.size) if self.rank == 0 else (0,):
            beat, now = self.store.get(f"beat/{other}").decode(), time.monotonic()
            if beat == _DONE or self._seen.get(other, ("", now))[0] != beat:
                self._seen[other] = beat, now
            elif now - self._seen[other][1] > self.patience:
                message = self._words(other)
                self.store.set("lost", message)
                time.sleep(self.every if self.rank == 0 else 0)  # until the others have read it
                return message
        return ""

    def _words(self, other: int) -> str:
        return f"process {other} of {self.size} (ranks from 0) is gone or has not answered for {self.patience:.0f} s"


class PeerWatch(Callback):
    """Ends this process with a message when another process of the run has died.

    Args:
        remedy: the end of the message, e.g. how to resume.
        every, patience: see `Heartbeat`.
    """

    def __init__(self, remedy: str = "", every: float = 4.0, patience: float = 40.0):
        self.remedy, self.every, self.patience = remedy, every, patience
        self._heartbeat: Heartbeat | None = None

    def setup(self, trainer: Trainer, module: LightningModule, stage: str) -> None:
        if trainer.world_size > 1 and trainer.is_global_zero:
            logger = logging.getLogger(
                _LAUNCHER
            )  # a watch over the processes that it started, which kills without a word
            logger.handlers, logger.propagate = [_Kills(self.remedy)], False
            logger.setLevel(logging.INFO)

    def on_train_start(self, trainer: Trainer, module: LightningModule) -> None:
        if trainer.world_size == 1:
            return
        host = os.environ.get("MASTER_ADDR", "127.0.0.1")
        wait = timedelta(seconds=self.patience)
        rank, size = trainer.global_rank, trainer.world_size
        store = TCPStore(host, 0, is_master=True, wait_for_workers=False, timeout=wait) if rank == 0 else None
        port = trainer.strategy.broadcast(store.port if store else 0)
        store = store or TCPStore(host, port, is_master=False, wait_for_workers=False, timeout=wait)
        self._heartbeat = Heartbeat(store, rank, size, self._lost, self.every, self.patience)
        trainer.strategy.barrier()  # all have given their first sign
        self._heartbeat.start()

    def on_train_end(self, trainer: Trainer, module: LightningModule) -> None:
        if self._heartbeat is not None:
            self._heartbeat.stop()

    def on_exception(self, trainer: Trainer, module: LightningModule, exception: BaseException) -> None:
        self.on_train_end(trainer, module)

    def _lost(self, message: str) -> None:
        say_lost(message, self.remedy)
        os._exit(1)  # the main thread is in a collective that will not end


class _Kills(logging.Handler):
    """Passes on what Lightning says when a process that it started has ended with an error."""

    def __init__(self, remedy: str):
        super().__init__()
        self.remedy = remedy

    def emit(self, record: Any) -> None:
        text = record.getMessage()
        if "terminated with code" in text:
            say_lost(text.partition(" Forcefully")[0].rstrip("."), self.remedy)


def say_lost(what: str, remedy: str) -> None:
    """One line on the error stream, whatever state the process is in."""
    sys.stderr.write(f"error: the run lost a process: {what}. {remedy[:1].upper()}{remedy[1:]}".rstrip() + "\n")
    sys.stderr.flush()
