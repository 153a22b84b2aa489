"""Chunks of points on several cores of a CPU: each thread takes whole chunks, and shares no single operation.

Threads that share every operation meet a thousand times in a step, and each time all wait for the last one; threads
that take chunks meet once. Torch lets go of Python's lock inside its operations, so they overlap.
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import suppress
from functools import lru_cache
from typing import TypeVar

import torch
from torch.overrides import _get_current_function_mode_stack
from torch.utils._python_dispatch import _get_current_dispatch_mode_stack

Share = TypeVar("Share")
Result = TypeVar("Result")

MOST_LANES = 8
"""Calls from Python take turns, a tenth of the time of a chunk. Further threads share the operations of a lane."""


def watched() -> bool:
    """Whether something looks at the operations of the calling thread (a profiler, a dispatch mode).

    It would miss those of other threads, and memory that torch does not allocate.
    """
    modes = _get_current_dispatch_mode_stack() or _get_current_function_mode_stack()
    return bool(modes) or torch.autograd._profiler_enabled()


def run(task: Callable[[Share], Result], shares: Sequence[Share]) -> list[Result]:
    """The task for each share, without a graph: each on a thread of its own with as many of torch's threads, or one
    after the other where somebody is watching or where Python starts no more threads."""
    if len(shares) == 1 or watched():
        return [task(share) for share in shares]
    inference = torch.is_inference_mode_enabled()

    def quietly(share: Share) -> Result:
        with torch.inference_mode(inference), torch.no_grad():
            return task(share)

    futures: list[Future[Result]] = []
    try:
        with suppress(RuntimeError):  # Python is ending, or the system has no more threads
            pool = _pool(len(shares), max(torch.get_num_threads() // len(shares), 1))
            for share in shares:
                futures.append(pool.submit(quietly, share))
        rest = [quietly(share) for share in shares[len(futures) :]]
        return [future.result() for future in futures] + rest
    finally:
        wait(futures)  # also after an error or Ctrl-C: their memory is lent to others next


@lru_cache(maxsize=8)
def _pool(lanes: int, threads: int) -> ThreadPoolExecutor:
    """Threads whose operations use `threads` cores each. Torch sets that for the calling thread and for new ones."""
    before = torch.get_num_threads()
    everyone = threading.Barrier(lanes)

    def start() -> None:
        torch.get_num_threads()  # a thread's first operation would set the default again
        torch.set_num_threads(threads)
        everyone.wait()

    pool = ThreadPoolExecutor(lanes, "pinnfuse")
    try:
        list(pool.map(lambda _: start(), range(lanes)))
    finally:
        everyone.abort()  # where one could not start, the others wait for nobody
        torch.set_num_threads(before)
    return pool


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_pool.cache_clear)  # threads do not survive a fork
