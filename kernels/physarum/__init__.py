"""Physarum's stages in Triton, with the interface of `simulation/physarum/stages.py`; the agents' stages in one launch.

Floating-point contraction is off: every product and sum rounds once, as in torch, so both give the same bits.
"""

from __future__ import annotations

import functools
from contextlib import nullcontext
from typing import Any

import torch
import triton
from torch import Tensor

from pinnfuse.kernels.launching import launch
from pinnfuse.kernels.physarum.agents import agent_sense_and_update_kernel, pheromone_deposit_kernel
from pinnfuse.kernels.physarum.exchange import pack_kernel, unpack_kernel
from pinnfuse.kernels.physarum.field import diffuse_and_decay_kernel

MODES = {"count": 1, "two-stage": 2, "float": 3}
OPTIONS: dict[str, Any] = {"num_warps": 4, "enable_fp_fusion": False}


def obstacle(device: torch.device) -> str:
    """Why the kernels cannot run on a device, "" if they can."""
    if device.type != "cuda" and not triton.knobs.runtime.interpret:
        return f"Triton was imported to compile, and the simulation is on {device}"
    return ""


def agents(c: Any, deposits: bool = True) -> None:
    """Sense, steer and move, and deposit unless told not to, in one launch."""
    _agents(c, c.x, sense=True, move=True, deposit=MODES[c.deposits] if deposits else 0)


def sense(c: Any) -> Tensor:
    """What each agent reads to its left, ahead and to its right, [3, A]."""
    sensed = torch.empty((3, len(c.x)), dtype=torch.float32, device=c.x.device)
    _agents(c, sensed, sense=True, move=False, deposit=0)
    return sensed


def steer_and_move(c: Any, sensed: Tensor) -> None:
    """New headings and positions from what was sensed."""
    _agents(c, sensed.contiguous(), sense=False, move=True, deposit=0)


def deposit(c: Any) -> None:
    """Each agent's deposit where it stands."""
    block = _block(len(c.x), 1024 if c.deposits == "two-stage" else 128)
    constants = {"SPECIES": c.species, "DEPOSIT": MODES[c.deposits], "WIDE": _wide(c), "SLOTS": c.slots, "BLOCK": block}
    args = (c.trails[c.now], c.x, c.y, c.identity, c.kind, c.reals, len(c.x), *c.shape, c.first, c.rows)
    _launch(pheromone_deposit_kernel, (triton.cdiv(len(c.x), block),), args, constants)


def diffuse_and_decay(c: Any) -> None:
    """The field after a step; clears the other trail and advances the clock."""
    rows, width = c.rows, c.shape[1]
    block, lines = field_tile(rows, width)
    constants = {"SPECIES": c.species, "TORUS": c.torus, "COUNT": c.deposits != "float", "FOOD": c.food is not None}
    constants |= {"OBSTACLES": c.obstacles is not None, "ROWS": lines, "BLOCK": block}
    constants["ALIGNED"] = width % 16 == 0
    new = c.fields[1 - c.now]
    none = c.clock  # stands in for a map that is not there
    args = (c.fields[c.now], c.trails[c.now], new, c.trails[1 - c.now], _or(c.food, none), _or(c.obstacles, none))
    grid = (triton.cdiv(width, block), triton.cdiv(rows, lines), c.species)
    _launch(diffuse_and_decay_kernel, grid, (*args, c.reals, c.clock, rows, width), constants)


def field_tile(rows: int, width: int) -> tuple[int, int]:
    """Columns and rows of a program of the field kernel; few rows where there are few cells, to keep all cores busy."""
    block = min(256, max(32, triton.next_power_of_2(width)))
    return (block, 4) if rows * width >= 1 << 21 else (block, 2)


def pack(c: Any, band: Any, drift: int, counters: Tensor, free: Tensor, messages: list[Any]) -> None:
    """Free the slots of agents outside of a band, and copy those near its edges; see `physarum/split/exchange.py`."""
    block = 1024 if len(c.x) >= 1 << 16 else 128
    upper, lower = messages
    args: tuple[Any, ...] = (counters, c.x, c.y, c.heading, c.identity, c.kind, free, upper.records, lower.records)
    args += (len(c.x), band.beyond(0), band.size, band.beyond(0), band.beyond(1), drift, upper.room, lower.room)
    _launch(pack_kernel, (triton.cdiv(len(c.x), block),), args, {"BLOCK": block}, overlap=False)


def unpack(c: Any, message: Any, before: Tensor, counters: Tensor, free: Tensor, base: int) -> None:
    """Put the agents of a message, whose strip begins at row `base`, into slots."""
    args: tuple[Any, ...] = (message.records, message.header, before, counters, free)
    args += (c.x, c.y, c.heading, c.identity, c.kind, message.room, base)
    _launch(unpack_kernel, (max(1, triton.cdiv(message.room, 256)),), args, {"BLOCK": 256}, overlap=False)


def _agents(c: Any, sensed: Tensor, *, sense: bool, move: bool, deposit: int) -> None:
    count = len(c.x)
    block = _block(count, 512 if deposit == MODES["two-stage"] else 128)
    constants = {"SPECIES": c.species, "TORUS": c.torus, "BILINEAR": c.bilinear, "OBSTACLES": c.obstacles is not None}
    constants |= {"SENSE": sense, "MOVE": move, "DEPOSIT": deposit, "WIDE": _wide(c), "BLOCK": block}
    constants["SLOTS"] = c.slots
    args = (c.fields[c.now], c.x, c.y, c.heading, c.identity, c.kind, c.integers, c.reals, c.clock)
    args += (_or(c.obstacles, c.clock), sensed, c.trails[c.now], count, *c.shape, c.first, c.rows)
    _launch(agent_sense_and_update_kernel, (triton.cdiv(count, block),), args, constants)


def _block(count: int, most: int) -> int:
    """Agents of a program; more where they add up deposits first. Without that, 256 and 512 took 1 to 3 % longer."""
    return most if count >= 1 << 16 else 128


def _wide(c: Any) -> bool:
    """Whether offsets into the trails need more than 32 bits."""
    return c.trails[0].numel() >= 1 << 31


def _launch(
    kernel: Any, grid: tuple[int, ...], args: tuple[Any, ...], constants: dict[str, Any], overlap: bool = True
) -> None:
    device = args[0].device
    overlap = overlap and _overlaps(device)
    options = OPTIONS | ({"launch_pdl": True} if overlap else {})
    here = device.type == "cpu" or device.index == torch.cuda.current_device()
    with nullcontext() if here else torch.cuda.device(device):
        launch(kernel, grid, args, constants | {"OVERLAP": overlap}, **options)


@functools.cache
def _overlaps(device: torch.device) -> bool:
    """Whether a kernel may be launched while the one before it ends, which hides some of the launch."""
    return device.type == "cuda" and torch.cuda.get_device_capability(device) >= (9, 0)


def _or(tensor: Tensor | None, stand_in: Tensor) -> Tensor:
    return stand_in if tensor is None else tensor


__all__ = ["agents", "deposit", "diffuse_and_decay", "obstacle", "pack", "sense", "steer_and_move", "unpack"]
