"""How many threads a training step on a CPU should use.

Threads that share a small step wait for each other at every operation, and where another program has one of the cores,
all wait for the one that was interrupted. How much a further thread helps or hurts depends on the network, the points,
the machine and what else runs there, so it is measured.
"""

from __future__ import annotations

import os
import statistics
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import torch

from pinnfuse.callbacks.speedup import milliseconds

_GAIN = 0.9  # twice the threads must save a tenth of the time
_STEPS = 5


def wanted(threads: int | None) -> int | None:
    """The number that the user asked for, by an option or by OMP_NUM_THREADS; None if it is ours to choose.

    Raises:
        ValueError: a number below 1.
    """
    if threads is not None and threads < 1:
        raise ValueError(f"`threads` must be at least 1, or left out to be chosen by a short trial; got {threads}")
    return torch.get_num_threads() if threads is None and os.environ.get("OMP_NUM_THREADS") else threads


def by_trial(step: Callable[[], None], most: int) -> int:
    """Double the number of threads, up to `most`, while that makes the step faster. Leaves torch with that number."""

    def cost(threads: int) -> float:
        torch.set_num_threads(threads)
        step()
        return statistics.median(milliseconds(step, torch.device("cpu")) for _ in range(_STEPS))

    threads, time = 1, cost(1)
    while threads < most:
        more = min(2 * threads, most)
        if (faster := cost(more)) > _GAIN * time:
            break
        threads, time = more, faster
    torch.set_num_threads(threads)
    return threads


@contextmanager
def restored() -> Iterator[None]:
    """Give torch back its number of threads at the end."""
    before = torch.get_num_threads()
    try:
        yield
    finally:
        torch.set_num_threads(before)
