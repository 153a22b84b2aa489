"""Images as starting fields, food and obstacle maps."""

from __future__ import annotations

import warnings
from pathlib import Path
from typing import Any

import numpy as np
import torch
from PIL import Image, ImageOps
from torch import Tensor

from pinnfuse.simulation.physarum import checks
from pinnfuse.simulation.physarum.fixed import LARGEST_SIDE

LARGEST_IMAGE = 1 << 26
"""Pixels of an image that is read: 67 million."""


def read_image(path: str | Path, shape: tuple[int, int] | None = None) -> Tensor:
    """Brightness in [0, 1] as float32 [H, W]; scaled to `shape` if it is given (area average when smaller).

    Photographs are turned upright, what is transparent is dark, and of a film the first picture is read. Images of 8
    and of 16 bits, or of floating-point numbers in [0, 1].

    Raises:
        ValueError: no such file, no image, too large a one, or numbers outside [0, 1]; a shape that is none.
    """
    path = Path(path)
    wanted = None if shape is None else checks.shape(shape)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of what follows in one line, if it matters
            image = Image.open(path)
            size = image.size
            fits = size[0] * size[1] <= LARGEST_IMAGE and (wanted is not None or max(size) <= LARGEST_SIDE)
            with image:
                grey = _brightness(ImageOps.exif_transpose(image)) if fits else np.zeros((1, 1), np.float32)
    except FileNotFoundError as error:
        raise ValueError(f"Physarum: no image at {path}. Check the path.") from error
    except Exception as error:  # Pillow raises many kinds for damaged files
        raise ValueError(f"Physarum: {path} is no image that Pillow reads: {error}. Use PNG, JPEG or GIF.") from error
    if not fits:
        raise ValueError(
            f"Physarum: image {path} must have at most {LARGEST_IMAGE:,} pixels and, where it sets the size of the "
            f"field, {LARGEST_SIDE:,} a side; got {size[0]} x {size[1]}. Scale it down."
        )
    if not (np.isfinite(grey).all() and grey.min() >= 0 and grey.max() <= 1):
        raise ValueError(f"Physarum: image {path} must have numbers in [0, 1], or 8 or 16 bits. Rescale it.")
    if wanted is not None and grey.shape != wanted:
        grey = np.asarray(Image.fromarray(grey).resize(wanted[::-1], Image.Resampling.BOX)).clip(0, 1)
    return torch.from_numpy(np.array(grey))


def _brightness(image: Any) -> np.ndarray:
    """float32 [H, W]; Pillow's own conversion to grey cuts off whatever is above 255."""
    if image.mode == "F":
        return np.asarray(image, dtype=np.float32)
    if image.mode.startswith("I"):
        return np.asarray(image, dtype=np.float32) / 65535
    if image.mode not in ("RGBA", "LA", "PA", "RGBa", "La") and "transparency" not in image.info:
        return np.asarray(image.convert("L"), dtype=np.float32) / 255
    image = image.convert("RGBA")
    opaque = np.asarray(image.getchannel("A"), dtype=np.float32) / 255
    return np.asarray(image.convert("L"), dtype=np.float32) / 255 * opaque


def to_levels(field: Tensor, levels: int) -> Tensor:
    """The field in `levels` classes of equal area, uint8 of the same shape: 0 for the lowest; for terrain and caves.
    Equal values share a class, the lower one, so that a field that is mostly zero is mostly 0.

    Raises:
        ValueError: `levels` outside 2..256, a field that is not finite.
    """
    if isinstance(levels, bool) or not isinstance(levels, int) or not 2 <= levels <= 256:
        raise ValueError(f"to_levels: `levels` must be a whole number in 2..256; got {levels!r}. Choose fewer.")
    values = checks.tensor("field", field).double().cpu().numpy()
    cuts = np.quantile(values, np.arange(1, levels) / levels)
    return torch.from_numpy(np.searchsorted(cuts, values, side="left").astype(np.uint8))
