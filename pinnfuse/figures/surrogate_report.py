"""The figures of a surrogate's run, chosen by the shape of its task."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from matplotlib.figure import Figure

from pinnfuse.analysis import energy_spectrum
from pinnfuse.figures import curves, fields, operators
from pinnfuse.figures.fields import Plane
from pinnfuse.figures.style import style, symbol
from pinnfuse.grid import Grid


@dataclass(frozen=True)
class SurrogateReport:
    """Draws predictions of held-out samples beside their solutions.

    Args:
        grid: of the fields; one or two axes are drawn.
        names: of the predicted fields.
        given: name of the input of a map, None for windows of time.
        inputs: `[N, 1, *space]` of a map; not read for windows.
        prediction, reference: `[N, fields, *space]` of a map, `[N, levels, fields, *space]` of a rollout.
        errors: relative L2, `[levels, fields]`.
        times: of the levels; empty for a map.
        window: length of a window of time.
        folder: of the files; made if missing.
    """

    grid: Grid
    names: tuple[str, ...]
    given: str | None
    inputs: torch.Tensor
    prediction: torch.Tensor
    reference: torch.Tensor
    errors: torch.Tensor
    times: list[float]
    window: float
    folder: Path

    def draw(
        self, series: curves.Series, equations: Sequence[str], phases: Sequence[tuple[int, str]] = ()
    ) -> dict[str, Path]:
        """All figures; returns {name: file}."""
        self.folder.mkdir(parents=True, exist_ok=True)
        files = {}
        with style():
            for name, figure in [*self._curves(series, equations, phases), *self._figures()]:
                files[name] = self.folder / f"{name}.png"
                figure.savefig(files[name])
        return files

    @staticmethod
    def _curves(
        series: curves.Series, equations: Sequence[str], phases: Sequence[tuple[int, str]]
    ) -> Iterator[tuple[str, Figure]]:
        series = curves.drawable(series)
        if any(key.startswith("loss/") for key in series):
            yield "loss", curves.loss_curves(series, equations, phases)
        if any(key.startswith("val/rel_l2/") for key in series):
            yield "rel_l2", curves.error_curves(series, phases)

    def _figures(self) -> Iterator[tuple[str, Figure]]:
        if self.given is not None:
            yield from self._map()
            return
        yield (
            "rollout",
            operators.rollout_errors(
                self.times, {n: _numpy(self.errors[:, k]) for k, n in enumerate(self.names)}, self.window
            ),
        )
        if self.grid.dimension == 1:
            for k, name in enumerate(self.names):
                plane = self._over_time(k, name)
                yield name, fields.triptych([plane])
                yield f"{name}_cuts", fields.time_cuts(plane)
        elif self.grid.dimension == 2:
            for k, name in enumerate(self.names):
                levels = np.unique(np.linspace(0, len(self.times) - 1, 3).round().astype(int))
                yield name, fields.triptych([self._at(k, name, int(level)) for level in levels])
        if all(self.grid.periodic.values()):
            yield "spectra", self._spectra()

    def _map(self) -> Iterator[tuple[str, Figure]]:
        if self.grid.dimension != 2:
            return
        for k, name in enumerate(self.names):
            rows = range(min(3, len(self.prediction)))
            found = [self._plane(name, self.prediction[i, k], self.reference[i, k]) for i in rows]
            given = [self._plane(str(self.given), self.inputs[i, 0], self.inputs[i, 0]) for i in rows]
            yield name, operators.map_figure(given, found)

    def _at(self, field: int, name: str, level: int) -> Plane:
        at = f"$t = {self.times[level]:.3g}$"
        return self._plane(name, self.prediction[0, level, field], self.reference[0, level, field], at)

    def _plane(self, name: str, prediction: torch.Tensor, reference: torch.Tensor, at: str = "") -> Plane:
        (across, x), (up, y) = self._coordinates(prediction)
        return Plane(name, across, up, x, y, _numpy(prediction).T, _numpy(reference).T, at)

    def _over_time(self, field: int, name: str) -> Plane:
        prediction, reference = self.prediction[0, :, field], self.reference[0, :, field]
        ((up, y),) = self._coordinates(prediction[0])
        t = np.array(self.times)
        return Plane(name, "t", up, t, y, _numpy(prediction).T, _numpy(reference).T, spatial=False)

    def _coordinates(self, field: torch.Tensor) -> list[tuple[str, np.ndarray]]:
        return [(axis, _numpy(x)) for axis, x in self.grid.coordinates(field.shape, dtype=torch.float64).items()]

    def _spectra(self) -> Figure:
        found, titles = {}, {}
        k = np.array([])
        for level in sorted({0, len(self.times) - 1}):
            for i, name in enumerate(self.names):
                key = f"{name}{level}"
                wavenumbers, ours = energy_spectrum(self.prediction[:, level, i], self.grid.dimension)
                _, theirs = energy_spectrum(self.reference[:, level, i], self.grid.dimension)
                k, found[key] = _numpy(wavenumbers), (_numpy(ours), _numpy(theirs))
                titles[key] = f"${symbol(name)}$ at $t = {self.times[level]:.3g}$"
        return operators.spectra(k, found, titles)


def _numpy(tensor: torch.Tensor) -> np.ndarray:
    return tensor.detach().double().cpu().numpy()
