"""Launch configurations that were measured on this machine, kept on disk so that another process need not measure.

`launches.json`: a key as made by `key` -> fields of `Launch`; `pinnfuse.kernels.measured` says how it is kept.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterable
from dataclasses import asdict, fields, replace
from functools import lru_cache
from typing import Any

import torch
import triton

from pinnfuse.kernels.jets import config
from pinnfuse.kernels.jets.config import Launch
from pinnfuse.kernels.measured import Store, card, unmeasured

log = logging.getLogger("pinnfuse")

TUNING_SECONDS = 45.0
"""No candidate is started later than this after the first."""


@lru_cache(maxsize=128)
def key(width: int, channels: int, precision: str, device: torch.device) -> str:
    """The shape class: hidden width in steps of 32, and the number of channels."""
    step = config.padded_width(width, 32)
    return f"{card(device)}, width {step}, {channels} channels, {precision}"


def _launch(entry: Any) -> Launch | None:
    """An entry as a configuration, if it has the fields of this version with values of their types."""
    default = Launch()
    if not isinstance(entry, dict) or set(entry) != {f.name for f in fields(Launch)}:
        return None
    values: dict[str, Any] = {}
    for name, value in entry.items():
        expected = getattr(default, name)
        if isinstance(expected, tuple):
            if not (isinstance(value, list) and len(value) == 2 and all(type(v) is int and v > 0 for v in value)):
                return None
            values[name] = tuple(value)
        elif expected is None:
            if not (value is None or type(value) is int):
                return None
            values[name] = value
        elif type(value) is not type(expected) or (type(value) is int and value <= 0):
            return None
        else:
            values[name] = value
    return Launch(**values)


_store = Store("launches.json", asdict, _launch)
read, known, write = _store.read, _store.known, _store.write


def tunes(device: torch.device) -> bool:
    """Whether a shape without a choice is measured: on cards that the defaults were not measured on."""
    return unmeasured(device) and not torch.cuda.is_current_stream_capturing()


def candidates(base: Launch, width: int) -> list[Launch]:
    """The default first, then one change at a time: a schedule, smaller tiles, longer steps, more warps."""
    found = [base]
    if base.block < min(width, 64):  # many channels
        found.append(replace(base, scheduled=True))
    if base.block > 32:
        found.append(config.with_gradient(replace(base, block=32, step=32), width))
    if base.rows > 32:
        found.append(replace(base, rows=32))
    found.append(replace(base, step=32 if base.step == 64 else min(64, base.block)))
    found.append(replace(base, forward=(8, base.forward[1]), backward=(8, base.backward[1])))
    found.append(replace(base, forward=(base.forward[0], 3), backward=(base.backward[0], 3)))
    return list(dict.fromkeys(found))


def tune(name: str, options: Iterable[Launch], measure: Callable[[Launch], float]) -> Launch:
    """The fastest option by `measure`, stored under `name`; one that does not compile or fit is passed over."""
    log.warning("pinnfuse measures launch configurations for [%s]: once, under a minute", name)
    start, best = time.perf_counter(), (float("inf"), Launch())
    for option in options:
        if best[0] < float("inf") and time.perf_counter() - start > TUNING_SECONDS:
            break
        try:
            seconds = measure(option)
        except (triton.CompilationError, triton.OutOfResources, torch.cuda.OutOfMemoryError) as problem:
            log.info("passed over %s: %s", option, problem)
            continue
        best = min(best, (seconds, option), key=lambda pair: pair[0])
    if best[0] < float("inf"):
        write(name, best[1])
    return best[1]
