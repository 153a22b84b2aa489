"""Figures of neural operators: input and solution, errors over a rollout, spectra."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.figure import Figure

from pinnfuse.figures.fields import Plane, dress, shading
from pinnfuse.figures.style import CYCLE, ERROR, INK, MUTED, colour_bar, error_limits, limits, new_figure, symbol


def map_figure(given: Sequence[Plane], found: Sequence[Plane]) -> Figure:
    """A row for each sample: input (its `prediction`), predicted and true solution, absolute error."""
    figure, axes = new_figure(len(found), 4, (13.2, 3.25 * len(found)))
    for source, plane, row in zip(given, found, axes, strict=True):
        name = symbol(plane.field)
        colours, norm = limits(plane.reference)
        source_colours, source_norm = limits(source.prediction)
        top, beyond = error_limits(plane.error)
        panels: tuple[tuple[np.ndarray, str, dict[str, Any]], ...] = (
            (source.prediction, f"${symbol(source.field)}$", {"cmap": source_colours, "norm": source_norm}),
            (plane.prediction, f"${name}$ predicted", {"cmap": colours, "norm": norm}),
            (plane.reference, f"${name}$ reference", {"cmap": colours, "norm": norm}),
            (plane.error, f"absolute error of ${name}${beyond}", {"cmap": ERROR, "vmin": 0, "vmax": top}),
        )
        for ax, (values, title, options) in zip(row, panels, strict=True):
            image = ax.pcolormesh(
                plane.x, plane.y, values, shading="nearest" if ax is row[0] else shading(values), **options
            )
            image.set_rasterized(True)
            dress(ax, plane, title)
            colour_bar(figure, ax, image, clipped=ax is row[3] and bool(beyond))
        for ax in row[1:]:
            ax.set_ylabel("")
    return figure


def rollout_errors(times: Sequence[float], errors: Mapping[str, np.ndarray], window: float) -> Figure:
    """Relative L2 error of each field over time; a dotted line where each window ends."""
    figure, axes = new_figure(1, 1, (5.6, 3.4))
    ax = axes[0, 0]
    for (name, values), colour in zip(errors.items(), CYCLE, strict=False):
        ax.semilogy(times, values, color=colour, marker="o", markersize=2.5, label=f"${symbol(name)}$")
    first = times[0]
    for k in range(1, int((times[-1] - first) / window) + 1):
        ax.axvline(first + k * window - 0.5 * (times[1] - first if len(times) > 1 else 0), color=MUTED, lw=0.5, ls=":")
    ax.set(xlabel="$t$", ylabel="relative $L^2$ error of the rollout")
    ax.grid(axis="y", color="#e3e6ea", linewidth=0.6)
    ax.spines[["top", "right"]].set_visible(False)
    ax.legend()
    return figure


def spectra(
    wavenumbers: np.ndarray, curves: Mapping[str, tuple[np.ndarray, np.ndarray]], titles: Mapping[str, str]
) -> Figure:
    """Energy over wavenumbers, one panel for each key: (predicted, reference)."""
    figure, axes = new_figure(1, len(curves), (3.4 * len(curves) + 0.4, 3.2))
    for ax, (name, (prediction, reference)) in zip(axes[0], curves.items(), strict=True):
        ax.loglog(wavenumbers, reference, color=INK, linewidth=2.4, alpha=0.35, label="reference")
        ax.loglog(wavenumbers, prediction, color=CYCLE[1], linewidth=1.3, linestyle=(0, (4, 2)), label="predicted")
        ax.set(xlabel="wavenumber", title=titles[name])
        top = float(np.nanmax(reference)) or 1.0
        ax.set_ylim(max(float(np.nanmin(reference)) / 10, 1e-16 * top), 5 * top)
        ax.spines[["top", "right"]].set_visible(False)
    axes[0, 0].set_ylabel("energy")
    axes[0, 0].legend()
    return figure
