"""Images as starting fields, food and obstacle maps."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import torch
from PIL import Image, UnidentifiedImageError
from torch import Tensor

from pinnfuse.simulation.physarum.fixed import LARGEST_SIDE

LARGEST_IMAGE = 1 << 26
"""Pixels of an image that is read: 67 million."""


def read_image(path: str | Path, shape: tuple[int, int] | None = None) -> Tensor:
    """Brightness in [0, 1] as float32 [H, W]; scaled to `shape` if it is given (area average when smaller).

    Raises:
        ValueError: no such file, no image, or too large a one.
    """
    path = Path(path)
    try:
        with Image.open(path) as image:
            width, height = image.size
            if width * height > LARGEST_IMAGE or (shape is None and max(image.size) > LARGEST_SIDE):
                raise ValueError(
                    f"Physarum: image {path} must have at most {LARGEST_IMAGE:,} pixels and, where it sets the size of "
                    f"the field, {LARGEST_SIDE:,} a side; got {width} x {height}. Scale it down."
                )
            grey = image.convert("L")
            if shape is not None and (height, width) != tuple(shape):
                grey = grey.resize((shape[1], shape[0]), Image.Resampling.BOX)
            return torch.from_numpy(np.asarray(grey, dtype=np.float32) / 255)
    except FileNotFoundError as error:
        raise ValueError(f"Physarum: no image at {path}. Check the path.") from error
    except (UnidentifiedImageError, Image.DecompressionBombError, OSError, SyntaxError) as error:
        raise ValueError(f"Physarum: {path} is no image that Pillow reads: {error}. Use PNG, JPEG or GIF.") from error


def to_levels(field: Tensor, levels: int) -> Tensor:
    """The field in `levels` classes of equal area, uint8 of the same shape: 0 for the lowest; for terrain and caves.

    Raises:
        ValueError: `levels` outside 2..256.
    """
    if not 2 <= levels <= 256:
        raise ValueError(f"to_levels: `levels` must lie in 2..256; got {levels}. Choose fewer.")
    values = field.detach().double().cpu().numpy()
    cuts = np.quantile(values, np.arange(1, levels) / levels)
    return torch.from_numpy(np.searchsorted(cuts, values, side="right").astype(np.uint8))
