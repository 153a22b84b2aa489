"""Pictures of a two-dimensional flow: speed with streamlines, and profiles on the centre lines."""

from __future__ import annotations

import numpy as np
from matplotlib.figure import Figure

from pinnfuse.figures.fields import Plane, dress, shading
from pinnfuse.figures.style import ACCENT, ERROR, INK, POSITIVE, colour_bar, error_limits, new_figure, symbol


def streamlines(u: Plane, v: Plane) -> Figure:
    """Speed and streamlines of prediction and reference, and the error of the velocity vector."""
    predicted, reference = np.hypot(u.prediction, v.prediction), np.hypot(u.reference, v.reference)
    error = np.hypot(u.error, v.error)
    figure, axes = new_figure(1, 3, (10, 3.3 * 0.82 * u.ratio + 0.62))
    top = float(np.nanmax(reference))
    panels = (("predicted", u.prediction, v.prediction, predicted), ("reference", u.reference, v.reference, reference))
    for ax, (title, a, b, speed) in zip(axes[0], panels, strict=False):
        image = ax.pcolormesh(u.x, u.y, speed, cmap=POSITIVE, vmin=0, vmax=top, shading=shading(speed), rasterized=True)
        x, y, (a, b) = _even(u.x, u.y, (a, b))
        ax.streamplot(x, y, a, b, color="white", linewidth=0.6, density=0.9, arrowsize=0.6)
        dress(ax, u, f"speed {title}{', ' + u.at if u.at else ''}")
        colour_bar(figure, ax, image)
    most, beyond = error_limits(error)
    options = {"cmap": ERROR, "vmin": 0, "vmax": most, "shading": shading(error), "rasterized": True}
    image = axes[0, 2].pcolormesh(u.x, u.y, error, **options)
    dress(axes[0, 2], u, f"error of the velocity{beyond}")
    colour_bar(figure, axes[0, 2], image, clipped=bool(beyond))
    for ax in axes[0, 1:]:
        ax.set_ylabel("")
    return figure


def _even(x: np.ndarray, y: np.ndarray, fields: tuple[np.ndarray, ...]) -> tuple[np.ndarray, np.ndarray, list]:
    """The fields on an evenly spaced grid, which streamplot needs (a reference grid may be Chebyshev)."""
    xs, ys = np.linspace(x.min(), x.max(), 101), np.linspace(y.min(), y.max(), 101)
    rows = [np.stack([np.interp(xs, x, row) for row in f]) for f in fields]
    return xs, ys, [np.stack([np.interp(ys, y, column) for column in f.T], axis=1) for f in rows]


def centre_lines(u: Plane, v: Plane) -> Figure:
    """u on the vertical and v on the horizontal centre line, the profiles that cavity papers tabulate."""
    figure, axes = new_figure(1, 2, (8, 3.4))
    i, j = np.abs(u.x - u.x.mean()).argmin(), np.abs(u.y - u.y.mean()).argmin()
    reference = {"color": INK, "linewidth": 2.6, "alpha": 0.35, "label": "reference"}
    prediction = {"color": ACCENT, "linewidth": 1.2, "linestyle": (0, (4, 2)), "label": "prediction"}
    left, right = axes[0]
    x, y = symbol(u.across), symbol(u.up)
    for style, a, b in (
        (reference, u.reference, v.reference),
        (prediction, u.prediction, v.prediction),
    ):
        left.plot(a[:, i], u.y, **style)
        right.plot(u.x, b[j], **style)
    left.set(xlabel=f"${symbol(u.field)}$", ylabel=f"${y}$", title=f"${symbol(u.field)}$ at ${x} = {u.x[i]:.3g}$")
    right.set(xlabel=f"${x}$", ylabel=f"${symbol(v.field)}$", title=f"${symbol(v.field)}$ at ${y} = {u.y[j]:.3g}$")
    for ax in (left, right):
        ax.spines[["top", "right"]].set_visible(False)
        ax.axhline(0, color="#d0d7de", linewidth=0.7, zorder=0)
        ax.axvline(0, color="#d0d7de", linewidth=0.7, zorder=0)
    figure.legend(*left.get_legend_handles_labels(), loc="outside upper right", ncols=2)
    return figure
