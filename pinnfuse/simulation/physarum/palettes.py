"""Colours for fields: tables of 256, continuous or in steps, and their rotation."""

from __future__ import annotations

import numpy as np

from pinnfuse.errors import nearest

_CONTINUOUS = {
    "slime": "#0b0b12 #2d2a1e #7a6410 #d9b310 #fff3a0",
    "ember": "#000004 #4a0c4e #a52c60 #ed6925 #fcffa4",
    "moss": "#08110c #14382a #2f7d4f #9ccc65 #f4ffd8",
    "ice": "#03071e #023e8a #0096c7 #90e0ef #ffffff",
    "violet": "#0d0221 #3c1a5b #8a3fa0 #e07be0 #fff0ff",
    "ink": "#ffffff #c9cfd6 #7d8894 #333b45 #0b0e12",
    "aurora": "#04050f #0b3d4f #19a974 #c5f06f #f8b5e0",
}
_QUALITATIVE = {  # equal steps, each of its own hue
    "tableau": "#0b0e12 #4e79a7 #f28e2b #e15759 #76b7b2 #59a14f #edc948 #b07aa1 #ff9da7 #9c755f #bab0ac",
    "bold": "#101010 #7f3c8d #11a579 #3969ac #f2b701 #e73f74 #80ba5a #e68310",
    "pastel": "#fbfbf8 #8dd3c7 #ffffb3 #bebada #fb8072 #80b1d3 #fdb462 #b3de69",
    "terrain": "#1b4965 #62b6cb #e9d8a6 #94b447 #4f772d #7f5539 #b08968 #f8f9fa",
    "cave": "#0a0908 #22333b #5e503f #a68a64 #c6ac8f #eae0d5",
}
QUALITATIVE = tuple(_QUALITATIVE)
PALETTES = (*_CONTINUOUS, *QUALITATIVE)
SPECIES = ("#ffd23f", "#3bceac", "#ee4266", "#8a84ff", "#f4a259", "#9be564")
"""Colours of species shown together, added up."""


def palette(name: str, shift: int = 0) -> np.ndarray:
    """uint8 [256, 3], turned by `shift` places: a GIF whose frames shift by some more each cycles its colours. What
    leaves a palette of steps comes in at the other end; a continuous one goes back the way it came, without an edge.

    Raises:
        ValueError: an unknown name.
    """
    if name not in PALETTES:
        raise ValueError(f"palette: unknown {name!r}. {nearest(str(name), PALETTES)}")
    if name in _QUALITATIVE:
        colours = np.array([rgb(c) for c in _QUALITATIVE[name].split()], dtype=np.uint8)
        return np.roll(colours[np.arange(256) * len(colours) // 256], -shift, axis=0)
    anchors = np.array([rgb(c) for c in _CONTINUOUS[name].split()], dtype=float)
    at = np.linspace(0, len(anchors) - 1, 256)
    table = np.stack([np.interp(at, np.arange(len(anchors)), anchors[:, k]) for k in range(3)], axis=1)
    there_and_back = np.concatenate([table, table[-2:0:-1]]).round().astype(np.uint8)
    return np.roll(there_and_back, -shift, axis=0)[:256]


def rgb(text: str) -> tuple[int, int, int]:
    """Of `#rrggbb`."""
    return int(text[1:3], 16), int(text[3:5], 16), int(text[5:7], 16)
