"""The figures of a run, chosen by the shape of its problem."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from matplotlib.figure import Figure

from pinnfuse.figures import animation, curves, fields, flow
from pinnfuse.figures.fields import Plane
from pinnfuse.figures.style import style, symbol
from pinnfuse.reference import Unknown

if TYPE_CHECKING:
    from pinnfuse.problems import Problem

Predict = Callable[[np.ndarray], np.ndarray]  # [N, d] -> [N, m]
FRAMES = 40


class Report:
    """Draws a problem's fields as predicted, beside the reference.

    Args:
        problem: domain, names and reference.
        predict: the network, [N, d] -> [N, m] in numpy.
        folder: of the files; made if missing.
        animations: draw GIFs of time-dependent problems, too.
    """

    def __init__(self, problem: Problem, predict: Predict, folder: Path, animations: bool = True):
        self.problem, self.predict, self.folder = problem, predict, folder
        self.coordinates, self.fields = problem.pde.coordinates, problem.pde.fields
        self.grid = problem.reference.grid()
        self.unknown = isinstance(problem.reference, Unknown)
        self.space = [c for c in self.coordinates if c != "t"]
        self.animations = animations
        self.timed = "t" in self.coordinates

    def draw(self, series: curves.Series, phases: Sequence[tuple[int, str]] = ()) -> dict[str, Path]:
        """All figures; `series` and `phases` as in `pinnfuse.figures.curves`. Returns {name: file}."""
        self.folder.mkdir(parents=True, exist_ok=True)
        files = {}
        with style():
            for name, figure in [*self._curves(series, phases), *self._fields()]:
                files[name] = self.folder / f"{name}.png"
                figure.savefig(files[name])
            files |= self._animations()
        return files

    def _curves(self, series: curves.Series, phases: Sequence[tuple[int, str]]) -> Iterator[tuple[str, Figure]]:
        series = curves.drawable(series)
        if any(key.startswith("loss/") for key in series):
            yield "loss", curves.loss_curves(series, tuple(self.problem.pde.equations), phases)
        if any(key.startswith("val/rel_l2/") for key in series):
            yield "rel_l2", curves.error_curves(series, phases)

    def _fields(self) -> Iterator[tuple[str, Figure]]:
        if self.unknown:
            if len(self.coordinates) >= 2 and len(self.space) <= 3:
                for plane in self._planes(self.grid["t"][-1] if self.timed and len(self.space) > 1 else None):
                    yield plane.field, fields.alone(plane)
        elif len(self.space) == 1 and not self.timed:
            x = self.grid[self.space[0]]
            prediction, reference = self._both(x[:, None])
            for k, field in enumerate(self.fields):
                yield field, fields.line(field, self.space[0], x, prediction[:, k], reference[:, k])
        elif len(self.space) > 3:
            points = self.problem.evaluation_points()[0][:4096]
            prediction, reference = self._both(points)
            for k, field in enumerate(self.fields):
                yield field, fields.parity(field, prediction[:, k], reference[:, k])
        else:
            planes = self._planes(self.grid["t"][-1] if self.timed and len(self.space) > 1 else None)
            for plane in planes:
                yield plane.field, fields.triptych([plane])
                if len(self.space) == 1:
                    yield f"{plane.field}_cuts", fields.time_cuts(plane)
            yield from self._flow(planes)

    def _flow(self, planes: Sequence[Plane]) -> Iterator[tuple[str, Figure]]:
        by_name = {plane.field: plane for plane in planes}
        if len(self.space) != 2 or not {"u", "v"} <= set(by_name):
            return
        u, v = by_name["u"], by_name["v"]
        yield "speed", flow.streamlines(u, v)
        if not self.timed:
            yield "centre_lines", flow.centre_lines(u, v)

    def _animations(self) -> dict[str, Path]:
        wanted = self.animations and not self.unknown
        if not wanted or not self.timed or not 1 <= len(self.space) <= 3:
            return {}
        files = {}
        if len(self.space) == 1:
            for plane in self._planes(None):
                files[f"{plane.field}_animation"] = animation.animate_line(self.folder / f"{plane.field}.gif", plane)
            return files
        times = self.grid["t"][animation.pick(len(self.grid["t"]), FRAMES)]
        frames = [self._planes(t) for t in times]
        for k, field in enumerate(self.fields):
            path = self.folder / f"{field}.gif"
            files[f"{field}_animation"] = animation.animate_planes(path, times, [planes[k] for planes in frames])
        return files

    def _planes(self, time: float | None) -> list[Plane]:
        """Every field on (t, x), or on (x, y) at `time` and in the middle of any third coordinate."""
        across, up = ("t", self.space[0]) if len(self.space) == 1 else self.space[:2]
        x, y = self.grid[across], self.grid[up]
        held = {} if time is None else {"t": float(time)}
        held |= {c: float(self.grid[c][len(self.grid[c]) // 2]) for c in self.space[2:]}
        mesh = dict(zip((across, up), np.meshgrid(x, y), strict=True))  # [ny, nx]
        points = np.stack([mesh[c] if c in mesh else np.full(mesh[up].shape, held[c]) for c in self.coordinates], -1)
        prediction, reference = self._both(points.reshape(-1, len(self.coordinates)))
        at = ", ".join(f"${symbol(c)} = {value:.3g}$" for c, value in held.items())
        shape = len(y), len(x)
        return [
            Plane(
                f, across, up, x, y, prediction[:, k].reshape(shape), reference[:, k].reshape(shape), at, across != "t"
            )
            for k, f in enumerate(self.fields)
        ]

    def _both(self, points: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """Prediction and reference at points; a field known up to a constant is shifted to the reference's mean."""
        prediction, reference = np.asarray(self.predict(points), dtype=float), self.problem.reference.solution(points)
        for name in () if self.unknown else self.problem.up_to_constant:
            k = self.fields.index(name)
            prediction[:, k] -= np.nanmean(prediction[:, k] - reference[:, k])
        return prediction, reference
