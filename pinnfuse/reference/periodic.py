"""A solution on a periodic line, kept as Fourier coefficients at Chebyshev nodes in time.

Time is graded, t = end s^grading with s in [0, 1]: grading 2 resolves what starts like sqrt(t).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cached_property

import numpy as np
from numpy.typing import ArrayLike

from pinnfuse.reference import chebyshev
from pinnfuse.reference.base import Array, Complex, Reference

WIDTH = 16  # points of the local interpolation in x


def time_nodes(end: float, count: int, grading: int = 1) -> Array:
    """count + 1 times from 0 to end."""
    return end * ((chebyshev.nodes(count) + 1) / 2) ** grading


class PeriodicReference(Reference):
    """Fields of (t, x), x periodic.

    Args:
        fields: names.
        low, period, end: x in [low, low + period), t in [0, end].
        compute: -> complex [times, fields, modes], numpy.fft.rfft / points of each field at `time_nodes(...)`;
            called when the solution is first wanted.
        shape: sizes of `grid()`, in t and in x (both ends of the period included).
        grading: of the times.
        extra: a part known in closed form, (t [N], x [N]) -> [N, fields], added to the series.
        frame: [modes]; then the two fields are Re h and Im h of one function h that is even about the middle of the
            period, and `compute` gives its modes k >= 0, numpy.fft.fft / points, times exp(i frame t).
    """

    coordinates = ("t", "x")

    def __init__(
        self,
        fields: Sequence[str],
        low: float,
        period: float,
        end: float,
        compute: Callable[[], Complex],
        shape: tuple[int, int] = (101, 257),
        grading: int = 1,
        extra: Callable[[Array, Array], Array] | None = None,
        frame: Array | None = None,
    ) -> None:
        self.fields = tuple(fields)
        self.low, self.period, self.end, self.grading = low, period, end, grading
        self._compute, self._shape, self.extra, self.frame = compute, shape, extra, frame

    @cached_property
    def coefficients(self) -> Complex:
        """[times, fields, modes]"""
        return self._compute()

    def at_times(self, t: Array) -> Complex:
        """[len(t), fields, modes] coefficients at any times in [0, end], by interpolation."""
        s = (t / self.end) ** (1 / self.grading)
        count, *shape = self.coefficients.shape
        hats = chebyshev.interpolation(count - 1, 2 * s - 1) @ self.coefficients.reshape(count, -1)
        hats = hats.reshape(len(t), *shape)
        return hats if self.frame is None else hats * np.exp(-1j * t[:, None, None] * self.frame)

    def _samples(self, t: Array) -> Array:
        """[len(t), fields, points] on a uniform grid fine enough for local interpolation."""
        hats = self.at_times(t)
        modes = hats.shape[-1]
        if self.frame is None:
            points = max(2048, 4 * modes)
            return np.fft.irfft(hats * points, n=points, axis=-1)
        points = 8 * modes
        full = np.zeros((len(t), points), dtype=np.complex128)
        full[:, :modes], full[:, 1 - modes :] = hats[:, 0], hats[:, 0, :0:-1]
        values = np.fft.ifft(full * points, axis=-1)
        return np.stack([values.real, values.imag], axis=1)

    def solution(self, points: ArrayLike) -> Array:
        array = self._checked(points)
        t, x = array.T
        known = (t >= -1e-12 * self.end) & (t <= self.end * (1 + 1e-12))
        clipped = np.where(known, np.clip(t, 0, self.end), 0.0)
        times, at = np.unique(clipped, return_inverse=True)
        order = np.argsort(at, kind="stable")
        out = np.empty((len(t), len(self.fields)))
        done = 0
        for block in np.array_split(np.arange(len(times)), max(1, len(times) // 64)):
            if len(block) == 0:
                continue
            samples = self._samples(times[block])
            cells = samples.shape[-1]
            end = int(np.searchsorted(at[order], block[-1], side="right"))
            rows, done = order[done:end], end
            position = np.mod(x[rows] - self.low, self.period) / self.period * cells
            first = np.floor(position).astype(np.int64) - (WIDTH // 2 - 1)
            weights = chebyshev.local_weights(position - first, WIDTH)
            columns = (first[:, None] + np.arange(WIDTH)) % cells
            near = samples[(at[rows] - block[0])[:, None], :, columns]  # [rows, WIDTH, fields]
            out[rows] = np.einsum("nwf,nw->nf", near, weights)
        if self.extra is not None:
            out += self.extra(clipped, x)
        out[~known] = np.nan
        return out

    def grid(self) -> dict[str, Array]:
        nt, nx = self._shape
        return {"t": np.linspace(0, self.end, nt), "x": np.linspace(self.low, self.low + self.period, nx)}
