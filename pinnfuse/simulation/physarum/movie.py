"""A run that leaves pictures: the loop behind `pinnfuse physarum`."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

from PIL import Image

from pinnfuse.files import whole_file
from pinnfuse.simulation.physarum.palettes import palette
from pinnfuse.simulation.physarum.pictures import check, check_fps, exposure, picture, write_open

if TYPE_CHECKING:
    from pinnfuse.simulation.physarum.simulation import Physarum
    from pinnfuse.simulation.physarum.split import SplitPhysarum

Watch = Callable[[int, Image.Image], None]
MOST_MEMORY = 4e9
"""Bytes of frames that are held until they can be written."""


def film(
    sim: Physarum | SplitPhysarum,
    steps: int,
    paths: Sequence[str | Path],
    *,
    every: int = 10,
    palettes: Sequence[str] = ("slime",),
    cycle: int = 0,
    fps: float = 20.0,
    size: int = 800,
    watch: Watch | None = None,
) -> list[Path]:
    """Run, and write all frames to each of `paths` when the run is over.

    Args:
        sim: where it stands; it goes on from there.
        steps: >= 1.
        paths: .gif, .apng and .mp4 get every frame, .png the last one. All are opened before the first step. The frames
            of .gif and .apng, and of several films at once, are held in memory until the run is over.
        every: steps between frames.
        palettes: taken in turn, one a frame.
        cycle: places by which the palette turns from frame to frame.
        fps: frames per second.
        size: longest side of a picture.
        watch: called with (steps done, frame) after every frame, e.g. to show progress.

    Raises:
        ValueError: a path, palette or number that does not fit, before the first step.
    """
    if steps < 1 or every < 1 or size < 1:
        raise ValueError(f"film: `steps`, `every` and `size` must be positive; got {steps}, {every}, {size}.")
    check_fps(fps)
    for name in palettes:
        palette(name)
    if not palettes:
        raise ValueError("film: `palettes` must name at least one.")
    targets = [check(path) for path in paths]
    moving = [k for k, path in enumerate(targets) if path.suffix.lower() != ".png"]
    held = len(moving) > 1 or any(targets[k].suffix.lower() != ".mp4" for k in moving)
    count, pixels = -(-steps // every), min(size, max(sim.settings["shape"])) ** 2
    need = count * pixels * (1 if sim.settings["species"] == 1 else 3)
    if held and need > MOST_MEMORY:
        raise ValueError(
            f"film: {count:,} frames would take up to {need / 1e9:.0f} GB of memory. Raise `every`, lower `size`, or "
            "write an .mp4 alone, whose frames are not held."
        )
    brightness = exposure(sim)

    def frames() -> Iterator[Image.Image]:
        done = 0
        while done < steps:
            batch = min(every, steps - done)
            sim.run(batch)
            number = done // every
            done += batch
            name = palettes[number % len(palettes)]
            frame = picture(sim.field, brightness, name, shift=number * cycle, size=size)
            if watch is not None:
                watch(done, frame)
            yield frame

    with ExitStack() as stack:
        temporaries = [stack.enter_context(whole_file(path)) for path in targets]
        last: deque[Image.Image] = deque(maxlen=1)
        made: Iterable[Image.Image] = _remembering(frames(), last)
        made = list(made) if len(moving) > 1 else made
        for k in moving:
            write_open(temporaries[k], made, fps)
        last.extend(made)
        for k in set(range(len(targets))) - set(moving):
            write_open(temporaries[k], last, fps)
    return targets


def _remembering(frames: Iterable[Image.Image], last: deque[Image.Image]) -> Iterator[Image.Image]:
    for frame in frames:
        last.append(frame)
        yield frame
