"""Fields as pictures: PNG, GIF, animated PNG, MP4; each file is whole or not there."""

from __future__ import annotations

import contextlib
import importlib.util
import shutil
import subprocess
from collections import deque
from collections.abc import Iterable, Iterator
from itertools import chain
from pathlib import Path
from typing import IO, TYPE_CHECKING

import numpy as np
import torch
from PIL import Image
from torch import Tensor

from pinnfuse.errors import nearest
from pinnfuse.files import whole_file
from pinnfuse.simulation.physarum.palettes import SPECIES, palette, rgb

if TYPE_CHECKING:
    from pinnfuse.simulation.physarum.simulation import Physarum
    from pinnfuse.simulation.physarum.split import SplitPhysarum

SUFFIXES = (".png", ".gif", ".apng", ".mp4")
SLOWEST, FASTEST = 0.01, 1000.0
"""Frames per second; GIF counts hundredths of a second in 16 bits."""


def exposure(sim: Physarum | SplitPhysarum) -> float:
    """A brightness that suits the run from its start: four times a species' mean field of the steady state,
    keep / decay x deposits per cell (without decay: what 100 steps leave)."""
    deposit, decay = float(np.mean(sim.parameters.deposit)), float(np.mean(sim.parameters.decay))
    height, width = sim.settings["shape"]
    per_cell = sim.settings["agents"] / sim.settings["species"] * deposit / (height * width)
    return 4 * per_cell * ((1 - decay) / decay if decay > 0 else 100.0) or 1.0


def picture(
    field: Tensor, brightness: float, name: str = "slime", *, shift: int = 0, size: int | None = None
) -> Image.Image:
    """A field [species, H, W] as an image: 1 - exp(-field / brightness) through a palette; several species add up, each
    in its colour.

    Args:
        field: >= 0.
        brightness: the value shown at 63 % of the palette.
        name: of the palette, for one species.
        shift: places by which the palette is rotated.
        size: longest side; larger fields are averaged down, smaller ones keep their cells.

    Raises:
        ValueError: an unknown palette, or a brightness that is not positive.
    """
    if not brightness > 0:
        raise ValueError(f"picture: `brightness` must be > 0; got {brightness!r}. Use exposure(sim).")
    colours = palette(name, shift)
    tone = 1 - torch.exp(-_shrunk(field.detach().float(), size) / brightness)
    levels = (tone.clamp(0, 1) * 255).round().to(torch.uint8).cpu().numpy()
    if len(levels) == 1:
        image = Image.frombytes("P", levels[0].shape[::-1], levels[0].tobytes())
        image.putpalette(colours.tobytes())
        return image
    tints = np.array([rgb(SPECIES[k % len(SPECIES)]) for k in range(len(levels))], dtype=float) / 255
    mixed = np.einsum("shw,sc->hwc", levels.astype(float), tints).clip(0, 255)
    return Image.fromarray(mixed.round().astype(np.uint8))


def write(path: str | Path, frames: Iterable[Image.Image], fps: float = 20.0) -> Path:
    """Frames as the kind of file that the suffix names; PNG takes the last one.

    Raises:
        ValueError: another suffix, no frame, a folder that cannot be written, or MP4 without ffmpeg.
    """
    path = check(path)
    check_fps(fps)
    with whole_file(path) as temporary:
        write_open(temporary, frames, fps)
    return path


def check(path: str | Path) -> Path:
    """The path, if a file of its suffix can be made here."""
    path = Path(path)
    if path.suffix.lower() not in SUFFIXES:
        raise ValueError(f"pictures: {path} must end in one of {', '.join(SUFFIXES)}. {nearest(path.suffix, SUFFIXES)}")
    if path.suffix.lower() == ".mp4":
        ffmpeg()
    return path


def check_fps(fps: float) -> None:
    if not SLOWEST <= fps <= FASTEST:
        raise ValueError(f"pictures: `fps` must lie in [{SLOWEST:g}, {FASTEST:g}]; got {fps!r}. Use 20.")


def ffmpeg() -> str:
    """The program that makes MP4."""
    found = shutil.which("ffmpeg")
    if found is None and importlib.util.find_spec("imageio_ffmpeg"):
        with contextlib.suppress(RuntimeError):  # it may come without the program
            found = importlib.import_module("imageio_ffmpeg").get_ffmpeg_exe()
    if found is None:
        raise ValueError(
            "pictures: MP4 needs ffmpeg, which is not here. Install it (apt install ffmpeg, or pip install "
            "imageio-ffmpeg), or write a .gif or .apng."
        )
    return str(found)


def write_open(path: Path, frames: Iterable[Image.Image], fps: float) -> None:
    """`write` to a temporary path that is there already."""
    iterator = iter(frames)
    try:
        first = next(iterator)
    except StopIteration:
        raise ValueError("pictures: there is no frame to write. Run at least one step.") from None
    kind = path.suffix.lower()
    if kind == ".png":
        last = deque(iterator, maxlen=1)
        (last.pop() if last else first).save(path, format="PNG", optimize=True)
    elif kind == ".gif":
        duration = max(2, round(100 / fps)) * 10  # GIF counts hundredths; viewers slow down shorter ones
        first.save(path, format="GIF", save_all=True, append_images=iterator, duration=duration, loop=0, disposal=1)
    elif kind == ".apng":
        images = [image.convert("RGB") for image in iterator]  # Pillow walks through them twice
        options = {"save_all": True, "append_images": images, "duration": 1000 / fps, "loop": 0}
        first.convert("RGB").save(path, format="PNG", **options)
    else:
        _mp4(path, chain([first], iterator), fps)


def _mp4(path: Path, frames: Iterator[Image.Image], fps: float) -> None:
    """Raw frames into ffmpeg; odd sides lose a row, since H.264 halves the colours."""
    first = next(frames).convert("RGB")
    width, height = (n - n % 2 for n in first.size)
    command = [ffmpeg(), "-y", "-loglevel", "error", "-f", "rawvideo", "-pix_fmt", "rgb24", "-s", f"{width}x{height}"]
    command += ["-r", str(fps), "-i", "-", "-pix_fmt", "yuv420p", "-movflags", "+faststart", str(path)]
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stderr=subprocess.PIPE)
    assert process.stdin is not None and process.stderr is not None
    try:
        with contextlib.suppress(BrokenPipeError):
            _feed(process.stdin, chain([first], frames), (width, height))
        message = process.stderr.read().decode(errors="replace").strip()
    except BaseException:  # an interrupted run: it must not write on after its file was removed
        process.kill()
        process.wait()
        raise
    if process.wait() != 0:
        raise ValueError(f"pictures: ffmpeg failed: {message.splitlines()[-1] if message else 'no message'}")


def _feed(pipe: IO[bytes], frames: Iterable[Image.Image], size: tuple[int, int]) -> None:
    with pipe:
        for frame in frames:
            pipe.write(frame.convert("RGB").crop((0, 0, *size)).tobytes())


def _shrunk(field: Tensor, size: int | None) -> Tensor:
    height, width = field.shape[1:]
    if size is None or max(height, width) <= size:
        return field
    scale = size / max(height, width)
    target = (max(1, round(height * scale)), max(1, round(width * scale)))
    return torch.nn.functional.adaptive_avg_pool2d(field[None], target)[0]
