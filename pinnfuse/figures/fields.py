"""Prediction, reference and error of a field on a plane, and its cuts."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from pinnfuse.figures.style import (
    ACCENT,
    CYCLE,
    ERROR,
    INK,
    MUTED,
    colour_bar,
    error_limits,
    limits,
    new_figure,
    symbol,
)


@dataclass(frozen=True)
class Plane:
    """Values of a field over two coordinates.

    Args:
        field: name.
        across, up: names of the horizontal and the vertical coordinate.
        x, y: their values, [nx] and [ny].
        prediction, reference: [ny, nx]; NaN where there is no reference.
        at: text on what is held fixed, e.g. "$t = 1$"; empty for nothing.
        spatial: both coordinates are lengths, so they are drawn to the same scale.
    """

    field: str
    across: str
    up: str
    x: np.ndarray
    y: np.ndarray
    prediction: np.ndarray
    reference: np.ndarray
    at: str = ""
    spatial: bool = True

    @property
    def error(self) -> np.ndarray:
        return np.abs(self.prediction - self.reference)

    @property
    def ratio(self) -> float:
        """Height over width of a panel."""
        if not self.spatial:
            return 0.75
        return float(np.clip(np.ptp(self.y) / np.ptp(self.x), 0.35, 1.6))


def triptych(planes: list[Plane]) -> Figure:
    """Rows of prediction, reference and absolute error, one row for each plane; the first two share their colours."""
    width = 3.3
    height = sum(width * 0.82 * plane.ratio + 0.62 for plane in planes)
    figure, axes = new_figure(len(planes), 3, (3 * width, height))
    for plane, row in zip(planes, axes, strict=True):
        colours, norm = limits(plane.reference)
        name, at = symbol(plane.field), f", {plane.at}" if plane.at else ""
        top, beyond = error_limits(plane.error)
        titles = (f"${name}$ predicted{at}", f"${name}$ reference{at}", f"absolute error of ${name}${beyond}")
        for ax, values, title in zip(row, (plane.prediction, plane.reference, plane.error), titles, strict=True):
            options = {"cmap": ERROR, "vmin": 0, "vmax": top} if ax is row[2] else {"cmap": colours, "norm": norm}
            image = ax.pcolormesh(plane.x, plane.y, values, shading=shading(values), **options)
            image.set_rasterized(True)
            dress(ax, plane, title)
            colour_bar(figure, ax, image, clipped=ax is row[2] and bool(beyond))
        for ax in row[1:]:
            ax.set_ylabel("")
    return figure


def alone(plane: Plane) -> Figure:
    """A field without a reference."""
    figure, axes = new_figure(1, 1, (4.4, 3.3 * 0.82 * plane.ratio + 0.8))
    ax = axes[0, 0]
    colours, norm = limits(plane.prediction)
    image = ax.pcolormesh(
        plane.x, plane.y, plane.prediction, shading=shading(plane.prediction), cmap=colours, norm=norm
    )
    image.set_rasterized(True)
    dress(ax, plane, f"${symbol(plane.field)}$ predicted{', ' + plane.at if plane.at else ''}")
    colour_bar(figure, ax, image)
    return figure


def shading(values: np.ndarray) -> Literal["gouraud", "nearest"]:
    """Interpolated between grid points, unless some are masked."""
    return "gouraud" if np.isfinite(values).all() else "nearest"


def dress(ax: Axes, plane: Plane, title: str) -> None:
    """Labels, title, scale."""
    ax.set(title=title, xlabel=f"${symbol(plane.across)}$", ylabel=f"${symbol(plane.up)}$")
    ax.set_facecolor("#d9dde2")  # where there is no reference
    if plane.spatial:
        ax.set_aspect("equal")
    ax.set(xlim=(plane.x.min(), plane.x.max()), ylim=(plane.y.min(), plane.y.max()))
    ax.locator_params(nbins=5)


def time_cuts(plane: Plane, count: int = 4) -> Figure:
    """u(x) at a few times, prediction over reference; the plane has time across and the coordinate up."""
    picks = np.unique(np.linspace(0, len(plane.x) - 1, count).round().astype(int))
    figure, axes = new_figure(1, len(picks), (2.45 * len(picks), 2.4), sharey=True)
    for ax, k in zip(axes[0], picks, strict=True):
        ax.plot(plane.y, plane.reference[:, k], color=INK, linewidth=2.4, alpha=0.35, label="reference")
        ax.plot(plane.y, plane.prediction[:, k], color=ACCENT, linewidth=1.2, linestyle=(0, (4, 2)), label="prediction")
        ax.set(title=f"${symbol(plane.across)} = {plane.x[k]:.3g}$", xlabel=f"${symbol(plane.up)}$")
        ax.set_xlim(plane.y.min(), plane.y.max())
        ax.spines[["top", "right"]].set_visible(False)
    axes[0, 0].set_ylabel(f"${symbol(plane.field)}$")
    figure.legend(*axes[0, 0].get_legend_handles_labels(), loc="outside upper right", ncols=2)
    return figure


def line(field: str, coordinate: str, x: np.ndarray, prediction: np.ndarray, reference: np.ndarray) -> Figure:
    """A field of one coordinate, and its error below."""
    figure, axes = new_figure(2, 1, (5, 4), sharex=True, height_ratios=(2, 1))
    top, bottom = axes[:, 0]
    top.plot(x, reference, color=INK, linewidth=2.4, alpha=0.35, label="reference")
    top.plot(x, prediction, color=ACCENT, linewidth=1.2, linestyle=(0, (4, 2)), label="prediction")
    top.set_ylabel(f"${symbol(field)}$")
    top.legend()
    rounding = np.finfo(float).eps * max(float(np.nanmax(np.abs(reference))), 1e-300)  # a logarithm shows no zero
    bottom.semilogy(x, np.maximum(np.abs(prediction - reference), rounding), color=CYCLE[0])
    bottom.set(xlabel=f"${symbol(coordinate)}$", ylabel="absolute error")
    return figure


def parity(field: str, prediction: np.ndarray, reference: np.ndarray) -> Figure:
    """Prediction against reference at scattered points, for problems without a plane to draw."""
    figure, axes = new_figure(1, 1, (3.8, 3.6))
    ax = axes[0, 0]
    low, high = np.nanmin(reference), np.nanmax(reference)
    ax.plot([low, high], [low, high], color=MUTED, linewidth=1, zorder=1)
    ax.scatter(reference, prediction, s=3, color=CYCLE[0], alpha=0.4, linewidths=0, zorder=2, rasterized=True)
    ax.set(xlabel=f"reference ${symbol(field)}$", ylabel=f"predicted ${symbol(field)}$", aspect="equal")
    return figure
