"""A run that leaves pictures: the loop behind `pinnfuse physarum`."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

from PIL import Image

from pinnfuse.simulation.physarum.files import whole
from pinnfuse.simulation.physarum.palettes import palette
from pinnfuse.simulation.physarum.pictures import check, exposure, picture, write_open

if TYPE_CHECKING:
    from pinnfuse.simulation.physarum.simulation import Physarum
    from pinnfuse.simulation.physarum.split import SplitPhysarum

Watch = Callable[[int, Image.Image], None]


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
        paths: .gif, .apng and .mp4 get every frame, .png the last one. All are opened before the first step.
        every: steps between frames.
        palettes: taken in turn, one a frame.
        cycle: places by which the palette turns from frame to frame.
        fps: frames per second.
        size: longest side of a picture.
        watch: called with (steps done, frame) after every frame, e.g. to show progress.

    Raises:
        ValueError: a path, palette or number that does not fit, before the first step.
    """
    if steps < 1 or every < 1 or size < 1 or not fps > 0:
        raise ValueError(
            f"film: `steps`, `every`, `size` and `fps` must be positive; got {steps}, {every}, {size}, {fps}."
        )
    for name in palettes:
        palette(name)
    if not palettes:
        raise ValueError("film: `palettes` must name at least one.")
    targets = [check(path) for path in paths]
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
        temporaries = [stack.enter_context(whole(path)) for path in targets]
        if len(temporaries) == 1:
            write_open(temporaries[0], frames(), fps)
        else:
            kept = list(frames())
            for temporary in temporaries:
                write_open(temporary, kept, fps)
    return targets
