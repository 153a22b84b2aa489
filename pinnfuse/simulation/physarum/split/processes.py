"""Start a function in several processes of this machine that know each other; end all when one dies."""

from __future__ import annotations

import datetime
import os
import time
from collections.abc import Callable
from typing import Any

import torch
import torch.distributed as dist
import torch.multiprocessing as mp

from pinnfuse.errors import ProcessDied

TIMEOUT = 60.0
"""Seconds that a process waits for its neighbours before it ends with an error."""
LINGER = 10.0
"""Seconds that a process goes on after an error that may come from a lost neighbour, so that `spawn` hears of that one
first, and stops this one."""


def under_torchrun() -> bool:
    """Whether this process is one of several that torchrun (or a scheduler like it) started."""
    return int(os.environ.get("WORLD_SIZE", 1)) > 1 and "RANK" in os.environ


def join(device: str, timeout: float = TIMEOUT, **group: Any) -> torch.device:
    """Join `group` (store, rank, world_size), or the one that the environment describes; "cuda" takes one card per
    process of this machine."""
    limit = datetime.timedelta(seconds=timeout)
    if device != "cuda":
        dist.init_process_group("gloo", timeout=limit, **group)
        return torch.device("cpu")
    own = torch.device("cuda", int(os.environ.get("LOCAL_RANK", 0)))
    if own.index >= torch.cuda.device_count():
        raise ValueError(
            f"process {os.environ.get('RANK')} needs card {own.index}, and torch finds {torch.cuda.device_count()}. "
            "Start as many processes as there are cards, or use --device cpu."
        )
    torch.cuda.set_device(own)
    dist.init_process_group("nccl", timeout=limit, device_id=own, **group)
    return own


def spawn(worker: Callable[..., None], ranks: int, *args: Any, device: str = "cpu", timeout: float = TIMEOUT) -> None:
    """`worker(device, *args)` in `ranks` new processes that form a group; returns when all have ended.

    Raises:
        ProcessDied: one ended with an error, whose last line the message gives, or was killed; the others are stopped.
    """
    store = dist.TCPStore("127.0.0.1", 0, is_master=True, wait_for_workers=False)  # holds its port from here on
    rest = "the others were stopped"
    try:
        mp.spawn(_enter, (worker, ranks, store.port, device, timeout, args), nprocs=ranks)
    except mp.ProcessRaisedException as error:
        reason = next((line for line in reversed(str(error).splitlines()) if line.strip()), "no message")
        raise ProcessDied(f"process {error.error_index} of {ranks} ended: {reason}; {rest}.") from error
    except mp.ProcessExitedException as error:
        how = f"by signal {error.signal_name}" if error.signal_name else f"with status {error.exit_code}"
        raise ProcessDied(f"process {error.error_index} of {ranks} ended {how}; {rest}.") from error


def _enter(rank: int, worker: Any, ranks: int, port: int, device: str, timeout: float, args: tuple[Any, ...]) -> None:
    os.environ["LOCAL_RANK"] = str(rank)
    try:
        store = dist.TCPStore("127.0.0.1", port, is_master=False)
        own = join(device, timeout, store=store, rank=rank, world_size=ranks)
        try:
            worker(own, *args)
        finally:
            dist.destroy_process_group()
    except RuntimeError:
        time.sleep(LINGER)
        raise
