"""Error against time of the recipes on one card: training_figure.py RESULTS/CARD/training docs/images/training.png

One panel a row of `docs/training.md`: ours (every seed), the goal, the best published error, and peers where they ran.
Seconds are those of `fit`; where the file says that the card was shared they are upper bounds.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D

PANELS: dict[str, tuple[str, str, list[tuple[float, float]], tuple[float, float] | None]] = {
    # stem of the files: title, field, goals (seconds, error), published (seconds, error)
    "burgers_accurate": ("Burgers, 0.01/pi", "u", [(10, 1e-3), (300, 1e-7)], (2878, 1.6e-8)),
    "allen_cahn_accurate": ("Allen-Cahn", "u", [(60, 1e-3), (150, 1e-4), (480, 5e-6)], (4812, 1e-4)),
    "kdv_accurate": ("KdV, 0.022^2", "u", [(300, 1e-4)], None),
    "wave_accurate": ("wave, c = 2", "u", [(300, 1e-5)], None),
    "cavity_100": ("cavity, Re 100", "velocity", [(120, 2e-3)], (403, 1.1e-4)),
    "cavity_1000": ("cavity, Re 1000", "velocity", [(540, 2e-2)], (3540, 7.8e-2)),
    "poisson_5d": ("Poisson, 5-D", "u", [(120, 1e-6)], None),
    "poisson_10d": ("Poisson, 10-D", "u", [(120, 1e-6)], None),
    "torus_window": ("torus, windows 1 and 2 of 10", "vorticity", [(120, 1e-1)], None),
}
PEERS = {"burgers_accurate": "burgers", "cavity_100": "cavity"}
COLOURS = {"ours": "#1b6ca8", "alone": "#0b3954", "deepxde": "#c8553d", "pina": "#e0a030"}


def read(path: Path) -> Any:
    return json.loads(path.read_text())


def of(folder: Path, stem: str) -> list[Path]:
    """Files of a row: all seeds, no other row that begins alike."""
    found = sorted((folder / "recipes").glob(f"{stem}*.json"))
    return [path for path in found if not path.stem[len(stem) :][:1].isdigit()]


def panel(axes: Axes, folder: Path, stem: str) -> None:
    title, field, goals, published = PANELS[stem]
    for path in of(folder, stem):
        run = read(path)
        points = [(row[0], row[3][field]) for row in run["curve"] if row[0] > 0]
        alone = run["card"] == "alone"
        axes.plot(*zip(*points, strict=True), color=COLOURS["alone" if alone else "ours"], lw=1.6, ls="-")
    if stem in PEERS:
        for peer in ("deepxde", "pina"):
            path = folder / f"peer_{peer}_{PEERS[stem]}.json"
            if path.is_file():
                points = [(row[0], row[2]) for row in read(path)["curve"] if row[0] > 0]
                axes.plot(*zip(*points, strict=True), color=COLOURS[peer], lw=1.2)
    axes.plot(*zip(*goals, strict=True), "x", color="black", ms=7, mew=1.8)
    if published is not None:
        axes.plot(*published, "o", mfc="none", color="black", ms=7)
    axes.set(xscale="log", yscale="log", title=title, xlim=(0.8, 6000))
    axes.grid(alpha=0.3)


def main(folder: str, out: str) -> None:
    figure = Figure(figsize=(11, 8.6), layout="constrained")  # not pyplot's, which keeps every figure
    grid = figure.subplots(3, 3)
    for axes, stem in zip(grid.flat, PANELS, strict=True):
        panel(axes, Path(folder), stem)
    lines = [Line2D([], [], color=COLOURS[key]) for key in ("ours", "alone", "deepxde", "pina")]
    marks = [Line2D([], [], ls="", marker="x", color="black", mew=1.8)]
    marks += [Line2D([], [], ls="", marker="o", mfc="none", color="black")]
    names = ["ours, card shared (upper bounds)", "ours, card alone", "DeepXDE, shared", "PINA, shared"]
    names += ["goals", "published, its own hardware"]
    figure.legend(lines + marks, names, loc="outside lower center", ncols=3, frameon=False)
    for axes in grid[-1]:
        axes.set_xlabel("seconds of fit")
    for axes in grid[:, 0]:
        axes.set_ylabel("relative L2 error")
    Path(out).parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(out, dpi=110)


if __name__ == "__main__":
    main(*sys.argv[1:])
