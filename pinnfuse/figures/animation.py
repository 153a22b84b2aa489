"""GIFs of time-dependent fields."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
from matplotlib.animation import FuncAnimation, PillowWriter
from matplotlib.backends.backend_agg import FigureCanvasAgg

from pinnfuse.figures.fields import Plane, dress
from pinnfuse.figures.style import ACCENT, ERROR, INK, colour_bar, error_limits, limits, new_figure, symbol


def pick(count: int, frames: int) -> np.ndarray:
    """Indices of at most `frames` evenly spaced ones among `count`."""
    return np.unique(np.linspace(0, count - 1, min(count, frames)).round().astype(int))


def animate_planes(path: Path, times: np.ndarray, planes: Sequence[Plane], time: str = "t", frames: int = 40) -> Path:
    """Prediction, reference and error over time as a GIF: one plane for each of `times`, same colours throughout."""
    picks = pick(len(times), frames)
    first = planes[0]
    figure, axes = new_figure(1, 3, (9.6, 3.2 * 0.82 * first.ratio + 0.75))
    colours, norm = limits(np.stack([p.reference for p in planes]))
    top, beyond = error_limits(np.stack([p.error for p in planes]))
    name = symbol(first.field)
    images = []
    for ax, values, title in zip(
        axes[0],
        (first.prediction, first.reference, first.error),
        (f"${name}$ predicted", f"${name}$ reference", f"absolute error of ${name}${beyond}"),
        strict=True,
    ):
        options = {"cmap": ERROR, "vmin": 0, "vmax": top} if ax is axes[0, 2] else {"cmap": colours, "norm": norm}
        images.append(ax.pcolormesh(first.x, first.y, values, shading="nearest", **options))
        dress(ax, first, title)
        colour_bar(figure, ax, images[-1], clipped=ax is axes[0, 2] and bool(beyond))
    for ax in axes[0, 1:]:
        ax.set_ylabel("")
    caption = figure.suptitle(" ")

    def draw(k: int):
        for image, values in zip(images, (planes[k].prediction, planes[k].reference, planes[k].error), strict=True):
            image.set_array(values)
        caption.set_text(f"${symbol(time)} = {times[k]:.3f}$")
        return images

    return _save(path, figure, draw, picks)


def animate_line(path: Path, plane: Plane, frames: int = 50) -> Path:
    """u(x) moving in time, prediction over reference; the plane has time across and the coordinate up."""
    picks = pick(len(plane.x), frames)
    figure, axes = new_figure(1, 1, (5, 3.2))
    ax = axes[0, 0]
    (reference,) = ax.plot(plane.y, plane.reference[:, 0], color=INK, linewidth=2.8, alpha=0.35, label="reference")
    (prediction,) = ax.plot(
        plane.y, plane.prediction[:, 0], color=ACCENT, linewidth=1.4, linestyle=(0, (4, 2)), label="prediction"
    )
    low, high = np.nanmin(plane.reference), np.nanmax(plane.reference)
    margin = 0.08 * (high - low or 1)
    ax.set(xlim=(plane.y.min(), plane.y.max()), ylim=(low - margin, high + margin))
    ax.set(xlabel=f"${symbol(plane.up)}$", ylabel=f"${symbol(plane.field)}$")
    ax.spines[["top", "right"]].set_visible(False)
    figure.legend(handles=[reference, prediction], loc="outside upper right", ncols=2)
    caption = ax.set_title(" ", loc="left")

    def draw(k: int):
        reference.set_ydata(plane.reference[:, k])
        prediction.set_ydata(plane.prediction[:, k])
        caption.set_text(f"${symbol(plane.across)} = {plane.x[k]:.3f}$")
        return reference, prediction

    return _save(path, figure, draw, picks)


def _save(path: Path, figure, draw, picks: np.ndarray) -> Path:
    draw(int(picks[0]))
    FigureCanvasAgg(figure).draw()  # settle the layout once, so that frames do not jump
    figure.set_layout_engine("none")
    FuncAnimation(figure, draw, frames=[int(k) for k in picks]).save(path, writer=PillowWriter(fps=12), dpi=80)
    return path
