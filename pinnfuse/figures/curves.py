"""Curves of a training run."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import ArrayLike

from pinnfuse.figures.style import INK, MUTED, new_figure

Series = Mapping[str, tuple[ArrayLike, ArrayLike]]  # name -> (steps, values)


def loss_curves(series: Series, equations: Sequence[str], phases: Sequence[tuple[int, str]] = ()) -> Figure:
    """The total and each term on a logarithmic scale; equations solid, conditions dashed.

    Args:
        series: keys `loss/total`, `loss/<equation>`, `loss/<condition>`; other keys are ignored.
        equations: names of the equations.
        phases: (first step, optimiser) of each phase, marked by a line.
    """
    figure, axes = new_figure(1, 1, (7, 3.6))
    ax = axes[0, 0]
    for key, (steps, values) in series.items():
        name = key.removeprefix("loss/")
        if not key.startswith("loss/") or name == "total":
            continue
        ax.semilogy(steps, values, label=_words(name), linewidth=1.1, linestyle="-" if name in equations else "--")
    if "loss/total" in series and not _alone(series):
        ax.semilogy(*series["loss/total"], color=INK, linewidth=1.8, label="total")
    _finish(ax, "loss", phases)
    return figure


def _alone(series: Series) -> bool:
    """The total is its only term, and would hide it."""
    terms = [values for key, values in series.items() if key.startswith("loss/") and key != "loss/total"]
    return len(terms) == 1 and all(np.array_equal(a, b) for a, b in zip(terms[0], series["loss/total"], strict=True))


def error_curves(series: Series, phases: Sequence[tuple[int, str]] = ()) -> Figure:
    """Relative L2 error of each field, keys `val/rel_l2/<field>`, on a logarithmic scale."""
    figure, axes = new_figure(1, 1, (7, 3.6))
    for key, (steps, values) in series.items():
        if key.startswith("val/rel_l2/"):
            axes[0, 0].semilogy(
                steps, values, marker="o", markersize=2.5, label=_words(key.removeprefix("val/rel_l2/"))
            )
    _finish(axes[0, 0], "relative $L^2$ error", phases)
    return figure


def _words(name: str) -> str:
    return name.replace("_", " ")


def _finish(ax: Axes, label: str, phases: Sequence[tuple[int, str]]) -> None:
    ends = [float(np.max(x)) for line in ax.lines if (x := np.asarray(line.get_xdata())).size]
    last = max([1.0, *ends, *(step for step, _ in phases)])
    ax.set_xlim(-0.01 * last, 1.01 * last)  # from step 0, also where the first row comes late
    row, end = 0, 0.0
    for step, name in phases:
        row = row + 1 if step < end else 0  # above a name that would reach under this one
        end = step + 0.014 * last * (len(name) + 1)
        if step > 0:
            ax.axvline(step, color=MUTED, linewidth=0.8, linestyle=":")
        ax.annotate(
            name,
            (step, 1),
            xycoords=("data", "axes fraction"),
            xytext=(4, 3 + 10 * row),
            textcoords="offset points",
            color=MUTED,
            fontsize=8,
        )
    ax.set(xlabel="step", ylabel=label)
    ax.grid(axis="y", color="#e3e6ea", linewidth=0.6)
    ax.spines[["top", "right"]].set_visible(False)
    if ax.lines and ax.get_legend_handles_labels()[0]:
        ax.legend(loc="center left", bbox_to_anchor=(1.01, 0.5))


def drawable(series: Series) -> dict[str, tuple[ArrayLike, ArrayLike]]:
    """What a logarithmic axis can show: positive, finite values; a series without any is left out."""
    out: dict[str, tuple[ArrayLike, ArrayLike]] = {}
    for key, (steps, values) in series.items():
        s, v = np.asarray(steps, dtype=float), np.asarray(values, dtype=float)
        keep = np.isfinite(v) & (v > 0)
        if keep.any():
            out[key] = s[keep], v[keep]
    return out
