"""One look for all figures."""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.cm import ScalarMappable
from matplotlib.colors import Normalize
from matplotlib.figure import Figure
from matplotlib.rcsetup import cycler
from matplotlib.ticker import ScalarFormatter

SIGNED, POSITIVE, ERROR = "RdBu_r", "viridis", "magma"  # perceptual; the diverging one is centred on zero
INK, ACCENT, MUTED = "#1b1f24", "#c1272d", "#8b949e"
CYCLE = ("#0068b5", "#d1641b", "#2a9d5c", "#8e44ad", "#b8860b", "#17888f", "#c2185b", "#5d6d7e")

_GREEK = frozenset(
    ("alpha", "beta", "gamma", "delta", "epsilon", "eta", "theta", "kappa", "lambda", "mu", "nu", "xi", "rho")
    + ("sigma", "tau", "phi", "chi", "psi", "omega")
)

_RC: Any = {
    "figure.dpi": 110,
    "savefig.dpi": 160,
    "font.size": 9,
    "axes.titlesize": 10,
    "axes.labelsize": 10,
    "axes.edgecolor": INK,
    "axes.linewidth": 0.7,
    "axes.prop_cycle": cycler(color=CYCLE),
    "axes.facecolor": "white",
    "xtick.labelsize": 8,
    "ytick.labelsize": 8,
    "xtick.major.width": 0.7,
    "ytick.major.width": 0.7,
    "legend.fontsize": 8,
    "legend.frameon": False,
    "lines.linewidth": 1.4,
    "mathtext.fontset": "cm",
    "figure.constrained_layout.use": True,
}


def style() -> AbstractContextManager[None]:
    """Context in which every figure is made."""
    return mpl.rc_context(_RC)


def new_figure(rows: int, columns: int, size: tuple[float, float], **options) -> tuple[Figure, np.ndarray]:
    """A figure of `size` inches without pyplot's global state (so nothing leaks and no display is needed)."""
    figure = Figure(figsize=size, layout="constrained")
    return figure, figure.subplots(rows, columns, squeeze=False, **options)


def symbol(name: str) -> str:
    """A name as mathematics, without dollar signs: `u`, `theta`, `u_x`, `velocity`."""
    head, _, rest = name.partition("_")
    head = f"\\{head}" if head in _GREEK else head if len(head) == 1 else rf"\mathrm{{{head}}}"
    return head + (f"_{{{symbol(rest)}}}" if rest else "")


def limits(values: np.ndarray) -> tuple[str, Normalize]:
    """Colour map and range: diverging and centred where the values change sign substantially, sequential elsewhere."""
    low, high = float(np.nanmin(values)), float(np.nanmax(values))
    if low == high:
        low, high = low - 0.5, high + 0.5
    if low < 0 < high and min(-low, high) > 0.1 * (high - low):
        top = max(-low, high)
        return SIGNED, Normalize(-top, top)
    return POSITIVE, Normalize(low, high)


def error_limits(error: np.ndarray) -> tuple[float, str]:
    """Top of the colours, and what to add to the title.

    A few points that err much more than the others, as in a corner or along a shock, would leave the rest black: where
    the largest error is over twice that of 99 % of the points, these fill the colours and the title tells the largest.
    """
    found = error[np.isfinite(error)]
    if found.size == 0:
        return 1.0, ""
    most, nearly = float(found.max()), float(np.quantile(found, 0.99))
    return (nearly, f", up to {most:.1e}") if most > 2 * nearly > 0 else (most or 1.0, "")


def colour_bar(figure: Figure, ax: Axes, mappable: ScalarMappable, clipped: bool = False) -> None:
    """A slim bar as high as its panel, with a power of ten above it rather than wide tick labels.

    `clipped`: an arrow says that some values lie above it.
    """
    place = ax.inset_axes((1.04, 0, 0.045, 1))
    bar = figure.colorbar(mappable, cax=place, extend="max" if clipped else "neither", extendfrac=0.03)
    bar.outline.set_linewidth(0.5)
    bar.ax.tick_params(labelsize=7, width=0.5, length=2)
    formatter = ScalarFormatter(useMathText=True)
    formatter.set_powerlimits((-2, 3))
    bar.ax.yaxis.set_major_formatter(formatter)
    bar.ax.yaxis.get_offset_text().set(size=7, ha="left")
